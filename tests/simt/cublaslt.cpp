// cuBLASLt as its header and its guide describe it: what a program links instead of libcublasLt.
// Products are summed in increasing k, in float32 (float64 for float64), and rounded once. It
// refuses what the real one refuses, and where that one promises little, gives as little, or what
// the settings say:
// * ReLU swallows NaN, as max(x, 0) does.
// * The workspace is overwritten with NaN when the product runs.
// * A bias gradient is overwritten, also when beta is 1.
// * With beta = 0, C is not read.
#include <cublasLt.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <new>

#include "runtime.h"

struct cublasLtContext {
  int device;
};

namespace simt {
namespace {

// ---------------------------------------------------------------- descriptors

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
  std::uint32_t kind = 0;  // the types, transpositions and the epilogue that it is for
};

/// The rig's structure that lies in one of the library's opaque ones.
template <class T, class Opaque>
T& in(Opaque* opaque) {
  static_assert(sizeof(T) <= sizeof opaque->data);
  return *std::launder(reinterpret_cast<T*>(opaque->data));
}
template <class T, class Opaque, class... Fields>
cublasStatus_t make(Opaque* opaque, Fields... fields) {
  new (opaque->data) T{fields...};
  return CUBLAS_STATUS_SUCCESS;
}
template <class T, class Opaque, class... Fields>
cublasStatus_t create(Opaque** made, Fields... fields) {
  if (!made) return CUBLAS_STATUS_INVALID_VALUE;
  *made = new Opaque;
  return make<T>(*made, fields...);
}
template <class Opaque>
cublasStatus_t destroy(Opaque* opaque) {
  delete opaque;
  return CUBLAS_STATUS_SUCCESS;
}

/// A field of a descriptor, to be read or written.
struct Field {
  void* address;
  std::size_t size;
};
template <class T>
Field field(T& value) {
  return {&value, sizeof value};
}
cublasStatus_t set(Field f, const void* value, std::size_t size) {
  if (!f.address || !value || size != f.size) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(f.address, value, size);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t get(Field f, void* value, std::size_t size, std::size_t* written) {
  if (written) *written = f.size;
  if (size == 0 && written) return CUBLAS_STATUS_SUCCESS;
  if (!f.address || !value || size != f.size) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(value, f.address, size);
  return CUBLAS_STATUS_SUCCESS;
}

Field field_of(Operation& o, cublasLtMatmulDescAttributes_t attribute) {
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_COMPUTE_TYPE:
      return field(o.compute);
    case CUBLASLT_MATMUL_DESC_SCALE_TYPE:
      return field(o.scale);
    case CUBLASLT_MATMUL_DESC_POINTER_MODE:
      return field(o.pointer_mode);
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return field(o.a);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return field(o.b);
    case CUBLASLT_MATMUL_DESC_TRANSC:
      return field(o.c);
    case CUBLASLT_MATMUL_DESC_FILL_MODE:
      return field(o.fill);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return field(o.epilogue);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return field(o.bias);
    case CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE:
      return field(o.bias_stride);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
      return field(o.bias_type);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
      return field(o.aux);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
      return field(o.aux_ld);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE:
      return field(o.aux_stride);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE:
      return field(o.aux_type);
    case CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET:
      return field(o.multiprocessors);
    case CUBLASLT_MATMUL_DESC_FAST_ACCUM:
      return field(o.fast_accumulation);
    default:
      return {nullptr, 0};
  }
}

Field field_of(Layout& l, cublasLtMatrixLayoutAttribute_t attribute) {
  switch (attribute) {
    case CUBLASLT_MATRIX_LAYOUT_TYPE:
      return field(l.type);
    case CUBLASLT_MATRIX_LAYOUT_ORDER:
      return field(l.order);
    case CUBLASLT_MATRIX_LAYOUT_ROWS:
      return field(l.rows);
    case CUBLASLT_MATRIX_LAYOUT_COLS:
      return field(l.columns);
    case CUBLASLT_MATRIX_LAYOUT_LD:
      return field(l.ld);
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
      return field(l.count);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
      return field(l.stride);
    default:
      return {nullptr, 0};
  }
}

Field field_of(Preference& p, cublasLtMatmulPreferenceAttributes_t attribute) {
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_SEARCH_MODE:
      return field(p.search_mode);
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      return field(p.workspace);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
      return field(p.reductions);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
      return field(p.alignment_a);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
      return field(p.alignment_b);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
      return field(p.alignment_c);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
      return field(p.alignment_d);
    case CUBLASLT_MATMUL_PREF_MAX_WAVES_COUNT:
      return field(p.waves);
    case CUBLASLT_MATMUL_PREF_IMPL_MASK:
      return field(p.implementations);
    default:
      return {nullptr, 0};
  }
}

// ---------------------------------------------------------------- what is supported

std::size_t size_of(int type) {
  return type == CUDA_R_16F || type == CUDA_R_16BF ? 2
         : type == CUDA_R_32F                      ? 4
         : type == CUDA_R_64F                      ? 8
                                                   : 0;
}
bool is_16bit(int type) { return size_of(type) == 2; }

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

bool known_epilogue(std::uint32_t e) {
  for (const auto known :
       {CUBLASLT_EPILOGUE_DEFAULT, CUBLASLT_EPILOGUE_RELU, CUBLASLT_EPILOGUE_RELU_AUX,
        CUBLASLT_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_RELU_BIAS, CUBLASLT_EPILOGUE_RELU_AUX_BIAS,
        CUBLASLT_EPILOGUE_DRELU, CUBLASLT_EPILOGUE_DRELU_BGRAD, CUBLASLT_EPILOGUE_GELU,
        CUBLASLT_EPILOGUE_GELU_AUX, CUBLASLT_EPILOGUE_GELU_BIAS, CUBLASLT_EPILOGUE_GELU_AUX_BIAS,
        CUBLASLT_EPILOGUE_DGELU, CUBLASLT_EPILOGUE_DGELU_BGRAD, CUBLASLT_EPILOGUE_BGRADA,
        CUBLASLT_EPILOGUE_BGRADB})
    if (e == std::uint32_t(known)) return true;
  return false;
}

/// A product with all its descriptors.
struct Problem {
  const Operation& o;
  const Layout &a, &b, &c, &d;
  std::uint64_t m() const { return d.rows; }
  std::uint64_t n() const { return d.columns; }
  std::uint64_t k() const { return o.a == CUBLAS_OP_N ? a.columns : a.rows; }
};

bool valid(const Layout& l) {
  const std::uint64_t least = l.order == CUBLASLT_ORDER_COL ? l.rows : l.columns;
  return l.rows && l.columns && l.ld >= std::int64_t(least) && l.count >= 1 && l.stride >= 0;
}

cublasStatus_t check_shapes(const Problem& p) {
  const bool turned_a = p.o.a != CUBLAS_OP_N, turned_b = p.o.b != CUBLAS_OP_N;
  for (const Layout* l : {&p.a, &p.b, &p.c, &p.d})
    if (!valid(*l) || l->count != p.d.count) return CUBLAS_STATUS_INVALID_VALUE;
  if ((turned_a ? p.a.columns : p.a.rows) != p.m() ||
      (turned_b ? p.b.rows : p.b.columns) != p.n() ||
      (turned_b ? p.b.columns : p.b.rows) != p.k() || p.c.rows != p.m() || p.c.columns != p.n())
    return CUBLAS_STATUS_INVALID_VALUE;
  if (p.d.count > 1 && p.d.stride == 0) return CUBLAS_STATUS_INVALID_VALUE;
  return CUBLAS_STATUS_SUCCESS;
}

/// INVALID_VALUE: nonsense. NOT_SUPPORTED: sensible, and the library has no kernel for it.
cublasStatus_t check(const Problem& p) {
  if (const auto e = check_shapes(p)) return e;
  const Operation& o = p.o;
  if (!known_epilogue(o.epilogue)) return CUBLAS_STATUS_INVALID_VALUE;
  const Epilogue e(o.epilogue);
  for (const Layout* l : {&p.a, &p.b, &p.c, &p.d})
    if (!size_of(l->type) || (l->order != CUBLASLT_ORDER_COL && l->order != CUBLASLT_ORDER_ROW))
      return CUBLAS_STATUS_NOT_SUPPORTED;
  if (p.a.type != p.b.type || p.c.type != p.d.type || p.c.order != p.d.order ||
      o.c != CUBLAS_OP_N || o.fill != CUBLAS_FILL_MODE_FULL)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  const bool doubles = p.a.type == CUDA_R_64F;
  const bool computes =
      doubles ? o.compute == CUBLAS_COMPUTE_64F || o.compute == CUBLAS_COMPUTE_64F_PEDANTIC
              : o.compute == CUBLAS_COMPUTE_32F || o.compute == CUBLAS_COMPUTE_32F_PEDANTIC ||
                    (p.a.type == CUDA_R_32F && (o.compute == CUBLAS_COMPUTE_32F_FAST_16F ||
                                                o.compute == CUBLAS_COMPUTE_32F_FAST_16BF ||
                                                o.compute == CUBLAS_COMPUTE_32F_FAST_TF32));
  if (!computes || o.scale != (doubles ? CUDA_R_64F : CUDA_R_32F))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  if (p.d.type != p.a.type && !(is_16bit(p.a.type) && p.d.type == CUDA_R_32F))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  if (o.pointer_mode != CUBLASLT_POINTER_MODE_HOST &&
      o.pointer_mode != CUBLASLT_POINTER_MODE_DEVICE)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  if (o.epilogue == CUBLASLT_EPILOGUE_DEFAULT) return CUBLAS_STATUS_SUCCESS;

  if (doubles || p.d.order != CUBLASLT_ORDER_COL) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (e.vector() && o.bias_type != -1 && o.bias_type != p.d.type)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  if ((e.sums_a || e.sums_b) && is_16bit(p.a.type) && p.d.type == CUDA_R_32F &&
      !settings.wide_bias_gradients)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  if (e.vector() && p.d.count > 1 && o.bias_stride == 0 && !e.bias)
    return CUBLAS_STATUS_NOT_SUPPORTED;  // the gradients of a batch, all in one place
  if (e.aux) {
    if (!e.masks() && o.aux_type != -1 && o.aux_type != p.d.type)
      return CUBLAS_STATUS_NOT_SUPPORTED;
    if (o.aux_ld % (e.masks() ? 128 : 8) || o.aux_ld < std::int64_t(p.m()))
      return CUBLAS_STATUS_NOT_SUPPORTED;
    if (p.d.count > 1 && o.aux_stride == 0) return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  return CUBLAS_STATUS_SUCCESS;
}

std::uint32_t kind_of(const Problem& p) {
  std::uint32_t kind = 0;
  for (const std::uint32_t part :
       {std::uint32_t(p.a.type), std::uint32_t(p.d.type), std::uint32_t(p.o.a),
        std::uint32_t(p.o.b), p.o.epilogue, std::uint32_t(p.d.order)})
    kind = kind * 1000003u + part;
  return kind;
}

constexpr std::uint64_t kWorkspace = 4096;  // of products with a long sum, if they may have it

Algorithm algorithm_for(const Problem& p, const Preference& wanted) {
  return {.workspace = p.k() >= 64 && wanted.workspace >= kWorkspace ? kWorkspace : 0,
          .alignment_a = wanted.alignment_a,
          .alignment_b = wanted.alignment_b,
          .alignment_c = wanted.alignment_c,
          .alignment_d = wanted.alignment_d,
          .kind = kind_of(p)};
}

/// Is a matrix as aligned as was said: its address, and each of its columns and members of a batch?
bool aligned(const void* address, const Layout& l, std::uint32_t alignment) {
  // What was said may exceed what a matrix of so few elements has; kernels use 16 bytes at most.
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

// ---------------------------------------------------------------- the product

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

// The tanh form: Hendrycks & Gimpel 2016, arXiv:1606.08415, section 2.
constexpr double kRootTwoOverPi = 0.79788456080286535588, kCubic = 0.044715;
template <class S>
S gelu(S x) {
  if (settings.gelu_by_erf) return S(0.5) * x * std::erfc(-x * S(0.70710678118654752440));
  return S(0.5) * x * (1 + std::tanh(S(kRootTwoOverPi) * (x + S(kCubic) * x * x * x)));
}
template <class S>
S gelu_gradient(S x) {
  if (settings.gelu_by_erf)
    return S(0.5) * std::erfc(-x * S(0.70710678118654752440)) +
           x * S(0.39894228040143267794) * std::exp(S(-0.5) * x * x);
  const S t = std::tanh(S(kRootTwoOverPi) * (x + S(kCubic) * x * x * x));
  return S(0.5) * (1 + t) +
         S(0.5) * x * (1 - t * t) * S(kRootTwoOverPi) * (1 + 3 * S(kCubic) * x * x);
}

/// A call of cublasLtMatmul on its way.
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
      const bool set = v > 0 || (kept && settings.nan_in_relu == NanInRelu::Kept);
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

/// The name under which products are logged as kernels.
void cublaslt_matmul() {}

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
  const auto error = remember(
      enqueue(stream, kernel_work(s->device, reinterpret_cast<const void*>(&cublaslt_matmul),
                                  [product] { return product.run(); })));
  return error == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

/// As call() for the runtime API.
template <class Body>
cublasStatus_t library_call(Body&& body) {
  const std::lock_guard lock(world().mutex);
  if (settings.devices == 0) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (world().devices[current_device].surfaced != cudaSuccess)
    return CUBLAS_STATUS_EXECUTION_FAILED;
  return body();
}

struct StatusText {
  cublasStatus_t status;
  const char *name, *text;
};
constexpr StatusText kStatuses[] = {
    {CUBLAS_STATUS_SUCCESS, "CUBLAS_STATUS_SUCCESS", "success"},
    {CUBLAS_STATUS_NOT_INITIALIZED, "CUBLAS_STATUS_NOT_INITIALIZED",
     "the library was not initialized"},
    {CUBLAS_STATUS_ALLOC_FAILED, "CUBLAS_STATUS_ALLOC_FAILED", "the resource allocation failed"},
    {CUBLAS_STATUS_INVALID_VALUE, "CUBLAS_STATUS_INVALID_VALUE",
     "an unsupported value or parameter was passed to the function"},
    {CUBLAS_STATUS_ARCH_MISMATCH, "CUBLAS_STATUS_ARCH_MISMATCH",
     "the function requires a feature absent from the device architecture"},
    {CUBLAS_STATUS_MAPPING_ERROR, "CUBLAS_STATUS_MAPPING_ERROR",
     "an access to GPU memory space failed"},
    {CUBLAS_STATUS_EXECUTION_FAILED, "CUBLAS_STATUS_EXECUTION_FAILED",
     "the function failed to launch on the GPU"},
    {CUBLAS_STATUS_INTERNAL_ERROR, "CUBLAS_STATUS_INTERNAL_ERROR", "an internal operation failed"},
    {CUBLAS_STATUS_NOT_SUPPORTED, "CUBLAS_STATUS_NOT_SUPPORTED",
     "the functionality requested is not supported"},
    {CUBLAS_STATUS_LICENSE_ERROR, "CUBLAS_STATUS_LICENSE_ERROR",
     "the functionality requested requires a license"},
};
const StatusText* find_status(cublasStatus_t status) {
  for (const StatusText& s : kStatuses)
    if (s.status == status) return &s;
  return nullptr;
}

}  // namespace
}  // namespace simt

using namespace simt;

extern "C" {

const char* cublasLtGetStatusName(cublasStatus_t status) {
  const auto* known = find_status(status);
  return known ? known->name : "unknown";
}
const char* cublasLtGetStatusString(cublasStatus_t status) {
  const auto* known = find_status(status);
  return known ? known->text : "unknown";
}
const char* cublasGetStatusName(cublasStatus_t status) { return cublasLtGetStatusName(status); }
const char* cublasGetStatusString(cublasStatus_t status) { return cublasLtGetStatusString(status); }
size_t cublasLtGetVersion() { return CUBLAS_VERSION; }

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  return library_call([&] {
    if (!handle) return CUBLAS_STATUS_INVALID_VALUE;
    if (forbidden_by_capture()) return CUBLAS_STATUS_NOT_INITIALIZED;
    *handle = new cublasLtContext{current_device};
    return CUBLAS_STATUS_SUCCESS;
  });
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescInit_internal(cublasLtMatmulDesc_t o, size_t size,
                                               cublasComputeType_t compute, cudaDataType_t scale) {
  if (!o || size < sizeof *o) return CUBLAS_STATUS_INVALID_VALUE;
  return make<Operation>(o, compute, scale);
}
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* o, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  const std::lock_guard lock(world().mutex);
  ++world().counters.matmul_descriptors;
  return create<Operation>(o, compute, scale);
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t o) { return destroy(o); }
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t o,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, size_t size) {
  if (!o) return CUBLAS_STATUS_INVALID_VALUE;
  return set(field_of(in<Operation>(o), attribute), value, size);
}
cublasStatus_t cublasLtMatmulDescGetAttribute(cublasLtMatmulDesc_t o,
                                              cublasLtMatmulDescAttributes_t attribute, void* value,
                                              size_t size, size_t* written) {
  if (!o) return CUBLAS_STATUS_INVALID_VALUE;
  return get(field_of(in<Operation>(o), attribute), value, size, written);
}

cublasStatus_t cublasLtMatrixLayoutInit_internal(cublasLtMatrixLayout_t l, size_t size,
                                                 cudaDataType type, uint64_t rows, uint64_t columns,
                                                 int64_t ld) {
  if (!l || size < sizeof *l) return CUBLAS_STATUS_INVALID_VALUE;
  return make<Layout>(l, type, std::int32_t{CUBLASLT_ORDER_COL}, rows, columns, ld);
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* l, cudaDataType type,
                                          uint64_t rows, uint64_t columns, int64_t ld) {
  return create<Layout>(l, type, std::int32_t{CUBLASLT_ORDER_COL}, rows, columns, ld);
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t l) { return destroy(l); }
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t l,
                                                cublasLtMatrixLayoutAttribute_t attribute,
                                                const void* value, size_t size) {
  if (!l) return CUBLAS_STATUS_INVALID_VALUE;
  return set(field_of(in<Layout>(l), attribute), value, size);
}
cublasStatus_t cublasLtMatrixLayoutGetAttribute(cublasLtMatrixLayout_t l,
                                                cublasLtMatrixLayoutAttribute_t attribute,
                                                void* value, size_t size, size_t* written) {
  if (!l) return CUBLAS_STATUS_INVALID_VALUE;
  return get(field_of(in<Layout>(l), attribute), value, size, written);
}

cublasStatus_t cublasLtMatmulPreferenceInit_internal(cublasLtMatmulPreference_t p, size_t size) {
  if (!p || size < sizeof *p) return CUBLAS_STATUS_INVALID_VALUE;
  return make<Preference>(p);
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* p) {
  return create<Preference>(p);
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p) { return destroy(p); }
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t p,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value, size_t size) {
  if (!p) return CUBLAS_STATUS_INVALID_VALUE;
  return set(field_of(in<Preference>(p), attribute), value, size);
}
cublasStatus_t cublasLtMatmulPreferenceGetAttribute(cublasLtMatmulPreference_t p,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    void* value, size_t size, size_t* written) {
  if (!p) return CUBLAS_STATUS_INVALID_VALUE;
  return get(field_of(in<Preference>(p), attribute), value, size, written);
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t o,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t results[],
                                              int* found) {
  return library_call([&] {
    if (!handle || !o || !a || !b || !c || !d || !preference || wanted < 1 || !results || !found)
      return CUBLAS_STATUS_INVALID_VALUE;
    ++world().counters.heuristics;
    *found = 0;
    const Problem p{in<Operation>(o), in<Layout>(a), in<Layout>(b), in<Layout>(c), in<Layout>(d)};
    if (const auto e = check(p)) return e;
    const Preference& asked = in<Preference>(preference);
    const std::uint32_t item = std::uint32_t(size_of(p.a.type));
    if (asked.alignment_a < item || asked.alignment_b < item ||
        asked.alignment_c < size_of(p.c.type) || asked.alignment_d < size_of(p.d.type))
      return CUBLAS_STATUS_NOT_SUPPORTED;
    results[0] = {};
    new (results[0].algo.data) Algorithm(algorithm_for(p, asked));
    results[0].workspaceSize = in<Algorithm>(&results[0].algo).workspace;
    results[0].state = CUBLAS_STATUS_SUCCESS;
    results[0].wavesCount = 1;
    *found = 1;
    return CUBLAS_STATUS_SUCCESS;
  });
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t o, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                              cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                              cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t* algorithm, void* workspace,
                              size_t workspace_bytes, cudaStream_t stream) {
  return library_call([&] {
    if (!handle || !o || !a_layout || !b_layout || !c_layout || !d_layout)
      return CUBLAS_STATUS_INVALID_VALUE;
    return multiply({in<Operation>(o), in<Layout>(a_layout), in<Layout>(b_layout),
                     in<Layout>(c_layout), in<Layout>(d_layout)},
                    alpha, a, b, beta, c, d, algorithm, workspace, workspace_bytes, stream);
  });
}

}  // extern "C"
