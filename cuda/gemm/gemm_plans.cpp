// Matrix products by cuBLASLt. Descriptors and the chosen algorithm are kept for every problem,
// because making them takes longer than many products.
#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdio>
#include <map>
#include <sstream>
#include <unordered_map>

#include "halftape/core/machine/os.h"
#include "halftape/core/machine/warn.h"
#include "halftape/cuda/gemm/gemm_descriptors.h"

namespace halftape::cuda {
namespace {

constexpr size_t kMostPlans = 4096;  // of a device; then all are dropped

std::atomic_flag& warned_of_refusal() {
  static std::atomic_flag warned;
  return warned;
}

/// True if the library has no kernel for the problem on this GPU. Some versions and GPUs say so by
/// an error that means something else. A broken device is no such answer.
bool is_refusal(cublasStatus_t result) {
  return result == CUBLAS_STATUS_NOT_SUPPORTED || result == CUBLAS_STATUS_ARCH_MISMATCH ||
         result == CUBLAS_STATUS_INVALID_VALUE;
}
/// True if the library may do the product another time: it lacked memory, or says no reason.
bool may_pass(cublasStatus_t result) {
  return result == CUBLAS_STATUS_ALLOC_FAILED || result == CUBLAS_STATUS_INTERNAL_ERROR;
}

/// Warns once of a product that is left to our own kernel, if the reason is an odd one.
void warn_of(cublasStatus_t result) {
  if (result == CUBLAS_STATUS_NOT_SUPPORTED || result == CUBLAS_STATUS_ARCH_MISMATCH) return;
  if (!warned_of_refusal().test_and_set())
    warn(std::string("cuda: gemm: cuBLASLt refuses a product with ") +
         cublasLtGetStatusName(result) +
         "; such products run in halftape's own kernel, which is slower");
}

struct Plan {
  Operation operation;
  MatrixLayout d, a, b;
  cublasStatus_t answer = CUBLAS_STATUS_SUCCESS;  // to whether the library can do it
  cublasLtMatmulAlgo_t algorithm{};               // if it can
  size_t workspace = 0;                           // bytes
};

/// A line of JSON for scripts/gpu_check. Sizes and dtypes are those of the library.
void log_plan(const Problem& p, const Plan& plan) {
  std::ostringstream line;
  const bool supported = plan.answer == CUBLAS_STATUS_SUCCESS;
  line << std::boolalpha << "{\"plan\": \"" << (supported ? "supported" : "refused")
       << "\", \"status\": \"" << cublasLtGetStatusName(plan.answer)
       << "\", \"epilogue\": " << p.epilogue << ", \"factors\": " << p.a.type
       << ", \"result\": " << p.d.type << ", \"m\": " << p.d.rows << ", \"n\": " << p.d.columns
       << ", \"k\": " << (p.b.turned ? p.b.rows : p.b.columns) << ", \"count\": " << p.count
       << ", \"turned_a\": " << (p.b.turned != 0) << ", \"turned_b\": " << (p.a.turned != 0)
       << ", \"workspace\": " << plan.workspace << "}\n";
  std::fputs(line.str().c_str(), stderr);
}

/// cuBLASLt on one device.
class Library {
 public:
  explicit Library(const Context& context)
      : most_(context.properties().major >= 9 ? size_t{32} << 20 : size_t{4} << 20) {
    check(cublasLtCreate(&handle_), "starting cuBLASLt");
  }

  Outcome multiply(const Queue& q, const Product& p) {
    const cublasStatus_t result = attempts(q, p);
    if (result == CUBLAS_STATUS_SUCCESS) return Outcome::Done;
    (void)cudaGetLastError();
    warn_of(result);  // without the lock: the program's handler may multiply, too
    return may_pass(result) ? Outcome::NotNow : Outcome::Refused;
  }

  void forget() {
    const std::lock_guard lock(mutex_);
    plans_.clear();
  }

 private:
  /// As attempt(), and once more where memory may be lacking.
  cublasStatus_t attempts(const Queue& q, const Product& p) {
    const Problem problem = problem_of(p, Context::reduced_sums);
    const std::lock_guard lock(mutex_);  // addresses are set in the shared descriptor
    const cublasStatus_t first = attempt(q, p, problem);
    if (!may_pass(first) || is_captured(q.stream)) return first;
    q.context.empty_cache();  // the library asks the device itself for memory
    return attempt(q, p, problem);
  }
  /// Success, or why the library does not multiply; throws all else.
  cublasStatus_t attempt(const Queue& q, const Product& p, const Problem& problem) {
    auto known = plans_.find(problem);
    if (known == plans_.end()) {
      Plan made = new_plan(problem);
      if (may_pass(made.answer)) return made.answer;
      if (plans_.size() >= kMostPlans) plans_.clear();
      known = plans_.emplace(problem, std::move(made)).first;
    }
    Plan& plan = known->second;
    if (plan.answer != CUBLAS_STATUS_SUCCESS) return plan.answer;
    if (vector_of(p)) set(plan.operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, vector_of(p));
    if (p.finish.aux) set(plan.operation, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, p.finish.aux);
    const float alpha = static_cast<float>(p.alpha), beta = static_cast<float>(p.beta);
    const bool doubles = p.a.dtype == kFloat64;
    const cublasStatus_t result = cublasLtMatmul(
        handle_, plan.operation.get(), doubles ? static_cast<const void*>(&p.alpha) : &alpha,
        p.b.base, plan.b.get(), p.a.base, plan.a.get(),
        doubles ? static_cast<const void*>(&p.beta) : &beta, p.d.base, plan.d.get(), p.d.base,
        plan.d.get(), &plan.algorithm, workspace(q, plan.workspace), plan.workspace, q.stream);
    if (is_refusal(result)) plan.answer = result;  // after all
    if (is_refusal(result) || may_pass(result)) return result;
    q.context.launched(
        "gemm", result == CUBLAS_STATUS_SUCCESS ? cudaSuccess : cudaPeekAtLastError(), q.stream);
    check(result, "multiplying");
    return result;
  }

  Plan new_plan(const Problem& p) {
    Plan plan{operation(p), layout(p.d, p.count), layout(p.a, p.count), layout(p.b, p.count)};
    cublasLtMatmulHeuristicResult_t best{};
    int found = 0;
    plan.answer = cublasLtMatmulAlgoGetHeuristic(handle_, plan.operation.get(), plan.b.get(),
                                                 plan.a.get(), plan.d.get(), plan.d.get(),
                                                 preference(p, most_).get(), 1, &best, &found);
    if (!is_refusal(plan.answer) && !may_pass(plan.answer))
      check(plan.answer, "choosing an algorithm");
    if (plan.answer == CUBLAS_STATUS_SUCCESS && found > 0) plan.answer = best.state;
    if (plan.answer == CUBLAS_STATUS_SUCCESS && found == 0)
      plan.answer = CUBLAS_STATUS_NOT_SUPPORTED;
    plan.algorithm = best.algo;
    plan.workspace = best.workspaceSize;
    if (logs_gemm()) log_plan(p, plan);
    return plan;
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
  std::unordered_map<Problem, Plan, ProblemHash> plans_;
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

bool logs_gemm() {
  static const bool yes = os::is_asked_for("HALFTAPE_CUDA_LOG");
  return yes;
}

void forget_plans() {
  warned_of_refusal().clear();
  const std::lock_guard lock(libraries().mutex);
  for (auto& [index, library] : libraries().of) library.forget();
}

Outcome multiply_in_library(const Queue& q, const Product& p) {
  if (std::max({p.m, p.n, p.k}) > INT32_MAX) return Outcome::Refused;  // it counts in 32 bits
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
