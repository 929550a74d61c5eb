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

void ReduceLROnPlateauScheduler::fields(StateFields& f) {
  f.owner = "ReduceLROnPlateauScheduler";
  f.add("factor", factor_);
  f.add("threshold", threshold_);
  f.add("eps", eps_);
  f.add("patience", patience_);
  f.add("cooldown", cooldown_);
  f.add("min_lr", min_lrs_);
  f.add("last_lr", last_lr_);
  f.add("best", best_);
  f.add("last_epoch", last_epoch_);
  f.add("num_bad_epochs", num_bad_epochs_);
  f.add("cooldown_counter", cooldown_counter_);
}

SchedulerState ReduceLROnPlateauScheduler::state_dict() const {
  // The list names places to write to; state_dict() only reads.
  auto* self = const_cast<ReduceLROnPlateauScheduler*>(this);
  return StateFields([self](StateFields& f) { self->fields(f); }).save();
}

void ReduceLROnPlateauScheduler::load_state_dict(const SchedulerState& saved) {
  StateFields([this](StateFields& f) { fields(f); }).load(saved);
}

}  // namespace halftape::optim
