// Schedules made of schedules: one after another, or all at once.
#pragma once
#include <memory>
#include <vector>

#include "halftape/optim/schedulers/lr_scheduler.h"

namespace halftape::optim {

using LRSchedulers = std::vector<std::shared_ptr<LRScheduler>>;

/// The first schedule up to the first milestone, from there the second with its epoch 0, and so on:
///
///     SequentialLR schedule(optimizer,
///                           {std::make_shared<LinearLR>(optimizer, 0.01, 1, 100),
///                            std::make_shared<CosineAnnealingLR>(optimizer, 900)},
///                           {100});
///
/// Throws unless there is one schedule more than milestones, these rise, and all are of this
/// optimizer.
class SequentialLR : public LRScheduler {
 public:
  SequentialLR(ScheduledGroups optimizer, LRSchedulers schedulers, std::vector<int64_t> milestones);
  void step() override;

 private:
  LRScheduler& at(int64_t epoch) const;
  std::vector<double> get_lrs() override { return get_current_lrs(); }
  void rewind() override;
  void restart() override { begin(); }
  void begin();
  void fields(SchedulerFields& fields) override;
  LRSchedulers schedulers_;
  std::vector<int64_t> milestones_;
};

/// All schedules at every step, in their order. Throws unless there is one, and all are of one
/// optimizer.
class ChainedScheduler : public LRScheduler {
 public:
  explicit ChainedScheduler(LRSchedulers schedulers);
  void step() override;

 private:
  static ScheduledGroups of_first(const LRSchedulers& schedulers);
  std::vector<double> get_lrs() override { return get_current_lrs(); }
  void rewind() override;
  void restart() override;
  void fields(SchedulerFields& fields) override;
  LRSchedulers schedulers_;
};

}  // namespace halftape::optim
