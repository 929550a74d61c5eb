// The schedule that listens: it lowers the rate when a metric has stopped getting better.
#pragma once
#include <vector>

#include "halftape/optim/schedulers/lr_scheduler.h"

namespace halftape::optim {

/// Multiplies the rates by `factor` when the metric was not better for more than `patience` steps,
/// and then counts none of the next `cooldown` ones. Better: below best·(1 − threshold) (rel), or
/// below best − threshold (abs); above, in mode max. A rate stays at or above its group's min_lr (a
/// list of one holds for all; none means 0), and stays as it is where the change would be no more
/// than eps. Throws unless factor < 1.
class ReduceLROnPlateauScheduler {
 public:
  enum SchedulerMode { min, max };
  enum ThresholdMode { rel, abs };
  explicit ReduceLROnPlateauScheduler(ScheduledGroups optimizer, SchedulerMode mode = min,
                                      double factor = 0.1, int64_t patience = 10,
                                      double threshold = 1e-4, ThresholdMode threshold_mode = rel,
                                      int64_t cooldown = 0, std::vector<double> min_lr = {},
                                      double eps = 1e-8, bool verbose = false);
  virtual ~ReduceLROnPlateauScheduler() = default;

  /// Of a number on the host: loss.item() waits for the device. NaN is never better.
  void step(double metric);
  const std::vector<double>& get_last_lr() const { return last_lr_; }

  /// As LRScheduler's. The mode is not in it.
  SchedulerState state_dict() const;
  void load_state_dict(const SchedulerState& saved);

 private:
  bool is_better(double metric) const;
  void reduce_lr();
  void fields(SchedulerFields& fields);

  ScheduledGroups groups_;
  SchedulerMode mode_;
  ThresholdMode threshold_mode_;
  bool verbose_;
  double factor_, threshold_, eps_;
  int64_t patience_, cooldown_;
  std::vector<double> min_lrs_, last_lr_;
  double best_;
  int64_t last_epoch_ = 0, num_bad_epochs_ = 0, cooldown_counter_ = 0;
};

}  // namespace halftape::optim
