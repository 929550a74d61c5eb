// The product of the rig's cuBLASLt.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "cublaslt/cublaslt.h"

namespace simt::cublaslt {
namespace {

/// True if a matrix has the promised alignment: its address, each column and each matrix of a
/// batch.
bool aligned(const void* address, const Layout& l, std::uint32_t alignment) {
  // The promise may exceed the alignment of a small matrix; kernels use at most 16 bytes.
  const std::uint64_t needed = std::min<std::uint64_t>(alignment, 16);
  const std::uint64_t item = size_of(l.type);
  const bool one = (l.order == CUBLASLT_ORDER_COL ? l.columns : l.rows) == 1;
  const std::uint64_t bits = reinterpret_cast<std::uintptr_t>(address) |
                             (one ? 0 : std::uint64_t(l.ld) * item) |
                             (l.count == 1 ? 0 : std::uint64_t(l.stride) * item);
  return needed && bits % needed == 0;
}

/// Bytes from the first to the last element.
std::size_t extent(const Layout& l) {
  const bool by_columns = l.order == CUBLASLT_ORDER_COL;
  const std::uint64_t lines = by_columns ? l.columns : l.rows,
                      in_line = by_columns ? l.rows : l.columns;
  return size_of(l.type) * (std::uint64_t(l.stride) * std::uint64_t(l.count - 1) +
                            std::uint64_t(l.ld) * (lines - 1) + in_line);
}

bool in_memory(const char* what, const void* address, std::size_t size) {
  DeviceMemory& memory = DeviceMemory::memory();
  if (memory.holds(address, size) || (!memory.contains(address) && is_pinned(address, size)))
    return true;
  report(std::string("cublasLtMatmul: ") + what + " needs " + std::to_string(size) +
         " bytes; it begins " +
         (memory.contains(address) ? memory.describe(address) : "outside the device's memory"));
  return false;
}

template <class S>
S load(const void* base, std::uint64_t i, int type) {
  switch (type) {
    case CUDA_R_16F:
      return S(__half2float(static_cast<const __half*>(base)[i]));
    case CUDA_R_16BF:
      return S(__bfloat162float(static_cast<const __nv_bfloat16*>(base)[i]));
    case CUDA_R_32F:
      return S(static_cast<const float*>(base)[i]);
    default:
      return S(static_cast<const double*>(base)[i]);
  }
}
template <class S>
void store(void* base, std::uint64_t i, int type, S value) {
  switch (type) {
    case CUDA_R_16F:
      static_cast<__half*>(base)[i] = __float2half_rn(float(value));
      break;
    case CUDA_R_16BF:
      static_cast<__nv_bfloat16*>(base)[i] = __float2bfloat16_rn(float(value));
      break;
    case CUDA_R_32F:
      static_cast<float*>(base)[i] = float(value);
      break;
    default:
      static_cast<double*>(base)[i] = double(value);
  }
}

/// v as the type holds it.
template <class S>
S rounded(S v, int type) {
  double bytes;  // room for any type
  store(&bytes, 0, type, v);
  return load<S>(&bytes, 0, type);
}

// The tanh form: Hendrycks & Gimpel 2016, arXiv:1606.08415, section 2.
constexpr double kRootTwoOverPi = 0.79788456080286535588, kCubic = 0.044715;
/// tanh, with the relative error that the settings say.
template <class S>
S tanh_of(S x) {
  const S t = std::tanh(x);
  return t * S(1 - settings.tanh_error);
}
template <class S>
S gelu(S x) {
  if (settings.gelu_by_erf) return S(0.5) * x * std::erfc(-x * S(0.70710678118654752440));
  return S(0.5) * x * (1 + tanh_of(S(kRootTwoOverPi) * (x + S(kCubic) * x * x * x)));
}
template <class S>
S gelu_gradient(S x) {
  if (settings.gelu_by_erf)
    return S(0.5) * std::erfc(-x * S(0.70710678118654752440)) +
           x * S(0.39894228040143267794) * std::exp(S(-0.5) * x * x);
  const S t = tanh_of(S(kRootTwoOverPi) * (x + S(kCubic) * x * x * x));
  return S(0.5) * (1 + t) +
         S(0.5) * x * (1 - t * t) * S(kRootTwoOverPi) * (1 + 3 * S(kCubic) * x * x);
}

/// An enqueued call of cublasLtMatmul.
struct Product {
  Operation o;
  Layout a_layout, b_layout, c_layout, d_layout;
  const void *a, *b, *c;
  void* d;
  const void *alpha, *beta;  // on the device
  double alpha_value, beta_value;
  void* workspace;
  std::uint64_t workspace_bytes;

  std::string run() const {
    if (workspace_bytes) std::memset(workspace, 0xFF, workspace_bytes);
    for (std::int32_t i = 0; i < d_layout.count; ++i) {
      if (a_layout.type == CUDA_R_64F)
        multiply<double>(i);
      else
        multiply<float>(i);
    }
    return "";
  }

 private:
  static std::uint64_t at(const Layout& l, std::uint64_t row, std::uint64_t column,
                          std::int32_t i) {
    const bool by_columns = l.order == CUBLASLT_ORDER_COL;
    return std::uint64_t(l.stride) * std::uint64_t(i) +
           std::uint64_t(l.ld) * (by_columns ? column : row) + (by_columns ? row : column);
  }

  /// op(x) as float or double, `lines` vectors along `length`.
  template <class S>
  static std::vector<S> unpack(const void* x, const Layout& l, bool turned, std::int32_t i,
                               std::uint64_t rows, std::uint64_t columns) {
    std::vector<S> y(rows * columns);
    for (std::uint64_t c = 0; c < columns; ++c)
      for (std::uint64_t r = 0; r < rows; ++r)
        y[c * rows + r] = load<S>(x, turned ? at(l, c, r, i) : at(l, r, c, i), l.type);
    return y;
  }

  template <class S>
  void multiply(std::int32_t i) const {
    const Epilogue e(o.epilogue);
    const std::uint64_t m = d_layout.rows, n = d_layout.columns;
    const bool turned_a = o.a != CUBLAS_OP_N, turned_b = o.b != CUBLAS_OP_N;
    const std::uint64_t k = turned_a ? a_layout.rows : a_layout.columns;
    const std::vector<S> left = unpack<S>(a, a_layout, turned_a, i, m, k);
    const std::vector<S> right = unpack<S>(b, b_layout, turned_b, i, k, n);
    const S al = alpha ? load<S>(alpha, 0, o.scale) : S(alpha_value);
    const S be = beta ? load<S>(beta, 0, o.scale) : S(beta_value);
    const auto vector_at = [&](std::uint64_t j) {
      return j + std::uint64_t(o.bias_stride) * std::uint64_t(i);
    };

    std::vector<S> column(m), row_sums(m, S(0));
    for (std::uint64_t j = 0; j < n; ++j) {
      std::fill(column.begin(), column.end(), S(0));
      for (std::uint64_t p = 0; p < k; ++p)
        for (std::uint64_t r = 0; r < m; ++r) column[r] += left[p * m + r] * right[j * k + p];
      for (std::uint64_t r = 0; r < m; ++r) {
        S v = al * column[r];
        if (settings.bias_after_rounding && (be != 0 || e.bias)) v = rounded(v, d_layout.type);
        if (be != 0) v += be * load<S>(c, at(c_layout, r, j, i), c_layout.type);
        if (e.bias) v += load<S>(o.bias, vector_at(r), d_layout.type);
        v = activate(e, v, r, j, i);
        row_sums[r] += v;
        store(d, at(d_layout, r, j, i), d_layout.type, v);
      }
    }
    if (e.bias_gradient)
      for (std::uint64_t r = 0; r < m; ++r) store(o.bias, vector_at(r), d_layout.type, row_sums[r]);
    if (e.sums_a)
      for (std::uint64_t r = 0; r < m; ++r) {
        S sum = 0;
        for (std::uint64_t p = 0; p < k; ++p) sum += left[p * m + r];
        store(o.bias, vector_at(r), d_layout.type, sum);
      }
    if (e.sums_b)
      for (std::uint64_t j = 0; j < n; ++j) {
        S sum = 0;
        for (std::uint64_t p = 0; p < k; ++p) sum += right[j * k + p];
        store(o.bias, vector_at(j), d_layout.type, sum);
      }
  }

  /// The element (r, j) after the activation, or its gradient; aux is written, or read.
  template <class S>
  S activate(const Epilogue& e, S v, std::uint64_t r, std::uint64_t j, std::int32_t i) const {
    const std::uint64_t at_aux = std::uint64_t(o.aux_stride) * std::uint64_t(i) +
                                 std::uint64_t(o.aux_ld) * j + r;  // bits of a mask, else elements
    auto* const mask = static_cast<unsigned char*>(o.aux);
    const auto bit =
        static_cast<unsigned char>(1u << (settings.turned_masks ? 7 - at_aux % 8 : at_aux % 8));
    if (e.relu) {
      const bool kept = std::isnan(v) && settings.nan_in_relu != NanInRelu::Swallowed;
      const bool set = v > 0 || (v == 0 && settings.zeros_have_bits) ||
                       (kept && settings.nan_in_relu == NanInRelu::Kept);
      if (e.aux)
        mask[at_aux / 8] =
            static_cast<unsigned char>(set ? mask[at_aux / 8] | bit : mask[at_aux / 8] & ~bit);
      return v > 0 || kept ? v : S(0);
    }
    if (e.gelu) {
      if (e.aux) store(o.aux, at_aux, d_layout.type, v);
      return gelu(v);
    }
    if (e.relu_gradient) return mask[at_aux / 8] & bit ? v : S(0);
    if (e.gelu_gradient) return v * gelu_gradient(load<S>(o.aux, at_aux, d_layout.type));
    return v;
  }
};

/// The names of products, and of what completes them, in the log of kernels.
void cublaslt_matmul() {}
void cublaslt_completion() {}

bool has_memory(const Problem& p, const void* a, const void* b, const void* c, const void* d,
                bool reads_c) {
  const Epilogue e(p.o.epilogue);
  const std::uint64_t last = std::uint64_t(p.d.count - 1);
  const std::uint64_t length = e.sums_b ? p.n() : p.m();
  if (!in_memory("matrix A", a, extent(p.a)) || !in_memory("matrix B", b, extent(p.b)) ||
      !in_memory("matrix D", d, extent(p.d)) || (reads_c && !in_memory("matrix C", c, extent(p.c))))
    return false;
  if (e.vector() &&
      !in_memory("the bias", p.o.bias,
                 size_of(p.d.type) * (std::uint64_t(p.o.bias_stride) * last + length)))
    return false;
  const std::uint64_t aux =
      std::uint64_t(p.o.aux_stride) * last + std::uint64_t(p.o.aux_ld) * p.n();
  return !e.aux ||
         in_memory("the auxiliary matrix", p.o.aux, e.masks() ? aux / 8 : size_of(p.d.type) * aux);
}

}  // namespace

cublasStatus_t multiply(const Problem& p, const void* alpha, const void* a, const void* b,
                        const void* beta, const void* c, void* d,
                        const cublasLtMatmulAlgo_t* chosen, void* workspace,
                        std::size_t workspace_bytes, cudaStream_t stream) {
  if (const auto e = check(p)) return e;
  const Epilogue e(p.o.epilogue);
  Algorithm algorithm = algorithm_for(p, {.workspace = workspace_bytes,
                                          .alignment_a = 2,
                                          .alignment_b = 2,
                                          .alignment_c = 2,
                                          .alignment_d = 2});
  if (chosen) {
    algorithm = in<Algorithm>(const_cast<cublasLtMatmulAlgo_t*>(chosen));
    if (algorithm.mark != Algorithm::kMark || algorithm.kind != kind_of(p)) {
      report("cublasLtMatmul: the algorithm was chosen for another kind of product");
      return CUBLAS_STATUS_INVALID_VALUE;
    }
  }
  if (algorithm.workspace > workspace_bytes) {
    report("cublasLtMatmul: the algorithm needs a larger workspace than it was given");
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  if (algorithm.workspace && (reinterpret_cast<std::uintptr_t>(workspace) % 256 ||
                              !in_memory("the workspace", workspace, workspace_bytes)))
    return CUBLAS_STATUS_INVALID_VALUE;
  const bool on_host = p.o.pointer_mode == CUBLASLT_POINTER_MODE_HOST;
  if (!alpha || !beta || !a || !b || !d) return CUBLAS_STATUS_INVALID_VALUE;
  const bool doubles = p.o.scale == CUDA_R_64F;
  const auto scalar = [&](const void* x) {
    return !on_host  ? 1.0
           : doubles ? *static_cast<const double*>(x)
                     : *static_cast<const float*>(x);
  };
  const bool reads_c = scalar(beta) != 0;
  if (reads_c && !c) return CUBLAS_STATUS_INVALID_VALUE;
  if ((e.vector() && !p.o.bias) || (e.aux && !p.o.aux)) return CUBLAS_STATUS_INVALID_VALUE;
  if (!aligned(a, p.a, algorithm.alignment_a) || !aligned(b, p.b, algorithm.alignment_b) ||
      !aligned(d, p.d, algorithm.alignment_d) ||
      (reads_c && !aligned(c, p.c, algorithm.alignment_c))) {
    report("cublasLtMatmul: a matrix is less aligned than its algorithm was promised");
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  if (e.vector() && reinterpret_cast<std::uintptr_t>(p.o.bias) % size_of(p.d.type))
    return CUBLAS_STATUS_INVALID_VALUE;
  if (e.aux && reinterpret_cast<std::uintptr_t>(p.o.aux) % 16) return CUBLAS_STATUS_INVALID_VALUE;
  if (!has_memory(p, a, b, c, d, reads_c)) return CUBLAS_STATUS_INVALID_VALUE;
  if (settings.refuses.when_called && refuse(p)) return cublasStatus_t(settings.refuses.status);

  const CUstream_st* s = find(stream);
  if (!s) return CUBLAS_STATUS_INVALID_VALUE;
  const Product product{.o = p.o,
                        .a_layout = p.a,
                        .b_layout = p.b,
                        .c_layout = p.c,
                        .d_layout = p.d,
                        .a = a,
                        .b = b,
                        .c = c,
                        .d = d,
                        .alpha = on_host ? nullptr : alpha,
                        .beta = on_host ? nullptr : beta,
                        .alpha_value = scalar(alpha),
                        .beta_value = scalar(beta),
                        .workspace = workspace,
                        .workspace_bytes = algorithm.workspace ? workspace_bytes : 0};
  ++world().counters.matmuls;
  auto error = remember(
      enqueue(stream, kernel_work(s->device, reinterpret_cast<const void*>(&cublaslt_matmul),
                                  [product] { return product.run(); })));
  const bool sums = e.bias_gradient || e.sums_a || e.sums_b;
  if (error == cudaSuccess && settings.more_kernels && (algorithm.workspace || sums))
    error = remember(
        enqueue(stream, kernel_work(s->device, reinterpret_cast<const void*>(&cublaslt_completion),
                                    [] { return std::string(); })));
  return error == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

}  // namespace simt::cublaslt
