#include "halftape/optim/schedulers/reduce_on_plateau.h"

#include <algorithm>
#include <iostream>
#include <limits>

namespace halftape::optim {

ReduceLROnPlateauScheduler::ReduceLROnPlateauScheduler(const ScheduledGroups& optimizer,
                                                       SchedulerMode mode, double factor,
                                                       int64_t patience, double threshold,
                                                       ThresholdMode threshold_mode,
                                                       int64_t cooldown, std::vector<double> min_lr,
                                                       double eps, bool verbose)
    : SavedSchedule(optimizer),
      mode_(mode),
      threshold_mode_(threshold_mode),
      verbose_(verbose),
      factor_(factor),
      threshold_(threshold),
      eps_(eps),
      patience_(patience),
      cooldown_(cooldown),
      min_lrs_(min_lr.empty() ? std::vector{0.0} : std::move(min_lr)),
      best_(mode == min ? std::numeric_limits<double>::infinity()
                        : -std::numeric_limits<double>::infinity()) {
  validate();
  per_group("min_lr", min_lrs_);
}

void ReduceLROnPlateauScheduler::step(double metric) {
  const std::vector<double> lowest = per_group("min_lr", min_lrs_);  // throws for other groups
  ++last_epoch_;
  if (is_better(metric)) {
    best_ = metric;
    num_bad_epochs_ = 0;
  } else {
    ++num_bad_epochs_;
  }
  if (cooldown_counter_ > 0) {
    --cooldown_counter_;
    num_bad_epochs_ = 0;
  }
  if (num_bad_epochs_ > patience_) {
    reduce_lr(lowest);
    cooldown_counter_ = cooldown_;
    num_bad_epochs_ = 0;
  }
  last_lr_ = get_current_lrs();
}

bool ReduceLROnPlateauScheduler::is_better(double metric) const {
  if (mode_ == min)
    return metric < (threshold_mode_ == rel ? best_ * (1 - threshold_) : best_ - threshold_);
  return metric > (threshold_mode_ == rel ? best_ * (threshold_ + 1) : best_ + threshold_);
}

void ReduceLROnPlateauScheduler::reduce_lr(const std::vector<double>& lowest) {
  for (size_t i = 0; i < groups_->size(); ++i) {
    OptimizerOptions& options = (*groups_)[i].options();
    const double before = options.get_lr();
    const double after = std::max(before * factor_, lowest[i]);
    if (before - after > eps_) {
      options.set_lr(after);
      if (verbose_)
        std::cout << "Epoch " << last_epoch_ << ": reducing learning rate of group " << i << " to "
                  << after << '\n';
    }
  }
}

void ReduceLROnPlateauScheduler::fields(StateFields& f) {
  f.owner = "ReduceLROnPlateauScheduler";
  f.add("factor", factor_, kBelowOne);
  f.add("threshold", threshold_);
  f.add("eps", eps_, kNonNegative);
  f.add("patience", patience_, kNonNegative);
  f.add("cooldown", cooldown_, kNonNegative);
  f.add("min_lr", min_lrs_, kNonNegative);
  f.add("best", best_, NumberRange{-kInfinity, kInfinity, true, true});
  f.add("last_epoch", last_epoch_, kNonNegative);
  f.add("num_bad_epochs", num_bad_epochs_, kNonNegative);
  f.add("cooldown_counter", cooldown_counter_, kNonNegative);
}

}  // namespace halftape::optim
