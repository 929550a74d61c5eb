#include "halftape/optim/schedulers/compose.h"

#include <algorithm>

namespace halftape::optim {
namespace {

void check_parts(const char* name, const LRSchedulers& schedulers) {
  HALFTAPE_CHECK(!schedulers.empty(), name, ": expected at least one schedule, got none");
  for (const auto& s : schedulers) HALFTAPE_CHECK(s, name, ": a schedule is null");
}

}  // namespace

SequentialLR::SequentialLR(ScheduledGroups optimizer, LRSchedulers schedulers,
                           std::vector<int64_t> milestones)
    : LRScheduler(optimizer),
      schedulers_(std::move(schedulers)),
      milestones_(std::move(milestones)) {
  check_parts("SequentialLR", schedulers_);
  for (const auto& s : schedulers_)
    HALFTAPE_CHECK(s->groups_ == groups_, "SequentialLR: a schedule is of another optimizer");
  HALFTAPE_CHECK(milestones_.size() + 1 == schedulers_.size(), "SequentialLR: ", schedulers_.size(),
                 " schedules need ", schedulers_.size() - 1, " milestones, got ",
                 milestones_.size());
  HALFTAPE_CHECK(std::is_sorted(milestones_.begin(), milestones_.end()),
                 "SequentialLR: milestones must rise");
  begin();
}

/// Epoch 0 of the schedule that is to be first, as if the others were not there yet.
void SequentialLR::begin() {
  for (OptimizerParamGroup& group : *groups_) group.options().set_lr(*group.initial_lr);
  rewind();
  at(0).initial_step();
  last_lr_ = at(0).get_last_lr();
  step_count_ = 1;
}

LRScheduler& SequentialLR::at(int64_t epoch) const {
  const auto next = std::upper_bound(milestones_.begin(), milestones_.end(), epoch);
  return *schedulers_[static_cast<size_t>(next - milestones_.begin())];
}

void SequentialLR::step() {
  LRScheduler& now = at(step_count_);
  if (&now != &at(step_count_ - 1))
    now.restart();
  else
    now.step();
  last_lr_ = now.get_last_lr();
  ++step_count_;
}

void SequentialLR::rewind() {
  LRScheduler::rewind();
  for (const auto& s : schedulers_) s->rewind();
}

void SequentialLR::fields(SchedulerFields& f) {
  LRScheduler::fields(f);
  f.counts("milestones", milestones_);
  for (size_t i = 0; i < schedulers_.size(); ++i)
    f.part("schedulers." + std::to_string(i),
           [&](SchedulerFields& part) { schedulers_[i]->fields(part); });
}

ScheduledGroups ChainedScheduler::of_first(const LRSchedulers& schedulers) {
  check_parts("ChainedScheduler", schedulers);
  return schedulers[0]->groups_;
}

ChainedScheduler::ChainedScheduler(LRSchedulers schedulers)
    : LRScheduler(of_first(schedulers)), schedulers_(std::move(schedulers)) {
  for (const auto& s : schedulers_)
    HALFTAPE_CHECK(s->groups_ == groups_, "ChainedScheduler: the schedules are of two optimizers");
  step_count_ = 1;  // the parts have been at epoch 0
}

void ChainedScheduler::step() {
  for (const auto& s : schedulers_) s->step();
  last_lr_ = get_current_lrs();
  ++step_count_;
}

void ChainedScheduler::rewind() {
  LRScheduler::rewind();
  for (const auto& s : schedulers_) s->rewind();
}

void ChainedScheduler::restart() {
  for (OptimizerParamGroup& group : *groups_) group.options().set_lr(*group.initial_lr);
  rewind();
  for (const auto& s : schedulers_) s->initial_step();
  last_lr_ = get_current_lrs();
  step_count_ = 1;
}

void ChainedScheduler::fields(SchedulerFields& f) {
  LRScheduler::fields(f);
  for (size_t i = 0; i < schedulers_.size(); ++i)
    f.part("schedulers." + std::to_string(i),
           [&](SchedulerFields& part) { schedulers_[i]->fields(part); });
}

}  // namespace halftape::optim
