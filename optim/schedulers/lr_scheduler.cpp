#include "halftape/optim/schedulers/lr_scheduler.h"

namespace halftape::optim {

LRScheduler::LRScheduler(ScheduledGroups optimizer) : groups_(optimizer) {
  for (OptimizerParamGroup& group : *groups_) {
    if (!group.initial_lr) group.initial_lr = group.options().get_lr();
    base_lrs_.push_back(*group.initial_lr);
  }
  last_lr_ = get_current_lrs();
}

void LRScheduler::step() {
  set_lrs(get_lrs());
  ++step_count_;
}

void LRScheduler::initial_step() {
  is_initial_ = true;
  step();
  is_initial_ = false;
}

void LRScheduler::restart() {
  step_count_ = 0;
  set_lrs(first_lrs());
  ++step_count_;
}

std::vector<double> LRScheduler::get_current_lrs() const {
  std::vector<double> lrs;
  for (const OptimizerParamGroup& group : *groups_) lrs.push_back(group.options().get_lr());
  return lrs;
}

std::vector<double> LRScheduler::scaled(std::vector<double> lrs, double factor) {
  for (double& lr : lrs) lr *= factor;
  return lrs;
}

void LRScheduler::set_lrs(const std::vector<double>& lrs) {
  HALFTAPE_CHECK(groups_->size() == base_lrs_.size() && lrs.size() == base_lrs_.size(),
                 "LRScheduler: ", lrs.size(), " learning rates for ", groups_->size(),
                 " groups, and it was made for ", base_lrs_.size(),
                 "; make a schedule when all groups are there");
  for (size_t i = 0; i < lrs.size(); ++i) (*groups_)[i].options().set_lr(lrs[i]);
  last_lr_ = lrs;
}

std::vector<double> LRScheduler::per_group(const char* name,
                                           const std::vector<double>& values) const {
  HALFTAPE_CHECK(values.size() == 1 || values.size() == groups_->size(),
                 "LRScheduler: ", values.size(), " values of ", name, " for ", groups_->size(),
                 " groups");
  return values.size() == 1 ? std::vector<double>(groups_->size(), values[0]) : values;
}

void LRScheduler::list(StateFields& all) {
  all.owner = "LRScheduler";
  all.add("base_lrs", base_lrs_);
  all.add("last_lr", last_lr_);
  all.add("step_count", step_count_);
  fields(all);
}

StateFields LRScheduler::all_fields() const {
  // The list names places to write to; state_dict() only reads.
  return StateFields([self = const_cast<LRScheduler*>(this)](StateFields& f) { self->list(f); });
}

SchedulerState LRScheduler::state_dict() const { return all_fields().save(); }
void LRScheduler::load_state_dict(const SchedulerState& saved) { all_fields().load(saved); }

}  // namespace halftape::optim
