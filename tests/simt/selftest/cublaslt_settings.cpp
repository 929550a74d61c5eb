// What nobody promises of cuBLASLt is as the rig's settings say.
#include "cublaslt_call.h"

namespace simt_tests {

TEST_CASE("what is not written down of epilogues is as the settings say") {
  const Fresh fresh;
  const int n = 8;
  std::vector<float> ones(1, 1.f), row(n, -1.f);
  row[1] = NAN, row[2] = 1.f, row[3] = 0.f;
  float* a = to_device(row);
  float* b = to_device(ones);
  float* d = to_device(std::vector<float>(n));
  auto* mask = to_device(std::vector<unsigned char>(16, 0xFF));
  const auto run = [&](cublasLtEpilogue_t epilogue) {
    Call call(CUDA_R_32F, CUDA_R_32F, n, 1, 1, false, false);
    call.set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
    call.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, mask);
    call.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, std::int64_t{128});
    CHECK(call.run(a, b, d) == CUBLAS_STATUS_SUCCESS);
    return to_host(d, n);
  };
  for (const auto nan :
       {simt::NanInRelu::Swallowed, simt::NanInRelu::Kept, simt::NanInRelu::KeptWithout}) {
    simt::settings.nan_in_relu = nan;
    const auto y = run(CUBLASLT_EPILOGUE_RELU_AUX);
    CHECK(y[0] == 0);
    CHECK(std::isnan(y[1]) == (nan != simt::NanInRelu::Swallowed));
    CHECK(y[2] == 1);
    CHECK(to_host(mask, 1)[0] == (nan == simt::NanInRelu::Kept ? 6 : 4));
  }
  simt::settings.zeros_have_bits = true;
  run(CUBLASLT_EPILOGUE_RELU_AUX);
  CHECK(to_host(mask, 1)[0] == 12);
  simt::settings.zeros_have_bits = false;
  simt::settings.turned_masks = true;
  run(CUBLASLT_EPILOGUE_RELU_AUX);
  CHECK(to_host(mask, 1)[0] == 0x20);
  const float exact = run(CUBLASLT_EPILOGUE_GELU)[2];
  simt::settings.tanh_error = 0x1p-11;
  const float coarse = run(CUBLASLT_EPILOGUE_GELU)[2];
  CHECK(coarse != exact);
  CHECK(coarse == doctest::Approx(exact).epsilon(0x1p-11));
  simt::settings.gelu_by_erf = true;
  CHECK(run(CUBLASLT_EPILOGUE_GELU)[2] == doctest::Approx(0.5 * (1 + std::erf(std::sqrt(0.5)))));
  for (const auto type : {CUDA_R_16F, CUDA_R_32F}) {
    simt::settings.wide_bias_gradients = false;
    Call call(type, CUDA_R_32F, 8, 8, 8, false, true);
    call.set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BGRADB);
    CHECK((call.ask() == CUBLAS_STATUS_NOT_SUPPORTED) == (type == CUDA_R_16F));
  }
  simt::settings.wide_bias_gradients = true;
  for (const bool turned : {false, true})
    for (const auto epilogue : {CUBLASLT_EPILOGUE_BGRADA, CUBLASLT_EPILOGUE_BGRADB}) {
      Call call(CUDA_R_32F, CUDA_R_32F, 8, 8, 8, turned, turned);
      call.set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
      const bool can = turned == (epilogue == CUBLASLT_EPILOGUE_BGRADB);
      CHECK(call.ask() == (can ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED));
    }
  for (void* p : {static_cast<void*>(a), static_cast<void*>(b), static_cast<void*>(d),
                  static_cast<void*>(mask)})
    cudaFree(p);
}

TEST_CASE("a bias is added before the one rounding, or after a first one") {
  const Fresh fresh;
  // 2048 + 1 and a bias of 1: 2050 when rounded once, 2048 when twice.
  __half* a = to_device(std::vector<__half>{__half(2048.f), __half(1.f)});
  __half* b = to_device(std::vector<__half>{__half(1.f), __half(1.f)});
  __half* bias = to_device(std::vector<__half>{__half(1.f)});
  __half* d = to_device(std::vector<__half>(1));
  for (const bool after : {false, true}) {
    simt::settings.bias_after_rounding = after;
    Call call(CUDA_R_16F, CUDA_R_16F, 1, 1, 2, false, false);
    call.set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    call.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
    CHECK(call.run(a, b, d) == CUBLAS_STATUS_SUCCESS);
    CHECK(__half2float(to_host(d, 1)[0]) == (after ? 2048.f : 2050.f));
  }
  for (__half* p : {a, b, bias, d}) cudaFree(p);
}

TEST_CASE("products are refused as the settings say, when chosen or when called") {
  const Fresh fresh;
  float* memory = to_device(std::vector<float>(64, 1.f));
  for (const auto of : {simt::Refusals::None, simt::Refusals::Epilogues, simt::Refusals::Halves,
                        simt::Refusals::All})
    for (const bool called : {false, true})
      for (const auto type : {CUDA_R_16F, CUDA_R_32F})
        for (const auto epilogue : {CUBLASLT_EPILOGUE_DEFAULT, CUBLASLT_EPILOGUE_RELU}) {
          simt::settings.refuses = {of, CUBLAS_STATUS_INTERNAL_ERROR, called};
          Call call(type, CUDA_R_32F, 4, 4, 4, false, false);
          call.set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
          const bool refused =
              of == simt::Refusals::All || (of == simt::Refusals::Halves && type == CUDA_R_16F) ||
              (of == simt::Refusals::Epilogues && epilogue != CUBLASLT_EPILOGUE_DEFAULT);
          const auto answer = refused ? CUBLAS_STATUS_INTERNAL_ERROR : CUBLAS_STATUS_SUCCESS;
          CHECK(call.ask() == (called ? CUBLAS_STATUS_SUCCESS : answer));
          CHECK(call.run(memory, memory + 16, memory + 32) ==
                (called ? answer : CUBLAS_STATUS_SUCCESS));
        }
  cudaFree(memory);
}

}  // namespace simt_tests
