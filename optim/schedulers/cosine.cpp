#include "halftape/optim/schedulers/cosine.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace halftape::optim {
namespace {
constexpr double pi = std::numbers::pi;
}

CosineAnnealingLR::CosineAnnealingLR(const ScheduledGroups& optimizer, int64_t T_max,
                                     double eta_min)
    : LRScheduler(optimizer), T_max_(T_max), eta_min_(eta_min) {
  initial_step();
}
std::vector<double> CosineAnnealingLR::get_lrs() {
  std::vector<double> lrs = get_current_lrs();
  if (step_count_ == 0) return lrs;
  const auto height = [&](int64_t epoch) {
    return 1 + std::cos(pi * static_cast<double>(epoch) / static_cast<double>(T_max_));
  };
  // One epoch after the bottom, the factor below would divide by 0.
  const bool at_bottom = (step_count_ - 1 - T_max_) % (2 * T_max_) == 0;
  for (size_t i = 0; i < lrs.size(); ++i) {
    const double before = lrs[i];
    if (at_bottom)
      lrs[i] += (base_lrs_[i] - eta_min_) * (1 - std::cos(pi / static_cast<double>(T_max_))) / 2;
    else
      lrs[i] = height(step_count_) / height(step_count_ - 1) * (before - eta_min_) + eta_min_;
    // Rounding may bring a rate of 0 below it, which no optimizer takes.
    if (before >= 0) lrs[i] = std::max(lrs[i], 0.0);
  }
  return lrs;
}
void CosineAnnealingLR::fields(StateFields& f) {
  f.owner = "CosineAnnealingLR";
  f.add("T_max", T_max_, kAtLeastOne);
  f.add("eta_min", eta_min_, kNonNegative);
}

CosineAnnealingWarmRestarts::CosineAnnealingWarmRestarts(const ScheduledGroups& optimizer,
                                                         int64_t T_0, int64_t T_mult,
                                                         double eta_min)
    : LRScheduler(optimizer),
      T_0_(T_0),
      T_mult_(T_mult),
      T_i_(static_cast<double>(T_0)),
      eta_min_(eta_min) {
  initial_step();
}
std::vector<double> CosineAnnealingWarmRestarts::get_lrs() {
  std::vector<double> lrs;
  for (const double base : base_lrs_)
    lrs.push_back(eta_min_ + (base - eta_min_) * (1 + std::cos(pi * T_cur_ / T_i_)) / 2);
  return lrs;
}
void CosineAnnealingWarmRestarts::step() {
  check_groups();
  if (step_count_ > 0) T_cur_ += 1;
  if (T_cur_ >= T_i_) {
    T_cur_ = std::fmod(T_cur_, T_i_);
    T_i_ *= static_cast<double>(T_mult_);
  }
  LRScheduler::step();
}
void CosineAnnealingWarmRestarts::step(double epoch) {
  HALFTAPE_CHECK(epoch >= 0 && epoch < 0x1p53, "CosineAnnealingWarmRestarts: epoch ", epoch,
                 epoch < 0 ? " is negative" : " is not in [0, 2^53)");
  check_groups();
  T_i_ = static_cast<double>(T_0_);
  T_cur_ = T_mult_ == 1 ? std::fmod(epoch, T_i_) : epoch;
  while (T_cur_ >= T_i_) {
    T_cur_ -= T_i_;
    T_i_ *= static_cast<double>(T_mult_);
  }
  step_count_ = static_cast<int64_t>(std::floor(epoch));
  LRScheduler::step();
}
void CosineAnnealingWarmRestarts::rewind() {
  LRScheduler::rewind();
  T_cur_ = 0;
  T_i_ = static_cast<double>(T_0_);
}
void CosineAnnealingWarmRestarts::check() const {
  HALFTAPE_CHECK(T_cur_ < T_i_, "CosineAnnealingWarmRestarts: T_cur ", T_cur_, " is not below T_i ",
                 T_i_);
}
void CosineAnnealingWarmRestarts::fields(StateFields& f) {
  f.owner = "CosineAnnealingWarmRestarts";
  f.add("T_0", T_0_, kAtLeastOne);
  f.add("T_i", T_i_, kAtLeastOne);
  f.add("T_mult", T_mult_, kAtLeastOne);
  f.add("T_cur", T_cur_, kNonNegative);
  f.add("eta_min", eta_min_, kNonNegative);
}

WarmupCosineLR::WarmupCosineLR(const ScheduledGroups& optimizer, int64_t warmup_iters,
                               int64_t lr_decay_iters, double min_lr)
    : LRScheduler(optimizer),
      warmup_iters_(warmup_iters),
      lr_decay_iters_(lr_decay_iters),
      min_lr_(min_lr) {
  initial_step();
}
void WarmupCosineLR::check() const {
  HALFTAPE_CHECK(warmup_iters_ < lr_decay_iters_, "WarmupCosineLR: warmup_iters ", warmup_iters_,
                 " is not below lr_decay_iters ", lr_decay_iters_);
}
std::vector<double> WarmupCosineLR::get_lrs() {
  if (step_count_ < warmup_iters_)
    return scaled(base_lrs_,
                  static_cast<double>(step_count_ + 1) / static_cast<double>(warmup_iters_ + 1));
  const double done = std::min(1.0, static_cast<double>(step_count_ - warmup_iters_) /
                                        static_cast<double>(lr_decay_iters_ - warmup_iters_));
  std::vector<double> lrs;
  for (const double base : base_lrs_)
    lrs.push_back(min_lr_ + 0.5 * (1 + std::cos(pi * done)) * (base - min_lr_));
  return lrs;
}
void WarmupCosineLR::fields(StateFields& f) {
  f.owner = "WarmupCosineLR";
  f.add("warmup_iters", warmup_iters_, kNonNegative);
  f.add("lr_decay_iters", lr_decay_iters_, kAtLeastOne);
  f.add("min_lr", min_lr_, kNonNegative);
}

}  // namespace halftape::optim
