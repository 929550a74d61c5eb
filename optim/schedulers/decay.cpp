#include "halftape/optim/schedulers/decay.h"

#include <algorithm>
#include <cmath>

namespace halftape::optim {

StepLR::StepLR(const ScheduledGroups& optimizer, int64_t step_size, double gamma)
    : FactorLR(optimizer), step_size_(step_size), gamma_(gamma) {
  initial_step();
}
double StepLR::factor() const {
  return step_count_ != 0 && step_count_ % step_size_ == 0 ? gamma_ : 1;
}
void StepLR::fields(StateFields& f) {
  f.owner = "StepLR";
  f.add("step_size", step_size_, kAtLeastOne);
  f.add("gamma", gamma_, kNonNegative);
}

MultiStepLR::MultiStepLR(const ScheduledGroups& optimizer, std::vector<int64_t> milestones,
                         double gamma)
    : FactorLR(optimizer), milestones_(std::move(milestones)), gamma_(gamma) {
  initial_step();
}
double MultiStepLR::factor() const {
  const auto hits = std::count(milestones_.begin(), milestones_.end(), step_count_);
  return std::pow(gamma_, static_cast<double>(hits));
}
void MultiStepLR::fields(StateFields& f) {
  f.owner = "MultiStepLR";
  f.add("milestones", milestones_);
  f.add("gamma", gamma_, kNonNegative);
}

ExponentialLR::ExponentialLR(const ScheduledGroups& optimizer, double gamma)
    : FactorLR(optimizer), gamma_(gamma) {
  initial_step();
}
void ExponentialLR::fields(StateFields& f) {
  f.owner = "ExponentialLR";
  f.add("gamma", gamma_, kNonNegative);
}

ConstantLR::ConstantLR(const ScheduledGroups& optimizer, double factor, int64_t total_iters)
    : FactorLR(optimizer), factor_(factor), total_iters_(total_iters) {
  initial_step();
}
double ConstantLR::factor() const {
  if (step_count_ == 0) return total_iters_ == 0 ? 1 : factor_;
  return step_count_ == total_iters_ ? 1 / factor_ : 1;
}
void ConstantLR::fields(StateFields& f) {
  f.owner = "ConstantLR";
  f.add("factor", factor_, kPositiveFraction);
  f.add("total_iters", total_iters_, kNonNegative);
}

LinearLR::LinearLR(const ScheduledGroups& optimizer, double start_factor, double end_factor,
                   int64_t total_iters)
    : FactorLR(optimizer),
      start_factor_(start_factor),
      end_factor_(end_factor),
      total_iters_(total_iters) {
  initial_step();
}
double LinearLR::factor() const {
  if (step_count_ == 0) return start_factor_;
  if (step_count_ > total_iters_) return 1;
  const double rise = end_factor_ - start_factor_;
  const double before = static_cast<double>(total_iters_) * start_factor_ +
                        static_cast<double>(step_count_ - 1) * rise;
  return std::max(1 + rise / before, 0.0);  // where it falls to 0, rounding may go beyond
}
void LinearLR::fields(StateFields& f) {
  f.owner = "LinearLR";
  f.add("start_factor", start_factor_, kPositiveFraction);
  f.add("end_factor", end_factor_, kFraction);
  f.add("total_iters", total_iters_, kAtLeastOne);
}

PolynomialLR::PolynomialLR(const ScheduledGroups& optimizer, int64_t total_iters, double power)
    : FactorLR(optimizer), total_iters_(total_iters), power_(power) {
  initial_step();
}
double PolynomialLR::factor() const {
  if (step_count_ == 0 || step_count_ > total_iters_) return 1;
  const auto left = [&](int64_t epoch) {
    return 1 - static_cast<double>(epoch) / static_cast<double>(total_iters_);
  };
  return std::pow(left(step_count_) / left(step_count_ - 1), power_);
}
void PolynomialLR::fields(StateFields& f) {
  f.owner = "PolynomialLR";
  f.add("total_iters", total_iters_, kAtLeastOne);
  f.add("power", power_, kNonNegative);
}

FunctionLR::FunctionLR(const char* name, const ScheduledGroups& optimizer, std::vector<LRLambda> f)
    : LRScheduler(optimizer), f_(std::move(f)) {
  HALFTAPE_CHECK(f_.size() == 1 || f_.size() == groups_->size(), name, ": ", f_.size(),
                 " functions for ", groups_->size(), " groups");
  for (const LRLambda& one : f_) HALFTAPE_CHECK(one, name, ": a function is empty");
}
std::vector<double> FunctionLR::times_f(std::vector<double> lrs) const {
  for (size_t i = 0; i < lrs.size(); ++i) lrs[i] *= f_[f_.size() == 1 ? 0 : i](step_count_);
  return lrs;
}

}  // namespace halftape::optim
