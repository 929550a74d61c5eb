// The base of the learning-rate schedules. Values are those of torch.optim.lr_scheduler, epoch by
// epoch; spelled as LibTorch's, whose only schedules are StepLR and ReduceLROnPlateauScheduler.
#pragma once
#include <concepts>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "halftape/optim/optimizer.h"
#include "halftape/optim/state/state_fields.h"

namespace halftape::optim {

/// The numbers of a schedule by name; lists are "name.0", "name.1" ….
using SchedulerState = StateFields::Numbers;

/// The groups whose learning rates a schedule sets: those of an Optimizer or AsyncOptimizer.
class ScheduledGroups {
 public:
  template <class O>
  requires requires(O& optimizer) {
    { optimizer.param_groups() } -> std::same_as<std::vector<OptimizerParamGroup>&>;
  }
  ScheduledGroups(O& optimizer)  // NOLINT: of an optimizer
      : groups_(&optimizer.param_groups()), alive_(optimizer.lifetime()) {}
  /// Throws when the optimizer is gone.
  std::vector<OptimizerParamGroup>& operator*() const {
    HALFTAPE_CHECK(!alive_.expired(),
                   "LRScheduler: its optimizer is gone, or an AsyncOptimizer has taken it; keep it "
                   "for as long as its schedules step, and make those of an AsyncOptimizer for it");
    return *groups_;
  }
  std::vector<OptimizerParamGroup>* operator->() const { return &**this; }
  bool operator==(const ScheduledGroups& other) const { return groups_ == other.groups_; }

 private:
  std::vector<OptimizerParamGroup>* groups_;
  std::weak_ptr<const void> alive_;
};

/// What all schedules share: groups, the rates set last, and numbers that are saved.
class SavedSchedule {
 public:
  virtual ~SavedSchedule() = default;
  /// The rate of each group, as this schedule set it last.
  const std::vector<double>& get_last_lr() const { return last_lr_; }

  /// Every number that the next step depends on, options included: a resumed run goes on bit for
  /// bit. Functions are not saved. Learning rates and momenta are saved with the optimizer: make
  /// optimizer and schedule, then load both. Loading throws, changing nothing, when names or
  /// numbers do not fit; the error lists all mismatches.
  SchedulerState state_dict() const { return all_fields().save(); }
  /// Goes on where state_dict() was called.
  void load_state_dict(const SchedulerState& saved);

 protected:
  explicit SavedSchedule(const ScheduledGroups& optimizer)
      : groups_(optimizer), last_lr_(get_current_lrs()) {}
  /// Names the numbers that state_dict() saves besides those of this class, each with its range.
  virtual void fields(StateFields&) {}
  /// Names all numbers: those of this class, and those of fields().
  virtual void list(StateFields& all);
  /// Throws when options do not fit each other.
  virtual void check() const {}
  /// Throws when an option is out of its range, or options do not fit each other.
  void validate() const;

  /// The optimizer's present rates, group by group.
  std::vector<double> get_current_lrs() const;
  /// One value for each group: `values`, or copies of its only one.
  std::vector<double> per_group(const char* name, const std::vector<double>& values) const;

  ScheduledGroups groups_;
  std::vector<double> last_lr_;

 private:
  StateFields all_fields() const;
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
/// An epoch is the time between two calls of step(): one update, or one pass over the data. Several
/// schedules may set one optimizer's rates; most of them multiply the present rate. For a
/// GradScaler that skips steps, see amp/tools/applied_steps.h.
///
/// A schedule of your own overrides get_lrs(), and fields() if it has numbers of its own to save.
/// It calls initial_step() in its constructor unless its first step() is to be epoch 0.
class LRScheduler : public SavedSchedule {
 public:
  explicit LRScheduler(const ScheduledGroups& optimizer);

  /// Begins the next epoch. Call it after the optimizer's step. Throws when the optimizer is gone,
  /// or has other groups than at first.
  virtual void step();
  /// −1 before epoch 0.
  int64_t last_epoch() const { return step_count_ - 1; }

 protected:
  /// The rate of each group for epoch step_count_.
  virtual std::vector<double> get_lrs() = 0;
  /// The rates of epoch 0, whatever rates the groups have.
  virtual std::vector<double> first_lrs() { return get_lrs(); }
  void list(StateFields& all) override;

  /// Checks the options and begins epoch 0.
  void initial_step();
  /// Throws when the optimizer has other groups than at first. Every step() asks before anything
  /// changes.
  virtual void check_groups() const;
  /// Begins epoch 0 in the middle of a training.
  virtual void restart();
  /// Returns to the state before epoch 0, for a schedule whose turn comes later.
  virtual void rewind() { step_count_ = 0; }

  /// Each rate times the factor.
  static std::vector<double> scaled(std::vector<double> lrs, double factor);
  /// Gives each group its rate.
  void set_lrs(const std::vector<double>& lrs);

  std::vector<double> base_lrs_;  // before any schedule
  int64_t step_count_ = 0;        // calls of step(); within get_lrs() the epoch to compute

 private:
  friend class ComposedScheduler;
  friend class SequentialLR;
  friend class ChainedScheduler;
};

}  // namespace halftape::optim
