// A product of the rig's cuBLASLt with every descriptor, and numbers for it.
#pragma once
#include <cublasLt.h>

#include <cmath>
#include <cstdint>
#include <cstring>

#include "support.h"

namespace simt_tests {

constexpr float kAlpha = 0.5f, kBeta = 2.f;

template <class T>
constexpr cudaDataType_t type_of() {
  if constexpr (std::is_same_v<T, __half>) return CUDA_R_16F;
  if constexpr (std::is_same_v<T, __nv_bfloat16>) return CUDA_R_16BF;
  if constexpr (std::is_same_v<T, float>) return CUDA_R_32F;
  return CUDA_R_64F;
}
inline std::uint32_t size_of(cudaDataType_t type) {
  return type == CUDA_R_64F ? 8 : type == CUDA_R_32F ? 4 : 2;
}
/// Small integers over four: exact in every type, and so are their products' sums.
inline double element(int i, int seed) { return ((i * 7 + seed * 5) % 13 - 6) / 4.0; }
template <class T>
std::vector<T> numbers(int count, int seed) {
  std::vector<T> x;
  for (int i = 0; i < count; ++i) x.push_back(T(float(element(i, seed))));
  return x;
}

/// op(A)·op(B) with every descriptor, to be changed before it runs.
struct Call {
  cublasLtHandle_t handle = nullptr;
  cublasLtMatmulDesc_t o = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, c = nullptr, d = nullptr;
  cublasLtMatmulPreference_t preference = nullptr;

  Call(cudaDataType_t type, cudaDataType_t d_type, int m, int n, int k, bool ta, bool tb,
       cublasComputeType_t compute = CUBLAS_COMPUTE_32F, cudaDataType_t scale = CUDA_R_32F) {
    REQUIRE(cublasLtCreate(&handle) == CUBLAS_STATUS_SUCCESS);
    REQUIRE(cublasLtMatmulDescCreate(&o, compute, scale) == CUBLAS_STATUS_SUCCESS);
    set(CUBLASLT_MATMUL_DESC_TRANSA, ta ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_TRANSB, tb ? CUBLAS_OP_T : CUBLAS_OP_N);
    layout(a, type, ta ? k : m, ta ? m : k);
    layout(b, type, tb ? n : k, tb ? k : n);
    layout(c, d_type, m, n);
    layout(d, d_type, m, n);
    REQUIRE(cublasLtMatmulPreferenceCreate(&preference) == CUBLAS_STATUS_SUCCESS);
    for (const auto side :
         {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES})
      prefer(side, size_of(type));
    for (const auto side :
         {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
      prefer(side, size_of(d_type));
  }
  ~Call() {
    cublasLtMatmulPreferenceDestroy(preference);
    for (auto* l : {a, b, c, d}) cublasLtMatrixLayoutDestroy(l);
    cublasLtMatmulDescDestroy(o);
    cublasLtDestroy(handle);
  }
  Call(const Call&) = delete;

  template <class T>
  void set(cublasLtMatmulDescAttributes_t attribute, T value) {
    REQUIRE(cublasLtMatmulDescSetAttribute(o, attribute, &value, sizeof value) ==
            CUBLAS_STATUS_SUCCESS);
  }
  template <class T>
  void set(cublasLtMatrixLayout_t l, cublasLtMatrixLayoutAttribute_t attribute, T value) {
    REQUIRE(cublasLtMatrixLayoutSetAttribute(l, attribute, &value, sizeof value) ==
            CUBLAS_STATUS_SUCCESS);
  }
  template <class T>
  void prefer(cublasLtMatmulPreferenceAttributes_t attribute, T value) {
    REQUIRE(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value) ==
            CUBLAS_STATUS_SUCCESS);
  }
  static void layout(cublasLtMatrixLayout_t& l, cudaDataType_t type, int rows, int columns) {
    REQUIRE(cublasLtMatrixLayoutCreate(&l, type, std::uint64_t(rows), std::uint64_t(columns),
                                       rows) == CUBLAS_STATUS_SUCCESS);
  }
  void batch(int count, int stride_a, int stride_b, int stride_d) {
    for (auto* l : {a, b, c, d}) set(l, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, std::int32_t(count));
    set(a, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, std::int64_t(stride_a));
    set(b, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, std::int64_t(stride_b));
    for (auto* l : {c, d})
      set(l, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, std::int64_t(stride_d));
  }
  cublasStatus_t ask(cublasLtMatmulHeuristicResult_t* result = nullptr) {
    cublasLtMatmulHeuristicResult_t one;
    int found = 0;
    const auto e = cublasLtMatmulAlgoGetHeuristic(handle, o, a, b, c, d, preference, 1,
                                                  result ? result : &one, &found);
    CHECK(found == (e == CUBLAS_STATUS_SUCCESS ? 1 : 0));
    return e;
  }
  cublasStatus_t run(const void* pa, const void* pb, void* pd, const void* alpha, const void* beta,
                     cudaStream_t stream = nullptr, const cublasLtMatmulAlgo_t* algorithm = nullptr,
                     void* workspace = nullptr, std::size_t size = 0) {
    return cublasLtMatmul(handle, o, alpha, pa, a, pb, b, beta, pd, c, pd, d, algorithm, workspace,
                          size, stream);
  }
  cublasStatus_t run(const void* pa, const void* pb, void* pd) {
    const float one = 1.f, zero = 0.f;
    return run(pa, pb, pd, &one, &zero);
  }
};

}  // namespace simt_tests
