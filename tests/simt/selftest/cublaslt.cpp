// The reference cuBLASLt: right products, and refusals where the real one refuses.
#include "cublaslt_call.h"

namespace simt_tests {
namespace {

/// Σ over k of op(A)(i, k)·op(B)(k, j), from the numbers above.
double product(int i, int j, int m, int n, int k, bool ta, bool tb, int first_a = 0,
               int first_b = 0) {
  double sum = 0;
  for (int p = 0; p < k; ++p)
    sum += element(first_a + (ta ? i * k + p : p * m + i), 1) *
           element(first_b + (tb ? p * n + j : j * k + p), 2);
  return sum;
}

template <class T, class D>
void check_product() {
  const bool doubles = std::is_same_v<T, double>;
  for (const bool ta : {false, true})
    for (const bool tb : {false, true}) {
      const int m = 5, n = 3, k = 7, count = 2;
      Call call(type_of<T>(), type_of<D>(), m, n, k, ta, tb,
                doubles ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F,
                doubles ? CUDA_R_64F : CUDA_R_32F);
      call.batch(count, m * k, 0, m * n);  // one B for all
      T* a = to_device(numbers<T>(count * m * k, 1));
      T* b = to_device(numbers<T>(k * n, 2));
      D* d = to_device(numbers<D>(count * m * n, 3));
      const double alpha = kAlpha, beta = kBeta;
      CHECK(call.ask() == CUBLAS_STATUS_SUCCESS);
      CHECK(call.run(a, b, d, doubles ? static_cast<const void*>(&alpha) : &kAlpha,
                     doubles ? static_cast<const void*>(&beta) : &kBeta) == CUBLAS_STATUS_SUCCESS);
      const auto got = to_host(d, count * m * n);
      for (int i = 0; i < count * m * n; ++i) {
        const double exact =
            alpha * product(i % m, i % (m * n) / m, m, n, k, ta, tb, i / (m * n) * m * k) +
            beta * element(i, 3);
        CHECK(double(float(got[i])) == double(float(D(float(exact)))));
      }
      cudaFree(a), cudaFree(b), cudaFree(d);
    }
}

double gelu(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::acos(-1.0)) * (x + 0.044715 * x * x * x)));
}
double gelu_slope(double x) { return (gelu(x + 1e-5) - gelu(x - 1e-5)) / 2e-5; }

}  // namespace

TEST_CASE("products are right in every dtype, transposition and batch") {
  const Fresh fresh;
  check_product<__half, __half>();
  check_product<__nv_bfloat16, __nv_bfloat16>();
  check_product<__half, float>();
  check_product<__nv_bfloat16, float>();
  check_product<float, float>();
  check_product<double, double>();
}

TEST_CASE("with beta = 0 what was there is not read, and products run in stream order") {
  const Fresh fresh;
  simt::settings.mode = simt::Mode::Deferred;
  Call call(CUDA_R_32F, CUDA_R_32F, 2, 2, 2, false, false);
  float* a = to_device(numbers<float>(4, 1));
  float* b = to_device(numbers<float>(4, 2));
  float* d = to_device(std::vector<float>(4, NAN));
  cudaStream_t s;
  REQUIRE(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking) == cudaSuccess);
  const float one = 1.f, zero = 0.f;
  CHECK(call.run(a, b, d, &one, &zero, s) == CUBLAS_STATUS_SUCCESS);
  CHECK(simt::pending_work() == 1);
  CHECK(std::isnan(to_host(d, 4)[0]));
  CHECK(cudaStreamSynchronize(s) == cudaSuccess);
  CHECK(to_host(d, 4)[0] == product(0, 0, 2, 2, 2, false, false));
  CHECK(simt::counters().matmuls == 1);
  CHECK(simt::launched_kernels() ==
        std::vector<std::string>{"simt::cublaslt::(anonymous namespace)::cublaslt_matmul"});
  // In a capture, it is a node.
  CHECK(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
  CHECK(call.run(a, b, d, &one, &zero, s) == CUBLAS_STATUS_SUCCESS);
  cudaGraph_t graph;
  CHECK(cudaStreamEndCapture(s, &graph) == cudaSuccess);
  CHECK(simt::nodes(graph).size() == 1);
  cudaGraphDestroy(graph);
  cudaStreamDestroy(s);
  cudaFree(a), cudaFree(b), cudaFree(d);
}

TEST_CASE("epilogues add the bias, apply the activation, and leave what its gradient needs") {
  const Fresh fresh;
  const int m = 5, n = 3, k = 4, mask_ld = 128, aux_ld = 8;
  __half* a = to_device(numbers<__half>(m * k, 1));
  const auto by_columns = numbers<__half>(k * n, 2);
  auto by_rows = by_columns;
  for (int j = 0; j < n; ++j)
    for (int p = 0; p < k; ++p) by_rows[p * n + j] = by_columns[j * k + p];
  __half* b = to_device(by_columns);
  __half* turned_b = to_device(by_rows);
  float* bias = to_device(numbers<float>(m, 4));
  float* d = to_device(std::vector<float>(m * n));
  auto* mask = to_device(std::vector<unsigned char>(mask_ld / 8 * n, 0xFF));
  float* aux = to_device(std::vector<float>(aux_ld * n));
  const auto forward = [&](cublasLtEpilogue_t epilogue, void* to, int ld) {
    Call call(CUDA_R_16F, CUDA_R_32F, m, n, k, false, false);
    call.set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
    call.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
    call.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, to);
    call.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, std::int64_t(ld));
    CHECK(call.ask() == CUBLAS_STATUS_SUCCESS);
    CHECK(call.run(a, b, d) == CUBLAS_STATUS_SUCCESS);
    return to_host(d, m * n);
  };
  const auto value = [&](int i, int j, bool biased) {
    return product(i, j, m, n, k, false, false) + (biased ? element(i, 4) : 0);
  };
  const auto relu = forward(CUBLASLT_EPILOGUE_RELU_AUX_BIAS, mask, mask_ld);
  const auto plain_relu = forward(CUBLASLT_EPILOGUE_RELU, nullptr, 0);
  const auto biased = forward(CUBLASLT_EPILOGUE_BIAS, nullptr, 0);
  const auto smooth = forward(CUBLASLT_EPILOGUE_GELU_AUX_BIAS, aux, aux_ld);
  const auto plain_smooth = forward(CUBLASLT_EPILOGUE_GELU, nullptr, 0);
  const auto bits = to_host(mask, mask_ld / 8 * n);
  const auto saved = to_host(aux, aux_ld * n);
  for (int j = 0; j < n; ++j)
    for (int i = 0; i < m; ++i) {
      const double v = value(i, j, true);
      CHECK(biased[j * m + i] == v);
      CHECK(relu[j * m + i] == std::max(v, 0.0));
      CHECK(plain_relu[j * m + i] == std::max(value(i, j, false), 0.0));
      CHECK((bits[j * mask_ld / 8 + i / 8] >> i % 8 & 1) == (v > 0));
      CHECK(smooth[j * m + i] == doctest::Approx(gelu(v)).epsilon(1e-5));
      CHECK(saved[j * aux_ld + i] == v);
      CHECK(plain_smooth[j * m + i] == doctest::Approx(gelu(value(i, j, false))).epsilon(1e-5));
    }

  const auto backward = [&](cublasLtEpilogue_t epilogue, void* from, int ld, int length) {
    const bool sums_b = epilogue == CUBLASLT_EPILOGUE_BGRADB;  // needs op(B) = Bᵀ
    Call call(CUDA_R_16F, CUDA_R_32F, m, n, k, false, sums_b);
    float* db = to_device(std::vector<float>(length, NAN));
    call.set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
    call.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, db);
    call.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, from);
    call.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, std::int64_t(ld));
    CHECK(call.ask() == CUBLAS_STATUS_SUCCESS);
    CHECK(call.run(a, sums_b ? turned_b : b, d) == CUBLAS_STATUS_SUCCESS);
    auto sums = to_host(db, length);
    cudaFree(db);
    return std::pair(to_host(d, m * n), sums);
  };
  const auto [drelu, drelu_sums] = backward(CUBLASLT_EPILOGUE_DRELU_BGRAD, mask, mask_ld, m);
  const auto [dgelu, dgelu_sums] = backward(CUBLASLT_EPILOGUE_DGELU_BGRAD, aux, aux_ld, m);
  const auto [same_a, sums_a] = backward(CUBLASLT_EPILOGUE_BGRADA, nullptr, 0, m);
  const auto [same_b, sums_b] = backward(CUBLASLT_EPILOGUE_BGRADB, nullptr, 0, n);
  for (int i = 0; i < m; ++i) {
    double of_relu = 0, of_gelu = 0, of_a = 0;
    for (int j = 0; j < n; ++j) {
      const double g = value(i, j, false), z = value(i, j, true);
      CHECK(drelu[j * m + i] == (z > 0 ? g : 0));
      CHECK(dgelu[j * m + i] == doctest::Approx(g * gelu_slope(z)).epsilon(1e-4));
      CHECK(same_a[j * m + i] == g);
      CHECK(same_b[j * m + i] == g);
      of_relu += drelu[j * m + i];
      of_gelu += dgelu[j * m + i];
    }
    for (int p = 0; p < k; ++p) of_a += element(p * m + i, 1);
    CHECK(drelu_sums[i] == of_relu);
    CHECK(dgelu_sums[i] == doctest::Approx(of_gelu).epsilon(1e-5));
    CHECK(sums_a[i] == of_a);
  }
  for (int j = 0; j < n; ++j) {
    double of_b = 0;
    for (int p = 0; p < k; ++p) of_b += element(j * k + p, 2);
    CHECK(sums_b[j] == of_b);
  }
  for (void* p : {static_cast<void*>(a), static_cast<void*>(b), static_cast<void*>(turned_b),
                  static_cast<void*>(bias), static_cast<void*>(d), static_cast<void*>(mask),
                  static_cast<void*>(aux)})
    cudaFree(p);
}

TEST_CASE("questions for an algorithm and descriptors are counted") {
  const Fresh fresh;
  Call call(CUDA_R_32F, CUDA_R_32F, 4, 4, 4, false, false);
  CHECK(simt::counters().matmul_descriptors == 1);
  CHECK(simt::counters().heuristics == 0);
  for (int i = 0; i < 2; ++i) CHECK(call.ask() == CUBLAS_STATUS_SUCCESS);
  CHECK(simt::counters().heuristics == 2);
}

TEST_CASE("what cuBLASLt has no kernel for is refused by its heuristic") {
  const Fresh fresh;
  const int m = 8, n = 4, k = 4;
  const auto refused = [&](auto&& change, cudaDataType_t type = CUDA_R_16F,
                           cudaDataType_t d_type = CUDA_R_16F,
                           cublasComputeType_t compute = CUBLAS_COMPUTE_32F) {
    Call call(type, d_type, m, n, k, false, false, compute);
    change(call);
    return call.ask();
  };
  const auto epilogue = [](cublasLtEpilogue_t which, std::int64_t ld) {
    return [=](Call& c) {
      c.set(CUBLASLT_MATMUL_DESC_EPILOGUE, which);
      c.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, ld);
    };
  };
  const auto nothing = [](Call&) {};
  const auto no = CUBLAS_STATUS_NOT_SUPPORTED;
  CHECK(refused(nothing) == CUBLAS_STATUS_SUCCESS);
  CHECK(refused(nothing, CUDA_R_32F, CUDA_R_16F) == no);
  CHECK(refused(nothing, CUDA_R_16F, CUDA_R_16BF) == no);
  CHECK(refused(nothing, CUDA_R_16F, CUDA_R_16F, CUBLAS_COMPUTE_16F) == no);
  CHECK(refused(nothing, CUDA_R_64F, CUDA_R_64F) == no);
  CHECK(refused([](Call& c) { c.set(c.b, CUBLASLT_MATRIX_LAYOUT_TYPE, CUDA_R_16BF); }) == no);
  CHECK(refused(epilogue(CUBLASLT_EPILOGUE_RELU_AUX, 128)) == CUBLAS_STATUS_SUCCESS);
  CHECK(refused(epilogue(CUBLASLT_EPILOGUE_RELU_AUX, 100)) == no);
  CHECK(refused(epilogue(CUBLASLT_EPILOGUE_GELU_AUX, 8)) == CUBLAS_STATUS_SUCCESS);
  CHECK(refused(epilogue(CUBLASLT_EPILOGUE_GELU_AUX, 12)) == no);
  CHECK(refused(epilogue(CUBLASLT_EPILOGUE_DGELU, 0)) == no);
  CHECK(refused([](Call& c) {
          c.set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
          c.set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, std::int32_t{CUDA_R_32F});
        }) == no);
  CHECK(refused([](Call& c) {
          c.set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
          for (auto* l : {c.c, c.d})
            c.set(l, CUBLASLT_MATRIX_LAYOUT_ORDER, std::int32_t{CUBLASLT_ORDER_ROW});
        }) == no);
  const auto nonsense = CUBLAS_STATUS_INVALID_VALUE;
  CHECK(refused([](Call& c) { c.set(c.a, CUBLASLT_MATRIX_LAYOUT_LD, std::int64_t{7}); }) ==
        nonsense);
  CHECK(refused([](Call& c) { c.set(c.b, CUBLASLT_MATRIX_LAYOUT_ROWS, std::uint64_t{3}); }) ==
        nonsense);
  CHECK(refused([](Call& c) { c.set(c.d, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, std::int32_t{2}); }) ==
        nonsense);
  Call call(CUDA_R_16F, CUDA_R_16F, m, n, k, false, false);
  const std::int64_t wide = 1;
  CHECK(cublasLtMatmulDescSetAttribute(call.o, CUBLASLT_MATMUL_DESC_TRANSA, &wide, sizeof wide) ==
        nonsense);
  CHECK(std::string(cublasLtGetStatusName(no)) == "CUBLAS_STATUS_NOT_SUPPORTED");
}

TEST_CASE("a product gets the alignment, the workspace and the memory that it was promised") {
  const Fresh fresh;
  const int m = 8, n = 4, k = 64;
  Call call(CUDA_R_16F, CUDA_R_16F, m, n, k, true, false);
  call.prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, 16u);
  call.prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t{1} << 20);
  cublasLtMatmulHeuristicResult_t best{};
  REQUIRE(call.ask(&best) == CUBLAS_STATUS_SUCCESS);
  CHECK(best.workspaceSize > 0);
  __half* a = to_device(numbers<__half>(m * k + 1, 1));
  __half* b = to_device(numbers<__half>(k * n, 2));
  __half* d = to_device(std::vector<__half>(m * n));
  auto* workspace = to_device(std::vector<float>(1024, 1.f));
  const float one = 1.f, zero = 0.f;
  const auto run = [&](const __half* pa, void* pd, void* space, std::size_t size) {
    return call.run(pa, b, pd, &one, &zero, nullptr, &best.algo, space, size);
  };
  CHECK(run(a, d, workspace, best.workspaceSize) == CUBLAS_STATUS_SUCCESS);
  CHECK(std::isnan(to_host(workspace, 1)[0]));  // it was used
  CHECK(run(a, d, workspace, best.workspaceSize - 1) == CUBLAS_STATUS_INVALID_VALUE);
  CHECK(run(a, d, nullptr, best.workspaceSize) == CUBLAS_STATUS_INVALID_VALUE);
  CHECK(run(a + 1, d, workspace, best.workspaceSize) == CUBLAS_STATUS_INVALID_VALUE);
  CHECK(reported("less aligned"));
  CHECK(run(a, d + 2, workspace, best.workspaceSize) == CUBLAS_STATUS_INVALID_VALUE);
  CHECK(reported("matrix D needs 64 bytes; it begins 4 bytes into an allocation of 64 bytes"));
  call.set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_RELU);
  CHECK(run(a, d, workspace, best.workspaceSize) == CUBLAS_STATUS_INVALID_VALUE);
  CHECK(reported("another kind of product"));
  call.set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
  CHECK(call.run(a, b, d) == CUBLAS_STATUS_INVALID_VALUE);  // no bias
  cudaFree(a), cudaFree(b), cudaFree(d), cudaFree(workspace);
}

TEST_CASE("without a device, and on a broken one, cuBLASLt says so") {
  const Fresh fresh;
  cublasLtHandle_t handle = nullptr;
  simt::settings.devices = 0;
  CHECK(cublasLtCreate(&handle) == CUBLAS_STATUS_NOT_INITIALIZED);
  simt::settings.devices = 1;
  Call call(CUDA_R_32F, CUDA_R_32F, 1, 1, 1, false, false);
  float* x = to_device(std::vector<float>{1.f, 2.f, 3.f});
  simt::fail_launch(1);
  CHECK(call.run(x, x + 1, x + 2) == CUBLAS_STATUS_SUCCESS);
  CHECK(cudaDeviceSynchronize() == cudaErrorIllegalAddress);
  CHECK(call.run(x, x + 1, x + 2) == CUBLAS_STATUS_EXECUTION_FAILED);
  simt::reset();
  cudaFree(x);
}

}  // namespace simt_tests
