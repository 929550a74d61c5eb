// The schedule that lowers the rate when a metric has stopped improving.
#pragma once
#include <vector>

#include "halftape/optim/schedulers/lr_scheduler.h"

namespace halftape::optim {

/// Multiplies the rates by `factor` after more than `patience` steps without a better metric, and
/// ignores bad metrics in the next `cooldown` steps. Better means below best·(1 − threshold) (rel)
/// or below best − threshold (abs), and above best·(1 + threshold) or best + threshold in mode max.
/// A rate never falls below its group's min_lr (a list of one is for all groups; an empty one means
/// 0), and does not change by eps or less. Throws unless factor is in [0, 1), and for a negative
/// patience, cooldown, min_lr or eps. The mode is not saved.
class ReduceLROnPlateauScheduler : public SavedSchedule {
 public:
  enum SchedulerMode { min, max };
  enum ThresholdMode { rel, abs };
  explicit ReduceLROnPlateauScheduler(const ScheduledGroups& optimizer, SchedulerMode mode = min,
                                      double factor = 0.1, int64_t patience = 10,
                                      double threshold = 1e-4, ThresholdMode threshold_mode = rel,
                                      int64_t cooldown = 0, std::vector<double> min_lr = {},
                                      double eps = 1e-8, bool verbose = false);
  /// `metric` is a number on the host: loss.item() waits for the device. NaN is never better.
  void step(double metric);

 private:
  bool is_better(double metric) const;
  void reduce_lr(const std::vector<double>& lowest);
  void fields(StateFields& fields) override;

  SchedulerMode mode_;
  ThresholdMode threshold_mode_;
  bool verbose_;
  double factor_, threshold_, eps_;
  int64_t patience_, cooldown_;
  std::vector<double> min_lrs_;
  double best_;
  int64_t last_epoch_ = 0, num_bad_epochs_ = 0, cooldown_counter_ = 0;
};

}  // namespace halftape::optim
