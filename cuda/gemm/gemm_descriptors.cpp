#include "halftape/cuda/gemm/gemm_descriptors.h"

namespace halftape::cuda {
namespace {

constexpr uint64_t kAlignment = 16;  // bytes, the longest load of a thread

/// preferred: the order of a single row or column.
Side side(const Matrices& x, int64_t rows, int64_t columns, int64_t count,
          Order preferred = Order::Neither) {
  Side s{};
  s.type = x.dtype == kFloat16    ? CUDA_R_16F
           : x.dtype == kBFloat16 ? CUDA_R_16BF
           : x.dtype == kFloat32  ? CUDA_R_32F
                                  : CUDA_R_64F;
  s.turned = order_of(rows, columns, x.down, x.right, preferred) == Order::ByColumns;
  s.rows = s.turned ? rows : columns;
  s.columns = s.turned ? columns : rows;
  s.ld = s.columns == 1 ? s.rows : s.turned ? x.right : x.down;
  s.next = count == 1 ? 0 : x.next;
  const auto item = static_cast<int64_t>(element_size(x.dtype));
  const uint64_t bits = reinterpret_cast<uintptr_t>(x.base) |
                        static_cast<uint64_t>((s.columns == 1 ? 0 : s.ld * item) | s.next * item) |
                        kAlignment;
  s.alignment = static_cast<int64_t>(bits & -bits);
  return s;
}

/// The library's name of the epilogue.
cublasLtEpilogue_t epilogue_of(const Product& p) {
  const bool bias = p.bias.base, aux = p.finish.aux, sums = p.finish.bias_grad;
  switch (p.finish.epilogue) {
    case Epilogue::Relu:
      return aux    ? bias ? CUBLASLT_EPILOGUE_RELU_AUX_BIAS : CUBLASLT_EPILOGUE_RELU_AUX
             : bias ? CUBLASLT_EPILOGUE_RELU_BIAS
                    : CUBLASLT_EPILOGUE_RELU;
    case Epilogue::Gelu:
      return aux    ? bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX
             : bias ? CUBLASLT_EPILOGUE_GELU_BIAS
                    : CUBLASLT_EPILOGUE_GELU;
    case Epilogue::DRelu:
      return sums ? CUBLASLT_EPILOGUE_DRELU_BGRAD : CUBLASLT_EPILOGUE_DRELU;
    case Epilogue::DGelu:
      return sums ? CUBLASLT_EPILOGUE_DGELU_BGRAD : CUBLASLT_EPILOGUE_DGELU;
    default:  // our a is its second factor
      return sums   ? CUBLASLT_EPILOGUE_BGRADB
             : bias ? CUBLASLT_EPILOGUE_BIAS
                    : CUBLASLT_EPILOGUE_DEFAULT;
  }
}
template <class T>
void set(const MatrixLayout& l, cublasLtMatrixLayoutAttribute_t attribute, const T& value) {
  check(cublasLtMatrixLayoutSetAttribute(l.get(), attribute, &value, sizeof value), "layout");
}
template <class T>
void set(const Preference& p, cublasLtMatmulPreferenceAttributes_t attribute, const T& value) {
  check(cublasLtMatmulPreferenceSetAttribute(p.get(), attribute, &value, sizeof value),
        "preference");
}

}  // namespace

void check(cublasStatus_t result, const char* what) {
  if (result == CUBLAS_STATUS_SUCCESS) [[likely]]
    return;
  const std::string text =
      detail::in_its_name(detail::str("cuda: gemm: ", what, ": ", cublasLtGetStatusString(result),
                                      " (", cublasLtGetStatusName(result), ")"));
  if (result == CUBLAS_STATUS_ALLOC_FAILED) throw OutOfMemoryError(text);
  throw Error(text);
}

Problem problem_of(const Product& p, bool reduced_sums) {
  return {side(p.d, p.m, p.n, p.count),
          side(p.a, p.m, p.k, p.count, order_for(p.finish.bias_grad)),
          side(p.b, p.k, p.n, p.count),
          p.count,
          epilogue_of(p),
          vector_of(p) != nullptr,
          p.finish.aux_next,
          reduced_sums && p.d.dtype == kFloat16};
}

// dᵀ = bᵀ·aᵀ: our b is the library's first factor, our a its second.
Operation operation(const Problem& p) {
  const bool doubles = p.a.type == CUDA_R_64F;
  cublasLtMatmulDesc_t made = nullptr;
  check(cublasLtMatmulDescCreate(&made, doubles ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F,
                                 doubles ? CUDA_R_64F : CUDA_R_32F),
        "descriptor");
  Operation o(made);
  set(o, CUBLASLT_MATMUL_DESC_TRANSA, p.b.turned ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(o, CUBLASLT_MATMUL_DESC_TRANSB, p.a.turned ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(o, CUBLASLT_MATMUL_DESC_EPILOGUE, static_cast<cublasLtEpilogue_t>(p.epilogue));
  // The heuristic reads the alignment of these addresses.
  if (p.has_vector) set(o, CUBLASLT_MATMUL_DESC_BIAS_POINTER, uint64_t{kAlignment});
  if (p.aux_next) {
    set(o, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, uint64_t{kAlignment});
    set(o, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, p.aux_next);
  }
  return o;
}

MatrixLayout layout(const Side& s, int64_t count) {
  cublasLtMatrixLayout_t made = nullptr;
  check(cublasLtMatrixLayoutCreate(&made, static_cast<cudaDataType>(s.type),
                                   static_cast<uint64_t>(s.rows), static_cast<uint64_t>(s.columns),
                                   s.ld),
        "layout");
  MatrixLayout l(made);
  set(l, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<int32_t>(count));
  set(l, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, s.next);
  return l;
}

Preference preference(const Problem& p, size_t workspace) {
  cublasLtMatmulPreference_t made = nullptr;
  check(cublasLtMatmulPreferenceCreate(&made), "preference");
  Preference wanted(made);
  set(wanted, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace);
  // The parts of a split sum are joined in float, and always in the same order.
  uint32_t joins = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  if (p.reduced_sums) joins |= CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE;
  set(wanted, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, joins);
  set(wanted, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, static_cast<uint32_t>(p.b.alignment));
  set(wanted, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, static_cast<uint32_t>(p.a.alignment));
  set(wanted, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, static_cast<uint32_t>(p.d.alignment));
  set(wanted, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, static_cast<uint32_t>(p.d.alignment));
  return wanted;
}

}  // namespace halftape::cuda
