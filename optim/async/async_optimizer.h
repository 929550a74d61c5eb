// An optimizer whose steps run on a thread of their own while the next forward pass runs. As in
// RoundPipe (github.com/ITcarrot/RoundPipe), forward passes then see weights that are one step old,
// exactly one: what is computed does not depend on how the threads happen to run.
#pragma once
#include <memory>
#include <optional>
#include <vector>

#include "halftape/optim/optimizer.h"
#include "halftape/optim/state/seen_weight.h"

namespace halftape {
class QueueMoment;
class SideQueue;
}  // namespace halftape

namespace halftape::optim {

/// The points where the two threads of an asynchronous step wait for each other or pass something.
enum class Meeting : uint8_t {
  Wait,      // the caller waits for the step before this one
  Publish,   // the caller copies that step's result into the model
  HandOver,  // the caller starts the task on the worker
  Check,     // the worker unscales and checks
  Verdict,   // the worker publishes what it found
  Update,    // the worker clips and updates
  Await,     // the caller waits for the verdict
};
/// Sets a function that either thread calls before each meeting, for tests that try out schedules;
/// null for none. Returns the former one.
using MeetingHook = void (*)(Meeting);
MeetingHook set_meeting_hook(MeetingHook hook);

struct AsyncStepOptions {
  bool is_async = true;              // false: step() waits for its own end, so nothing is stale
  std::optional<double> scale = {};  // the gradients' scale: divide by it, check, skip if infinite
  std::optional<double> max_norm = {};  // then clip_grad_norm_
  double norm_type = 2;
  Array found_inf = {};  // with a scale: one float32; non-zero skips the step in any case
};

/// The result of a step's check.
enum class StepVerdict : uint8_t {
  Finite,       // the update follows; steps without a scale are not checked and are Finite, too
  NonFinite,    // a gradient is infinite or NaN; weights and state keep all their bits
  NoGradients,  // there was nothing to do
  Failed,       // an exception came first; the optimizer's next call throws it
};

/// A step that runs or has run on the worker. Copies refer to the same step.
class AsyncStep {
 public:
  /// 0 for an optimizer's first step.
  int64_t number() const;
  /// The divisor of its gradients; 1 without a scale.
  float scale() const;
  /// Waits for the check, which comes before the update.
  StepVerdict verdict() const;
  bool found_inf() const { return verdict() == StepVerdict::NonFinite; }
  bool applied() const { return verdict() == StepVerdict::Finite; }
  /// The index in AsyncOptimizer::parameters() of the first gradient that is infinite or NaN; none
  /// without such a gradient or without a scale. Waits as verdict() does.
  std::optional<size_t> nonfinite() const;

 private:
  friend class AsyncOptimizer;
  struct Record;
  AsyncStep(int64_t number, float scale);
  std::shared_ptr<Record> record_;
};

/// Everything that the next forward pass and the next step depend on.
struct AsyncOptimizerState {
  OptimizerState optimizer;    // its groups: the options of the next step
  std::vector<Array> weights;  // of the next forward pass
  std::vector<Array> newest;   // the start of the next update
  int64_t steps = 0;           // updates that have begun, at most 2^53
  bool stale = false;          // `newest` is one step ahead of `weights`; otherwise they are equal
};

/// Runs the steps of any optimizer on a worker thread:
///
///     AsyncOptimizer optimizer(std::make_unique<AdamW>(model->parameters(), AdamWOptions(1e-3)));
///     for (…) {
///       loss(model(x)).backward();
///       optimizer.step();        // returns at once; takes the gradients with it
///     }
///     optimizer.synchronize();   // the model has the newest weights
///
/// With w(0) the first weights, step k makes w(k+1) from w(k) and the gradients of forward pass k,
/// which has used w(k−1) (pass 0: w(0)). A step with `.is_async = false` returns when w(k+1) is
/// made, and pass k+1 uses it. At most one step is in flight: the next one waits for it.
///
/// A step takes its gradients and all hyper-parameters by value: a change after step() has returned
/// counts from the next step. It also draws the key of a parameter that is kept by
/// Weights::Stochastic, before it returns. The wrapped optimizer works on weights of its own; only
/// calls of this class write the model's. The next call that waits for the worker throws the
/// worker's exception, once; the failed step counts as skipped.
///
/// On a GPU the step also has a stream of its own: check and update run beside the kernels of the
/// next forward pass. Only the worker waits for the device, to read the verdict. A step inside a
/// Graph throws.
///
/// Calls come from one thread. Weights may be changed by hand after synchronize(), before the next
/// step(); a change while the model is one step behind is refused at the next call.
class AsyncOptimizer {
 public:
  /// Takes an optimizer over the model's parameters, with its present state. Throws if it has none,
  /// and if its step() needs a closure, which would run beside the model's next forward pass, or is
  /// collective: messages would then come in another order on each rank.
  explicit AsyncOptimizer(std::unique_ptr<Optimizer> optimizer);
  /// synchronize(); an exception becomes a warning.
  ~AsyncOptimizer();
  AsyncOptimizer(const AsyncOptimizer&) = delete;
  AsyncOptimizer& operator=(const AsyncOptimizer&) = delete;

  /// Starts one update of every parameter that has a gradient; grad() is undefined afterwards.
  /// Throws, changing nothing, the exception of the step before, and on invalid options or
  /// gradients.
  AsyncStep step(const AsyncStepOptions& options = {});
  /// Waits for the step in flight, and leaves the model's weights.
  void drain();
  /// drain(), then copies the newest weights into the model: the next forward pass is not stale.
  void synchronize();

  /// Forgets the model's gradients.
  void zero_grad();
  /// The model's parameters, and the options of the next step.
  std::vector<OptimizerParamGroup>& param_groups() { return groups_; }
  const std::vector<OptimizerParamGroup>& param_groups() const { return groups_; }
  /// The model's parameters, group by group.
  const std::vector<Tensor>& parameters() const { return model_; }
  /// The wrapped optimizer's id().
  uint64_t id() const { return inner_->id(); }
  /// Expires with this object: for objects that keep a plain pointer to it.
  std::weak_ptr<const void> lifetime() const { return inner_->lifetime(); }
  /// The number of calls of step().
  int64_t steps() const { return steps_; }

  /// Both drain(). state_dict() copies; load_state_dict() sets the model's weights, too. It throws,
  /// changing nothing, when groups, parameters, shapes or dtypes do not fit.
  AsyncOptimizerState state_dict();
  /// Throws, changing nothing, when the state does not fit.
  void load_state_dict(const AsyncOptimizerState& saved);

 private:
  struct StepTask;
  class Worker;
  void check_groups(const char* call) const;
  std::vector<std::vector<Tensor>> ready() const;
  void check(const AsyncStepOptions& options,
             const std::vector<std::vector<Tensor>>& updated) const;
  void check_weights(const char* call) const;
  void reconcile(const char* call);
  std::vector<Tensor> take_gradients();
  void run(const StepTask& task);
  void update(const StepTask& task);

  std::unique_ptr<SideQueue> queue_;  // the worker's, on a device that has queues
  std::unique_ptr<Optimizer> inner_;  // over newest_; only the worker uses it during a step
  std::vector<Tensor> model_, newest_;
  std::vector<OptimizerParamGroup> groups_;
  std::vector<SeenWeight> seen_;  // the model's weights when they last equalled newest_
  bool stale_ = false;            // the model is one step behind newest_
  int64_t steps_ = 0;
  std::unique_ptr<QueueMoment> done_;  // the end of the step in flight, in the worker's queue
  std::vector<Tensor> in_use_;         // memory of the caller's queue that this step reads
  std::unique_ptr<Worker> worker_;     // last: its thread ends before the other members
};

}  // namespace halftape::optim
