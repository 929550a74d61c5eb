// An optimizer whose steps run on a thread of their own while the next forward pass runs. As in
// RoundPipe (github.com/ITcarrot/RoundPipe), forward passes then see weights that are one step old,
// exactly one: what is computed does not depend on how the threads happen to run.
#pragma once
#include <memory>
#include <optional>
#include <vector>

#include "halftape/optim/async/worker.h"
#include "halftape/optim/optimizer.h"

namespace halftape {
class QueueMoment;
class SideQueue;
}  // namespace halftape

namespace halftape::optim {

/// What a step is told besides its gradients.
struct AsyncStepOptions {
  bool is_async = true;              // false: staleness 0, step() returns when all is done
  std::optional<double> scale = {};  // gradients are this many times too large: divide, check, skip
  std::optional<double> max_norm = {};  // then clip_grad_norm_
  double norm_type = 2;
  Array found_inf = {};  // with a scale: one float32; non-zero: skip, whatever the gradients are
};

/// What the check of a step found.
enum class StepVerdict : uint8_t {
  Finite,       // the update follows; also of a step without a scale, which is not checked
  NonFinite,    // a gradient is infinite or NaN: weights and state stay bit for bit as they were
  NoGradients,  // there was nothing to do
  Failed,       // an exception came first; the optimizer's next call throws it
};

/// A step that was handed over. Copies speak of the same step.
class AsyncStep {
 public:
  /// 0 for an optimizer's first step.
  int64_t number() const { return record_->number; }
  /// By what its gradients were divided; 1 for a step without a scale.
  float scale() const { return record_->scale; }
  /// Waits for the check, which comes before the update.
  StepVerdict verdict() const;
  bool found_inf() const { return verdict() == StepVerdict::NonFinite; }
  bool applied() const { return verdict() == StepVerdict::Finite; }
  /// Where the first gradient that is infinite or NaN stands in AsyncOptimizer::parameters(). None
  /// when there is none, and for a step without a scale. Waits as verdict() does.
  std::optional<size_t> nonfinite() const;

 private:
  friend class AsyncOptimizer;
  struct Record {
    int64_t number = 0;
    float scale = 1;
    StepVerdict verdict = StepVerdict::Failed;  // holds once `checked` is raised, and likewise …
    std::optional<size_t> nonfinite;
    Fence checked;
  };
  AsyncStep(int64_t number, float scale) : record_(std::make_shared<Record>()) {
    record_->number = number;
    record_->scale = scale;
  }
  std::shared_ptr<Record> record_;
};

/// Everything that the next forward pass and the next step depend on.
struct AsyncOptimizerState {
  OptimizerState optimizer;            // groups: the options of the next step
  std::vector<Array> weights, newest;  // what the next forward pass reads, and what it will lead to
  int64_t steps = 0;
  bool stale = false;  // is `newest` one step ahead of `weights`?
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
/// A step is a ticket: gradients and all hyper-parameters go with it by value, and what is changed
/// after step() has returned counts from the next step. The wrapped optimizer works on weights of
/// its own; the model's are written only inside calls of this class. An exception of the worker is
/// thrown by the next call that waits for it, once; the failed step counts as skipped.
///
/// On a GPU the step also has a stream of its own: check and update run beside the kernels of the
/// next forward pass. Only the worker waits for the device, for the verdict. Inside a Graph, which
/// asks for no verdict, a step is refused.
///
/// Calls come from one thread. Weights may be changed by hand after synchronize(), before the next
/// step(); a change while the model is one step behind is refused at the next call.
class AsyncOptimizer {
 public:
  /// Takes an optimizer over the model's parameters, with the state it has.
  explicit AsyncOptimizer(std::unique_ptr<Optimizer> optimizer);
  /// synchronize(); what that throws is given to warn().
  ~AsyncOptimizer();
  AsyncOptimizer(const AsyncOptimizer&) = delete;
  AsyncOptimizer& operator=(const AsyncOptimizer&) = delete;

  /// Hands over one update of every parameter that has a gradient; grad() is undefined afterwards.
  /// Throws, changing nothing, what the step before has thrown, and when options or gradients make
  /// no sense.
  AsyncStep step(const AsyncStepOptions& options = {});
  /// Waits for the step in flight. The model's weights stay as they are.
  void drain();
  /// drain(), and gives the model the newest weights: the next forward pass is not stale.
  void synchronize();

  /// Forgets all gradients that were not handed over.
  void zero_grad();
  /// The model's parameters, and the options that the next step takes with it.
  std::vector<OptimizerParamGroup>& param_groups() { return groups_; }
  const std::vector<OptimizerParamGroup>& param_groups() const { return groups_; }
  /// The model's parameters, group by group.
  const std::vector<Tensor>& parameters() const { return model_; }
  /// Optimizer::id() of the wrapped one.
  uint64_t id() const { return inner_->id(); }
  /// How many steps were handed over.
  int64_t steps() const { return steps_; }

  /// Drains; deep copies. load throws, changing nothing, when groups, parameters, shapes or dtypes
  /// do not fit; it sets the model's weights, too.
  AsyncOptimizerState state_dict();
  void load_state_dict(const AsyncOptimizerState& saved);

 private:
  struct Ticket;
  void check(const AsyncStepOptions& options) const;
  void reconcile(const char* call);
  std::vector<Tensor> take_gradients();
  void run(const Ticket& ticket);
  void update(const Ticket& ticket);

  std::unique_ptr<SideQueue> queue_;  // the worker's, of a device that has queues
  std::unique_ptr<Optimizer> inner_;  // over newest_; the worker's while a step is in flight
  std::vector<Tensor> model_, newest_;
  std::vector<OptimizerParamGroup> groups_;
  std::vector<uint64_t> versions_;  // of the model's weights, when both sides last agreed on them
  bool stale_ = false;              // the model is one step behind newest_
  int64_t steps_ = 0;
  std::unique_ptr<QueueMoment> done_;  // the step in flight is, once the worker has given it out
  std::vector<Tensor> in_use_;         // by that step, but of the caller's queue
  Worker worker_;                      // last: ends before what it works on
};

}  // namespace halftape::optim
