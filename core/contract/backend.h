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
#include "halftape/core/contract/tasks/attention.h"
#include "halftape/core/contract/tasks/dropout.h"
#include "halftape/core/contract/tasks/gemm.h"
#include "halftape/core/contract/tasks/index.h"
#include "halftape/core/contract/tasks/loss.h"
#include "halftape/core/contract/tasks/norm.h"
#include "halftape/core/contract/tasks/update.h"
#include "halftape/core/contract/windows.h"
#include "halftape/core/random/random.h"

namespace halftape {

/// A call that a device may join with its neighbours, by its task.
using Call =
    std::variant<const CrossEntropy*, const CrossEntropyGrad*, const MlpLoss*, const CheckedScale*,
                 const GradientCheck*, const ListNorm*, const ListUpdate*, const Transition*,
                 const Push*, const Attention*, const AttentionGrad*, const DropoutTask*>;

class Backend {
 public:
  virtual ~Backend() = default;
#define HALFTAPE_CALL = 0
#include "halftape/core/contract/calls.inc"

  void argmax(const Array& y, const Array& x, int dim) { arg_extremum(y, x, dim, false); }
  void argmin(const Array& y, const Array& x, int dim) { arg_extremum(y, x, dim, true); }
  void scatter_add(const Array& y, const Array& g, int dim, const Array& index,
                   IndexUse use = {"scatter_add"});
  void check_finite(std::span<const Array> xs, const Array& found_inf, const Array& inv_scale = {},
                    const Array& first = {});
  void unscale(std::span<const Array> grads, const Array& inv_scale, const Array& found_inf = {},
               const Array& first = {});

  /// Runs the calls one after the other, or at once on a device that can.
  template <class... Task>
  void run(const Task&... tasks) {
    const Call calls[] = {&tasks...};
    run_calls(calls);
  }
  void run_calls(std::span<const Call> calls);

  /// Null from a device that carries out calls before they return.
  virtual Queues* queues() { return nullptr; }
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
  [[nodiscard]] BackendGuard(Device device, Backend& backend);
  ~BackendGuard();
  BackendGuard(const BackendGuard&) = delete;
  BackendGuard& operator=(const BackendGuard&) = delete;

 private:
  std::pair<Device, Backend*> before_;
};

}  // namespace halftape
