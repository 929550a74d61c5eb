// Schedules made of schedules: one after another, or all at once.
#pragma once
#include <memory>
#include <vector>

#include "halftape/optim/schedulers/lr_scheduler.h"

namespace halftape::optim {

using LRSchedulers = std::vector<std::shared_ptr<LRScheduler>>;

/// A schedule made of others. Throws when there are none, or when they set the rates of several
/// optimizers.
class ComposedScheduler : public LRScheduler {
 public:
  // A copy would share the parts.
  ComposedScheduler(ComposedScheduler&&) = default;
  ComposedScheduler& operator=(ComposedScheduler&&) = default;

 protected:
  ComposedScheduler(const char* name, const ScheduledGroups& optimizer, LRSchedulers schedulers);
  std::vector<double> get_lrs() override { return get_current_lrs(); }
  void rewind() override;
  void fields(StateFields& fields) override;
  void check() const override;
  void check_groups() const override;
  /// Sets the rates from before any schedule.
  void reset_lrs();
  LRSchedulers schedulers_;
};

/// Runs the first schedule up to the first milestone, from there the second one from its epoch 0,
/// and so on:
///
///     SequentialLR schedule(optimizer,
///                           {std::make_shared<LinearLR>(optimizer, 0.01, 1, 100),
///                            std::make_shared<CosineAnnealingLR>(optimizer, 900)},
///                           {100});
///
/// Throws unless there is one schedule more than milestones, and milestones rise.
class SequentialLR : public ComposedScheduler {
 public:
  SequentialLR(const ScheduledGroups& optimizer, LRSchedulers schedulers,
               std::vector<int64_t> milestones);
  void step() override;

 private:
  LRScheduler& at(int64_t epoch) const;
  void restart() override;
  void fields(StateFields& fields) override;
  void check() const override;
  std::vector<int64_t> milestones_;
};

/// Runs all schedules at every step, in their order.
class ChainedScheduler : public ComposedScheduler {
 public:
  explicit ChainedScheduler(const LRSchedulers& schedulers);
  void step() override;

 private:
  void restart() override;
};

}  // namespace halftape::optim
