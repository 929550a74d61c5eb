#include "halftape/optim/schedulers/compose.h"

#include <algorithm>

namespace halftape::optim {
namespace {

constexpr int kMostNested = 500;  // what walks over schedules takes room on the stack for each

const LRSchedulers& checked(const char* name, const LRSchedulers& schedulers) {
  HALFTAPE_CHECK(!schedulers.empty(), name, ": expected at least one schedule, got none");
  for (const auto& s : schedulers) HALFTAPE_CHECK(s, name, ": a schedule is null");
  return schedulers;
}

}  // namespace

ComposedScheduler::ComposedScheduler(const char* name, const ScheduledGroups& optimizer,
                                     LRSchedulers schedulers)
    : LRScheduler(optimizer), schedulers_(std::move(schedulers)) {
  const auto nests = [](const auto& self, const LRScheduler& s, int levels) -> bool {
    const auto* parts = dynamic_cast<const ComposedScheduler*>(&s);
    if (!parts || levels == 0) return parts;
    return std::any_of(parts->schedulers_.begin(), parts->schedulers_.end(),
                       [&](const auto& part) { return self(self, *part, levels - 1); });
  };
  for (const auto& s : checked(name, schedulers_)) {
    HALFTAPE_CHECK(s->groups_ == groups_, name, ": a schedule is of another optimizer");
    HALFTAPE_CHECK(!nests(nests, *s, kMostNested - 1), name, ": schedules are nested more than ",
                   kMostNested, " deep; one of them holds many side by side");
  }
}

void ComposedScheduler::rewind() {
  LRScheduler::rewind();
  for (const auto& s : schedulers_) s->rewind();
}

void ComposedScheduler::reset_lrs() {
  for (size_t i = 0; i < base_lrs_.size(); ++i) (*groups_)[i].options().set_lr(base_lrs_[i]);
}

void ComposedScheduler::fields(StateFields& f) {
  for (size_t i = 0; i < schedulers_.size(); ++i)
    f.part("schedulers." + std::to_string(i),
           [&](StateFields& part) { schedulers_[i]->list(part); });
}

void ComposedScheduler::check() const {
  for (const auto& s : schedulers_) s->check();
}

void ComposedScheduler::check_groups() const {
  LRScheduler::check_groups();
  for (const auto& s : schedulers_) s->check_groups();
}

SequentialLR::SequentialLR(const ScheduledGroups& optimizer, LRSchedulers schedulers,
                           std::vector<int64_t> milestones)
    : ComposedScheduler("SequentialLR", optimizer, std::move(schedulers)),
      milestones_(std::move(milestones)) {
  HALFTAPE_CHECK(milestones_.size() + 1 == schedulers_.size(), "SequentialLR: ", schedulers_.size(),
                 " schedules need ", schedulers_.size() - 1, " milestones, got ",
                 milestones_.size());
  validate();
  restart();
}

/// Begins epoch 0 of the first schedule, as if the others were not there yet.
void SequentialLR::restart() {
  check_groups();
  reset_lrs();
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
  check_groups();
  LRScheduler& now = at(step_count_);
  if (&now != &at(step_count_ - 1))
    now.restart();
  else
    now.step();
  last_lr_ = now.get_last_lr();
  ++step_count_;
}

void SequentialLR::fields(StateFields& f) {
  f.owner = "SequentialLR";
  f.add("milestones", milestones_);
  ComposedScheduler::fields(f);
}

void SequentialLR::check() const {
  HALFTAPE_CHECK(std::is_sorted(milestones_.begin(), milestones_.end()),
                 "SequentialLR: milestones must rise");
  ComposedScheduler::check();
}

ChainedScheduler::ChainedScheduler(const LRSchedulers& schedulers)
    : ComposedScheduler("ChainedScheduler", checked("ChainedScheduler", schedulers)[0]->groups_,
                        schedulers) {
  step_count_ = 1;  // the constructors of the schedules have begun epoch 0
}

void ChainedScheduler::step() {
  check_groups();
  for (const auto& s : schedulers_) s->step();
  last_lr_ = get_current_lrs();
  ++step_count_;
}

void ChainedScheduler::restart() {
  check_groups();
  reset_lrs();
  rewind();
  for (const auto& s : schedulers_) s->initial_step();
  last_lr_ = get_current_lrs();
  step_count_ = 1;
}

}  // namespace halftape::optim
