// Matrix products by cuBLASLt. Descriptors and the chosen algorithm are kept for every problem,
// because making them takes longer than many products.
#include <cublasLt.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <unordered_map>

#include "halftape/core/machine/warn.h"
#include "halftape/cuda/gemm/gemm.h"

namespace halftape::cuda {
namespace {

constexpr size_t kMostPlans = 4096;  // of a device; then all are dropped
constexpr uint64_t kAlignment = 16;  // bytes, the longest load of a thread

void check(cublasStatus_t result, const char* what) {
  if (result == CUBLAS_STATUS_SUCCESS) [[likely]]
    return;
  detail::fail("cuda: gemm: ", what, ": ", cublasLtGetStatusString(result), " (",
               cublasLtGetStatusName(result), ")");
}

std::atomic_flag& warned_of_refusal() {
  static std::atomic_flag warned;
  return warned;
}

/// True if the library has no kernel for the problem on this GPU. Some versions and GPUs say so by
/// an error that means something else, which is warned of once. A broken device is no such answer.
bool is_refusal(cublasStatus_t result) {
  if (result == CUBLAS_STATUS_NOT_SUPPORTED || result == CUBLAS_STATUS_ARCH_MISMATCH) return true;
  if (result != CUBLAS_STATUS_INVALID_VALUE && result != CUBLAS_STATUS_INTERNAL_ERROR &&
      result != CUBLAS_STATUS_ALLOC_FAILED)
    return false;
  if (!warned_of_refusal().test_and_set())
    warn(std::string("cuda: gemm: cuBLASLt refuses a product with ") +
         cublasLtGetStatusName(result) +
         "; such products run in halftape's own kernel, which is slower");
  return true;
}

/// A matrix as the library describes it, by columns. Ours by rows is its transposed one.
struct Side {
  int64_t type, rows, columns, ld, next;
  int64_t turned;     // ours is ordered by columns
  int64_t alignment;  // of every row or column, in bytes
  bool operator==(const Side&) const = default;
};

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
/// The vector that the epilogue adds or writes.
const char* vector_of(const Product& p) {
  return p.finish.bias_grad ? p.finish.bias_grad : p.bias.base;
}

/// Everything that the choice of an algorithm depends on.
struct Problem {
  Side d, a, b;
  int64_t count;
  int64_t epilogue, has_vector, aux_next;
  int64_t reduced_sums;
  bool operator==(const Problem&) const = default;
};
static_assert(std::has_unique_object_representations_v<Problem>);  // it is hashed as bytes
struct Hash {
  size_t operator()(const Problem& p) const {
    return std::hash<std::string_view>()({reinterpret_cast<const char*>(&p), sizeof p});
  }
};

template <auto destroy>
struct Destroy {
  template <class T>
  void operator()(T* p) const {
    (void)destroy(p);
  }
};
using Operation = std::unique_ptr<cublasLtMatmulDescOpaque_t, Destroy<cublasLtMatmulDescDestroy>>;
using MatrixLayout =
    std::unique_ptr<cublasLtMatrixLayoutOpaque_t, Destroy<cublasLtMatrixLayoutDestroy>>;
using Preference =
    std::unique_ptr<cublasLtMatmulPreferenceOpaque_t, Destroy<cublasLtMatmulPreferenceDestroy>>;

template <class T>
void set(const Operation& o, cublasLtMatmulDescAttributes_t attribute, const T& value) {
  check(cublasLtMatmulDescSetAttribute(o.get(), attribute, &value, sizeof value), "descriptor");
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

struct Plan {
  Operation operation;
  MatrixLayout d, a, b;
  std::optional<cublasLtMatmulAlgo_t> algorithm;  // none: the library cannot do it
  size_t workspace = 0;                           // bytes
};

/// cuBLASLt on one device.
class Library {
 public:
  explicit Library(const Context& context)
      : most_(context.properties().major >= 9 ? size_t{32} << 20 : size_t{4} << 20) {
    check(cublasLtCreate(&handle_), "starting cuBLASLt");
  }

  bool multiply(const Queue& q, const Product& p) {
    const Problem problem{side(p.d, p.m, p.n, p.count),
                          side(p.a, p.m, p.k, p.count, order_for(p.finish.bias_grad)),
                          side(p.b, p.k, p.n, p.count),
                          p.count,
                          epilogue_of(p),
                          vector_of(p) != nullptr,
                          p.finish.aux_next,
                          Context::reduced_sums && p.d.dtype == kFloat16};
    const float alpha = static_cast<float>(p.alpha), beta = static_cast<float>(p.beta);
    const bool doubles = p.a.dtype == kFloat64;
    const std::lock_guard lock(
        mutex_);  // until the end: addresses are set in the shared descriptor
    Plan& plan = plan_for(problem);
    if (!plan.algorithm) return false;
    if (vector_of(p)) set(plan.operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, vector_of(p));
    if (p.finish.aux) set(plan.operation, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, p.finish.aux);
    const cublasStatus_t result = cublasLtMatmul(
        handle_, plan.operation.get(), doubles ? static_cast<const void*>(&p.alpha) : &alpha,
        p.b.base, plan.b.get(), p.a.base, plan.a.get(),
        doubles ? static_cast<const void*>(&p.beta) : &beta, p.d.base, plan.d.get(), p.d.base,
        plan.d.get(), &*plan.algorithm, workspace(q, plan.workspace), plan.workspace, q.stream);
    if (is_refusal(result)) {  // after all
      plan.algorithm.reset();
      return false;
    }
    q.context.launched(
        "gemm", result == CUBLAS_STATUS_SUCCESS ? cudaSuccess : cudaPeekAtLastError(), q.stream);
    check(result, "multiplying");
    return true;
  }

  void forget() {
    const std::lock_guard lock(mutex_);
    plans_.clear();
  }

 private:
  Plan& plan_for(const Problem& p) {
    const auto known = plans_.find(p);
    if (known != plans_.end()) return known->second;
    if (plans_.size() >= kMostPlans) plans_.clear();
    Plan plan{operation(p), layout(p.d, p.count), layout(p.a, p.count), layout(p.b, p.count), {}};
    cublasLtMatmulHeuristicResult_t best{};
    int found = 0;
    const cublasStatus_t result = cublasLtMatmulAlgoGetHeuristic(
        handle_, plan.operation.get(), plan.b.get(), plan.a.get(), plan.d.get(), plan.d.get(),
        preference(p, most_).get(), 1, &best, &found);
    if (!is_refusal(result)) check(result, "choosing an algorithm");
    if (found > 0 && best.state == CUBLAS_STATUS_SUCCESS) {
      plan.algorithm = best.algo;
      plan.workspace = best.workspaceSize;
    }
    return plans_.emplace(p, std::move(plan)).first->second;
  }

  /// A workspace of at least so many bytes, one for each stream, whose work runs in order. Kept for
  /// ever, because captured graphs hold the address.
  void* workspace(const Queue& q, size_t bytes) {
    if (bytes == 0) return nullptr;
    BufferPtr& kept = workspaces_[{q.stream, std::bit_ceil(bytes)}];
    if (!kept) kept = q.context.allocate(std::bit_ceil(bytes));
    return kept->bytes();
  }

  cublasLtHandle_t handle_ = nullptr;
  const size_t most_;  // bytes of the largest workspace
  std::mutex mutex_;
  std::unordered_map<Problem, Plan, Hash> plans_;
  std::map<std::pair<cudaStream_t, size_t>, BufferPtr> workspaces_;
};

struct Libraries {
  std::mutex mutex;
  std::map<DeviceIndex, Library> of;
};
Libraries& libraries() {
  static auto* all = new Libraries;  // NOLINT: for ever, as contexts are
  return *all;
}
Library& library(const Context& context) {
  const std::lock_guard lock(libraries().mutex);
  return libraries().of.try_emplace(context.index(), context).first->second;
}

}  // namespace

void forget_plans() {
  warned_of_refusal().clear();
  const std::lock_guard lock(libraries().mutex);
  for (auto& [index, library] : libraries().of) library.forget();
}

bool multiply_in_library(const Queue& q, const Product& p) {
  if (std::max({p.m, p.n, p.k}) > INT32_MAX) return false;  // algorithms count in 32 bits
  if (order_of(p.m, p.n, p.d.down, p.d.right) == Order::ByRows)
    return library(q.context).multiply(q, p);
  // A result by columns is a transposed one by rows: dᵀ = bᵀ·aᵀ once more.
  Product turned = p;
  std::swap(turned.m, turned.n);
  std::swap(turned.a, turned.b);
  for (Matrices* x : {&turned.d, &turned.a, &turned.b}) std::swap(x->down, x->right);
  return library(q.context).multiply(q, turned);
}

}  // namespace halftape::cuda
