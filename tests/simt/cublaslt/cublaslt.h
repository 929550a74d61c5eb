// The parts of the rig's cuBLASLt: descriptors and products.
#pragma once
#include <cublasLt.h>

#include <new>

#include "runtime/runtime.h"

namespace simt::cublaslt {

struct Operation {
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  cudaDataType_t scale = CUDA_R_32F;
  std::int32_t pointer_mode = CUBLASLT_POINTER_MODE_HOST;
  cublasOperation_t a = CUBLAS_OP_N, b = CUBLAS_OP_N, c = CUBLAS_OP_N;
  cublasFillMode_t fill = CUBLAS_FILL_MODE_FULL;
  std::uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  void* bias = nullptr;
  std::int64_t bias_stride = 0;
  void* aux = nullptr;
  std::int64_t aux_ld = 0, aux_stride = 0;
  std::int32_t aux_type = -1, bias_type = -1, multiprocessors = 0;
  std::int8_t fast_accumulation = 0;
};

struct Layout {
  cudaDataType_t type = CUDA_R_32F;
  std::int32_t order = CUBLASLT_ORDER_COL;
  std::uint64_t rows = 0, columns = 0;
  std::int64_t ld = 0;
  std::int32_t count = 1;
  std::int64_t stride = 0;
};

struct Preference {
  std::uint32_t search_mode = 0;
  std::uint64_t workspace = 0;
  std::uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_MASK;
  std::uint32_t alignment_a = 256, alignment_b = 256, alignment_c = 256, alignment_d = 256;
  float waves = 0;
  std::uint64_t implementations = ~std::uint64_t{0};
};

struct Algorithm {
  static constexpr std::uint64_t kMark = 0x73696d742d6c7421;
  std::uint64_t mark = kMark;
  std::uint64_t workspace = 0;
  std::uint32_t alignment_a = 0, alignment_b = 0, alignment_c = 0, alignment_d = 0;
  std::uint32_t kind = 0;  // the types, transpositions and epilogue of its products
};

/// The rig's structure inside one of the library's opaque ones.
template <class T, class Opaque>
T& in(Opaque* opaque) {
  static_assert(sizeof(T) <= sizeof opaque->data);
  return *std::launder(reinterpret_cast<T*>(opaque->data));
}
/// The parts of an epilogue.
struct Epilogue {
  bool bias, relu, gelu, relu_gradient, gelu_gradient, aux, bias_gradient, sums_a, sums_b;
  explicit Epilogue(std::uint32_t e)
      : bias(e & CUBLASLT_EPILOGUE_BIAS),
        relu(e & CUBLASLT_EPILOGUE_RELU),
        gelu(e & CUBLASLT_EPILOGUE_GELU),
        relu_gradient(e & 8),
        gelu_gradient(e & 64),
        aux(e & 128),
        bias_gradient(e & 16),
        sums_a(e & CUBLASLT_EPILOGUE_BGRADA),
        sums_b(e & CUBLASLT_EPILOGUE_BGRADB) {}
  bool vector() const { return bias || bias_gradient || sums_a || sums_b; }
  bool masks() const { return aux && (relu || relu_gradient); }
};

/// A product with all its descriptors.
struct Problem {
  const Operation& o;
  const Layout &a, &b, &c, &d;
  std::uint64_t m() const { return d.rows; }
  std::uint64_t n() const { return d.columns; }
  std::uint64_t k() const { return o.a == CUBLAS_OP_N ? a.columns : a.rows; }
};

/// Bytes of an element; 0 for types that the rig lacks.
std::size_t size_of(int type);
bool is_16bit(int type);

/// INVALID_VALUE for nonsense, NOT_SUPPORTED for a product without a kernel in the library.
cublasStatus_t check(const Problem& p);
/// True for products that settings.refuses names, of which it counts down those that are left.
bool refuse(const Problem& p);
/// The kind of a product: a number for its types, transpositions and epilogue.
std::uint32_t kind_of(const Problem& p);
Algorithm algorithm_for(const Problem& p, const Preference& wanted);

/// Checks a call of cublasLtMatmul and enqueues its product.
cublasStatus_t multiply(const Problem& p, const void* alpha, const void* a, const void* b,
                        const void* beta, const void* c, void* d,
                        const cublasLtMatmulAlgo_t* chosen, void* workspace,
                        std::size_t workspace_bytes, cudaStream_t stream);

}  // namespace simt::cublaslt
