// The base of the learning-rate schedules. Values are those of torch.optim.lr_scheduler, epoch by
// epoch; spelled as LibTorch's, whose only schedules are StepLR and ReduceLROnPlateauScheduler.
#pragma once
#include <concepts>
#include <cstdint>
#include <vector>

#include "halftape/optim/optimizer.h"
#include "halftape/optim/schedulers/scheduler_state.h"

namespace halftape::optim {

/// The groups whose learning rates a schedule sets: those of an Optimizer or an AsyncOptimizer,
/// which must live as long as the schedule.
class ScheduledGroups {
 public:
  template <class O>
  requires requires(O& optimizer) {
    { optimizer.param_groups() } -> std::same_as<std::vector<OptimizerParamGroup>&>;
  }
  ScheduledGroups(O& optimizer) : groups_(&optimizer.param_groups()) {}  // NOLINT: of an optimizer
  std::vector<OptimizerParamGroup>& operator*() const { return *groups_; }
  std::vector<OptimizerParamGroup>* operator->() const { return groups_; }
  bool operator==(const ScheduledGroups&) const = default;

 private:
  std::vector<OptimizerParamGroup>* groups_;
};

/// A schedule gives every group the learning rate of epoch 0 when it is made, and that of the next
/// epoch at each step():
///
///     StepLR schedule(optimizer, 30);
///     for (…) {
///       optimizer.step();
///       schedule.step();
///     }
///
/// An epoch is what you make of it: an update for most of them here, a pass over the data for
/// others. Several schedules may move one optimizer; most of them multiply the rate that they find.
/// Where a GradScaler may skip steps, see amp/tools/applied_steps.h.
///
/// A schedule of your own overrides get_lrs(), and says initial_step() in its constructor unless
/// its first step() is to be epoch 0.
class LRScheduler {
 public:
  explicit LRScheduler(ScheduledGroups optimizer);
  virtual ~LRScheduler() = default;

  /// The next epoch. After the optimizer's step.
  virtual void step();
  /// Of each group, as this schedule set it last.
  const std::vector<double>& get_last_lr() const { return last_lr_; }
  /// −1 before epoch 0.
  int64_t last_epoch() const { return step_count_ - 1; }

  /// Every number that the next step depends on, options among them: a resumed run goes on bit for
  /// bit. Functions are not in it, nor are the learning rates and momenta, which stand in the
  /// optimizer's state: make optimizer and schedule, then load both. load throws, changing nothing,
  /// when the numbers are not the expected ones; the error lists every difference.
  SchedulerState state_dict() const;
  void load_state_dict(const SchedulerState& saved);

 protected:
  /// Of each group for epoch step_count_.
  virtual std::vector<double> get_lrs() = 0;
  /// The same for epoch 0, whatever rates the groups have.
  virtual std::vector<double> first_lrs() { return get_lrs(); }
  /// Names what state_dict() saves. An override calls this one, too.
  virtual void fields(SchedulerFields& fields);

  /// Epoch 0.
  void initial_step();
  /// Epoch 0 again, in the middle of a training.
  virtual void restart();
  /// Forgets that epoch 0 was, for a schedule whose time is still to come.
  virtual void rewind() { step_count_ = 0; }

  std::vector<double> get_current_lrs() const;
  /// All of them multiplied.
  std::vector<double> scaled(const std::vector<double>& lrs, double factor) const;
  void set_lrs(const std::vector<double>& lrs);
  /// One value for each group: `values`, or copies of its only one.
  std::vector<double> per_group(const char* name, const std::vector<double>& values) const;

  ScheduledGroups groups_;
  std::vector<double> base_lrs_;  // before any schedule
  std::vector<double> last_lr_;
  int64_t step_count_ = 0;  // of step() so far; within get_lrs() the epoch it is to give
  bool is_initial_ = false;

 private:
  friend class SequentialLR;
  friend class ChainedScheduler;
};

}  // namespace halftape::optim
