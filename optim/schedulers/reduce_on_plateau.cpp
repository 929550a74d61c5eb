#include "halftape/optim/schedulers/reduce_on_plateau.h"

#include <algorithm>
#include <iostream>
#include <limits>

namespace halftape::optim {

ReduceLROnPlateauScheduler::ReduceLROnPlateauScheduler(ScheduledGroups optimizer,
                                                       SchedulerMode mode, double factor,
                                                       int64_t patience, double threshold,
                                                       ThresholdMode threshold_mode,
                                                       int64_t cooldown, std::vector<double> min_lr,
                                                       double eps, bool verbose)
    : groups_(optimizer),
      mode_(mode),
      threshold_mode_(threshold_mode),
      verbose_(verbose),
      factor_(factor),
      threshold_(threshold),
      eps_(eps),
      patience_(patience),
      cooldown_(cooldown),
      min_lrs_(std::move(min_lr)),
      best_(mode == min ? std::numeric_limits<double>::infinity()
                        : -std::numeric_limits<double>::infinity()) {
  HALFTAPE_CHECK(factor < 1, "ReduceLROnPlateauScheduler: factor ", factor, " must be below 1");
  if (min_lrs_.empty()) min_lrs_ = {0};
  HALFTAPE_CHECK(min_lrs_.size() == 1 || min_lrs_.size() == groups_->size(),
                 "ReduceLROnPlateauScheduler: ", min_lrs_.size(), " values of min_lr for ",
                 groups_->size(), " groups");
  for (const OptimizerParamGroup& group : *groups_) last_lr_.push_back(group.options().get_lr());
}

void ReduceLROnPlateauScheduler::step(double metric) {
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
    reduce_lr();
    cooldown_counter_ = cooldown_;
    num_bad_epochs_ = 0;
  }
  last_lr_.clear();
  for (const OptimizerParamGroup& group : *groups_) last_lr_.push_back(group.options().get_lr());
}

bool ReduceLROnPlateauScheduler::is_better(double metric) const {
  if (mode_ == min)
    return metric < (threshold_mode_ == rel ? best_ * (1 - threshold_) : best_ - threshold_);
  return metric > (threshold_mode_ == rel ? best_ * (threshold_ + 1) : best_ + threshold_);
}

void ReduceLROnPlateauScheduler::reduce_lr() {
  HALFTAPE_CHECK(min_lrs_.size() == 1 || min_lrs_.size() == groups_->size(),
                 "ReduceLROnPlateauScheduler: ", min_lrs_.size(), " values of min_lr for ",
                 groups_->size(), " groups; make a schedule when all groups are there");
  for (size_t i = 0; i < groups_->size(); ++i) {
    OptimizerOptions& options = (*groups_)[i].options();
    const double before = options.get_lr();
    const double after = std::max(before * factor_, min_lrs_[min_lrs_.size() == 1 ? 0 : i]);
    if (before - after > eps_) {
      options.set_lr(after);
      if (verbose_)
        std::cout << "Epoch " << last_epoch_ << ": reducing learning rate of group " << i << " to "
                  << after << '\n';
    }
  }
}

void ReduceLROnPlateauScheduler::fields(SchedulerFields& f) {
  f.number("factor", factor_);
  f.number("threshold", threshold_);
  f.number("eps", eps_);
  f.count("patience", patience_);
  f.count("cooldown", cooldown_);
  f.numbers("min_lr", min_lrs_);
  f.numbers("last_lr", last_lr_);
  f.number("best", best_);
  f.count("last_epoch", last_epoch_);
  f.count("num_bad_epochs", num_bad_epochs_);
  f.count("cooldown_counter", cooldown_counter_);
}

SchedulerState ReduceLROnPlateauScheduler::state_dict() const {
  // fields() only names them, and saving reads.
  return SchedulerFields::save(
      [this](SchedulerFields& f) { const_cast<ReduceLROnPlateauScheduler*>(this)->fields(f); });
}

void ReduceLROnPlateauScheduler::load_state_dict(const SchedulerState& saved) {
  SchedulerFields::load(saved, [this](SchedulerFields& f) { fields(f); });
}

}  // namespace halftape::optim
