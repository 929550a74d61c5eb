#include "halftape/optim/schedulers/decay.h"

#include <algorithm>
#include <cmath>

namespace halftape::optim {

StepLR::StepLR(ScheduledGroups optimizer, int64_t step_size, double gamma)
    : FactorLR(optimizer), step_size_(step_size), gamma_(gamma) {
  HALFTAPE_CHECK(step_size > 0, "StepLR: step_size ", step_size, " must be positive");
  initial_step();
}
double StepLR::factor() const {
  return step_count_ != 0 && step_count_ % step_size_ == 0 ? gamma_ : 1;
}
void StepLR::fields(StateFields& f) {
  f.add("step_size", step_size_, kAtLeastOne);
  f.add("gamma", gamma_);
}

MultiStepLR::MultiStepLR(ScheduledGroups optimizer, std::vector<int64_t> milestones, double gamma)
    : FactorLR(optimizer), milestones_(std::move(milestones)), gamma_(gamma) {
  initial_step();
}
double MultiStepLR::factor() const {
  const auto hits = std::count(milestones_.begin(), milestones_.end(), step_count_);
  return std::pow(gamma_, static_cast<double>(hits));
}
void MultiStepLR::fields(StateFields& f) {
  f.add("milestones", milestones_);
  f.add("gamma", gamma_);
}

ExponentialLR::ExponentialLR(ScheduledGroups optimizer, double gamma)
    : FactorLR(optimizer), gamma_(gamma) {
  initial_step();
}

ConstantLR::ConstantLR(ScheduledGroups optimizer, double factor, int64_t total_iters)
    : FactorLR(optimizer), factor_(factor), total_iters_(total_iters) {
  HALFTAPE_CHECK(factor > 0 && factor <= 1, "ConstantLR: factor ", factor, " is not in (0, 1]");
  initial_step();
}
double ConstantLR::factor() const {
  if (step_count_ == 0) return factor_;
  return step_count_ == total_iters_ ? 1 / factor_ : 1;
}
std::vector<double> ConstantLR::first_lrs() {
  return scaled(base_lrs_, total_iters_ <= 0 ? 1 : factor_);
}
void ConstantLR::fields(StateFields& f) {
  f.add("factor", factor_);
  f.add("total_iters", total_iters_);
}

LinearLR::LinearLR(ScheduledGroups optimizer, double start_factor, double end_factor,
                   int64_t total_iters)
    : FactorLR(optimizer),
      start_factor_(start_factor),
      end_factor_(end_factor),
      total_iters_(total_iters) {
  HALFTAPE_CHECK(start_factor > 0 && start_factor <= 1, "LinearLR: start_factor ", start_factor,
                 " is not in (0, 1]");
  HALFTAPE_CHECK(end_factor >= 0 && end_factor <= 1, "LinearLR: end_factor ", end_factor,
                 " is not in [0, 1]");
  HALFTAPE_CHECK(total_iters > 0, "LinearLR: total_iters ", total_iters, " must be positive");
  initial_step();
}
double LinearLR::factor() const {
  if (step_count_ == 0) return start_factor_;
  if (step_count_ > total_iters_) return 1;
  const double rise = end_factor_ - start_factor_;
  const double before = static_cast<double>(total_iters_) * start_factor_ +
                        static_cast<double>(step_count_ - 1) * rise;
  return 1 + rise / before;
}
void LinearLR::fields(StateFields& f) {
  f.add("start_factor", start_factor_);
  f.add("end_factor", end_factor_);
  f.add("total_iters", total_iters_, kAtLeastOne);
}

PolynomialLR::PolynomialLR(ScheduledGroups optimizer, int64_t total_iters, double power)
    : FactorLR(optimizer), total_iters_(total_iters), power_(power) {
  HALFTAPE_CHECK(total_iters > 0, "PolynomialLR: total_iters ", total_iters, " must be positive");
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
  f.add("total_iters", total_iters_, kAtLeastOne);
  f.add("power", power_);
}

namespace {
void check_functions(const char* name, const std::vector<LRLambda>& f, size_t groups) {
  HALFTAPE_CHECK(f.size() == 1 || f.size() == groups, name, ": ", f.size(), " functions for ",
                 groups, " groups");
  for (const LRLambda& one : f) HALFTAPE_CHECK(one, name, ": a function is empty");
}
}  // namespace

LambdaLR::LambdaLR(ScheduledGroups optimizer, std::vector<LRLambda> f)
    : LRScheduler(optimizer), f_(std::move(f)) {
  check_functions("LambdaLR", f_, groups_->size());
  initial_step();
}
std::vector<double> LambdaLR::get_lrs() {
  std::vector<double> lrs;
  for (size_t i = 0; i < base_lrs_.size(); ++i)
    lrs.push_back(base_lrs_[i] * f_[f_.size() == 1 ? 0 : i](step_count_));
  return lrs;
}

MultiplicativeLR::MultiplicativeLR(ScheduledGroups optimizer, std::vector<LRLambda> f)
    : LRScheduler(optimizer), f_(std::move(f)) {
  check_functions("MultiplicativeLR", f_, groups_->size());
  initial_step();
}
std::vector<double> MultiplicativeLR::get_lrs() {
  std::vector<double> lrs = get_current_lrs();
  if (is_initial_) return lrs;
  for (size_t i = 0; i < lrs.size(); ++i) lrs[i] *= f_[f_.size() == 1 ? 0 : i](step_count_);
  return lrs;
}

}  // namespace halftape::optim
