// The contract: what a device can do. The caller allocates outputs and checks arguments (shapes,
// dtypes, devices). Calls may run asynchronously; only read(), synchronize() and copy_across() to
// the host wait. Every kernel loads its elements, computes in float (double for float64, int64 for
// integers), and rounds once when it stores. Reductions and products accumulate in float (double),
// in an order that depends on the logical shape alone: same bits for any thread count, alignment
// and layout.
#pragma once
#include <memory>
#include <span>
#include <utility>
#include <variant>

#include "halftape/core/contract/queue.h"
#include "halftape/core/contract/tasks/gemm.h"
#include "halftape/core/contract/tasks/index.h"
#include "halftape/core/contract/tasks/loss.h"
#include "halftape/core/contract/tasks/norm.h"
#include "halftape/core/contract/tasks/update.h"
#include "halftape/core/contract/windows.h"
#include "halftape/core/random/random.h"

namespace halftape {

/// A call that a device may join with its neighbours, by its task.
using Call = std::variant<const CrossEntropy*, const CrossEntropyGrad*, const MlpLoss*,
                          const LossScaling*, const GradientCheck*, const ListNorm*,
                          const ListUpdate*, const Transition*, const Push*>;

class Backend {
 public:
  virtual ~Backend() = default;
  virtual const char* name() const = 0;

  // Memory. copy: any strides, any dtypes; this is also the cast. copy_across: contiguous, of one
  // dtype, between host and device or between two devices; the host's side may be changed as soon
  // as it returns, unless that is pinned and the call non-blocking.
  virtual BufferPtr allocate(size_t bytes) = 0;
  virtual BufferPtr allocate_pinned(size_t bytes);  // throws where there is no such memory
  virtual void copy(const Array& to, const Array& from) = 0;
  virtual void copy_across(const Array& to, const Array& from, bool non_blocking) = 0;
  virtual void read(void* host, const Array& from) = 0;  // contiguous elements, in from's dtype
  virtual void fill(const Array& to, Scalar value) = 0;
  virtual void random(const Array& y, Distribution kind, double a, double b, RandomKey key) = 0;

  // Element-wise. Inputs have y's shape; broadcasting is a stride of 0. Dtypes may differ from each
  // other. Integers wrap around; an integer divided by zero throws where a kernel can, else is 0.
  virtual void unary(OpId op, const Array& y, const Array& x, const Params<Scalar>& p) = 0;
  virtual void unary_grad(OpId op, const Array& dx, const Array& g, const Array& saved,
                          Params<double> p) = 0;
  virtual void binary(OpId op, const Array& y, const Array& a, const Array& b) = 0;
  virtual void where(const Array& y, const Array& condition, const Array& a, const Array& b) = 0;

  // reduce: over `dims` (wrapped, sorted) of x; y has the kept dimensions. arg_extremum: y (int64)
  // is the position of the largest (`least`: the least) element, the first of equals; NaN wins.
  virtual void reduce(OpId op, const Array& y, const Array& x, const Dims& dims) = 0;
  virtual void arg_extremum(const Array& y, const Array& x, int dim, bool least) = 0;
  void argmax(const Array& y, const Array& x, int dim) { arg_extremum(y, x, dim, false); }
  void argmin(const Array& y, const Array& x, int dim) { arg_extremum(y, x, dim, true); }
  // Running reductions: y[i] is the reduction (op of ReduceOps) of x[0] … x[i] along `dim`, from
  // the other end if `reverse`. y has x's shape. Sums and products of floats are kept in double.
  virtual void scan(OpId op, const Array& y, const Array& x, int dim, bool reverse) = 0;
  // The order that sorts x along `dim`: y (int64, x's shape) holds positions; if it is shorter
  // along `dim`, the first ones. Stable both ways; NaN is greater than every number, zeros are
  // equal.
  virtual void argsort(const Array& y, const Array& x, int dim, bool descending) = 0;

  // Products (tasks/gemm.h). A product that a library computes may have other last digits in
  // another layout or alignment.
  virtual void gemm(const Gemm& g) = 0;

  // Rows, along the last dimension; leading dimensions are free.
  virtual void softmax(const Array& y, const Array& x, bool log) = 0;
  virtual void softmax_grad(const Array& dx, const Array& g, const Array& y, bool log) = 0;
  virtual void cross_entropy(const CrossEntropy& c) = 0;  // tasks/loss.h
  // Rows of C elements (tasks/norm.h). row_norm writes mean and rstd, one for each row, and
  // row_norm_grad reads them. Without mean: y = x·rstd·weight, rstd = 1/√(mean of x² + eps).
  virtual void row_norm(const Array& y, const Norm& norm) = 0;
  virtual void row_norm_grad(const NormGrads& d, const Array& g, const Norm& norm) = 0;
  // x (N, C, S), with statistics and weights for each channel. In training, mean and rstd ← those
  // of the batch, which also enter `running`. Otherwise they are given, and constants to the
  // gradient.
  virtual void batch_norm(const Array& y, const Norm& norm, bool training,
                          const RunningStats& running) = 0;
  virtual void batch_norm_grad(const NormGrads& d, const Array& g, const Norm& norm,
                               bool training) = 0;

  // Windows over the last dimensions. fold: y (…, lengths…) becomes the sum of the elements of g
  // (…, sizes…, windows…) that lie on it, in the row-major order of their positions in the window.
  // argmax_windows: y (…, windows…), int64: the place of the first largest element of each window
  // of x (…, lengths…), as a position in the flattened windowed dimensions. NaN wins; −1 for a
  // window that covers nothing.
  virtual void fold(const Array& y, const Array& g, const Windows& windows) = 0;
  virtual void argmax_windows(const Array& y, const Array& x, const Windows& windows) = 0;

  // Indexing along `dim`. index: int64, checked by the kernel before anything is written (throws,
  // naming value and position; dimensions along which the index repeats by a stride of 0 count
  // once). gather: y[i…] = x[… index[i…] …]; scatter: y[… index[i…] …] = x[i…], of equal positions
  // the last in the order of i stays; scatter_reduce: y[… index[i…] …] becomes its reduction (op of
  // ReduceOps) with g[i…], in the order of i, rounded once; scatter_add: the sum.
  virtual void gather(const Array& y, const Array& x, int dim, const Array& index,
                      IndexUse use = {"gather"}) = 0;
  virtual void scatter(const Array& y, const Array& x, int dim, const Array& index,
                       IndexUse use = {"scatter"}) = 0;
  virtual void scatter_reduce(OpId op, const Array& y, const Array& g, int dim, const Array& index,
                              IndexUse use = {"scatter_reduce"}) = 0;
  void scatter_add(const Array& y, const Array& g, int dim, const Array& index,
                   IndexUse use = {"scatter_add"});
  // Indices into neighbouring dimensions of these sizes, all of y's shape and checked as above, as
  // one index into the flattened dimensions. Negative ones count from the end. y: contiguous.
  virtual void flat_index(const Array& y, std::span<const Array> indices, const Shape& sizes,
                          IndexUse use) = 0;
  // y (n, x.dim()), contiguous: positions of the n elements of x that are not zero, in row-major
  // order.
  virtual void nonzero(const Array& y, const Array& x) = 0;

  // Lists of arrays in one launch, and a state that moves by a rule (tasks/update.h).
  virtual void check(const GradientCheck& c) = 0;
  void check_finite(std::span<const Array> xs, const Array& found_inf, const Array& inv_scale = {},
                    const Array& first = {});
  void unscale(std::span<const Array> grads, const Array& inv_scale, const Array& found_inf = {},
               const Array& first = {});
  virtual void list_norm(const ListNorm& n) = 0;
  virtual void update(std::span<const UpdateSlot> slots, const UpdateRule& rule,
                      const StepControl& control) = 0;
  virtual void transition(const Transition& t) = 0;

  /// Does what the calls ask, one after the other. A device that can does them at once.
  template <class... Task>
  void run(const Task&... tasks) {
    const Call calls[] = {&tasks...};
    run_calls(calls);
  }
  void run_calls(std::span<const Call> calls);
  /// Does the calls at once, with the results of doing them one after the other; or returns false,
  /// and has done nothing. core/capture/peephole.cpp lists the neighbours that come together.
  virtual bool try_fused(std::span<const Call>) { return false; }

  virtual void synchronize() = 0;
  // Null from a device that runs calls before they return. now: this thread's queue.
  virtual std::unique_ptr<Recording> new_recording() { return nullptr; }
  virtual std::unique_ptr<QueueMoment> now() { return nullptr; }
  virtual std::unique_ptr<SideQueue> new_side_queue() { return nullptr; }
};

/// The backend of a device; throws with the reason when this build or machine has none.
Backend& backend(Device);

// One per device folder.
Backend& cpu_backend();
Backend& cuda_backend(Device);

/// Replaces the backend of a device type for this process, for tests that watch calls; returns the
/// former one.
Backend* swap_backend(DeviceType, Backend*);

/// The backend of a device for this thread alone, for as long as it lives.
class [[nodiscard]] BackendGuard {
 public:
  BackendGuard(Device device, Backend& backend);
  ~BackendGuard();
  BackendGuard(const BackendGuard&) = delete;
  BackendGuard& operator=(const BackendGuard&) = delete;

 private:
  std::pair<Device, Backend*> before_;
};

}  // namespace halftape
