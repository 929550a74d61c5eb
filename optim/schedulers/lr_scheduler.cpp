#include "halftape/optim/schedulers/lr_scheduler.h"

namespace halftape::optim {

void SavedSchedule::list(StateFields& all) {
  all.owner = "LRScheduler";
  fields(all);
  all.add("last_lr", last_lr_);
}

StateFields SavedSchedule::all_fields() const {
  // The list names places to write to; most callers only read.
  return StateFields([self = const_cast<SavedSchedule*>(this)](StateFields& f) { self->list(f); });
}

void SavedSchedule::validate() const {
  const StateFields options = all_fields();
  if (const StateFields::Field* bad = options.out_of_range())
    halftape::detail::fail(options.owner, ": ", bad->name, " ", bad->value, " is not in ",
                           bad->range);
  check();
}

void SavedSchedule::load_state_dict(const SchedulerState& saved) {
  all_fields().load(saved, StateFields::Unknown::Refuse, [this] { check(); });
}

std::vector<double> SavedSchedule::get_current_lrs() const {
  std::vector<double> lrs;
  for (const OptimizerParamGroup& group : *groups_) lrs.push_back(group.options().get_lr());
  return lrs;
}

std::vector<double> SavedSchedule::per_group(const char* name,
                                             const std::vector<double>& values) const {
  HALFTAPE_CHECK(values.size() == 1 || values.size() == groups_->size(),
                 "LRScheduler: ", values.size(), " values of ", name, " for ", groups_->size(),
                 " groups");
  return values.size() == 1 ? std::vector<double>(groups_->size(), values[0]) : values;
}

LRScheduler::LRScheduler(const ScheduledGroups& optimizer) : SavedSchedule(optimizer) {
  for (const OptimizerParamGroup& group : *groups_)
    base_lrs_.push_back(group.initial_lr.value_or(group.options().get_lr()));
}

void LRScheduler::check_groups() const {
  HALFTAPE_CHECK(groups_->size() == base_lrs_.size(), "LRScheduler: its optimizer has ",
                 groups_->size(), " groups, and it was made for ", base_lrs_.size(),
                 "; make a schedule when all groups are there");
}

void LRScheduler::step() {
  check_groups();
  set_lrs(get_lrs());
  ++step_count_;
}

void LRScheduler::initial_step() {
  validate();
  step();
}

void LRScheduler::restart() {
  check_groups();
  step_count_ = 0;
  set_lrs(first_lrs());
  ++step_count_;
}

std::vector<double> LRScheduler::scaled(std::vector<double> lrs, double factor) {
  for (double& lr : lrs) lr *= factor;
  return lrs;
}

void LRScheduler::set_lrs(const std::vector<double>& lrs) {
  check_groups();
  HALFTAPE_CHECK(lrs.size() == base_lrs_.size(), "LRScheduler: ", lrs.size(),
                 " learning rates for ", base_lrs_.size(), " groups");
  for (size_t i = 0; i < lrs.size(); ++i) {
    OptimizerParamGroup& group = (*groups_)[i];
    if (!group.initial_lr) group.initial_lr = base_lrs_[i];
    group.options().set_lr(lrs[i]);
  }
  last_lr_ = lrs;
}

void LRScheduler::list(StateFields& all) {
  SavedSchedule::list(all);
  all.add("base_lrs", base_lrs_);
  all.add("step_count", step_count_, kNonNegative);
}

}  // namespace halftape::optim
