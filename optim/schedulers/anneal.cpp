#include "halftape/optim/schedulers/anneal.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace halftape::optim {
namespace {

/// From `start` to `end` as `done` goes from 0 to 1.
double anneal(double start, double end, double done, bool linear) {
  if (linear) return (end - start) * done + start;
  return end + (start - end) / 2 * (std::cos(std::numbers::pi * done) + 1);
}

/// The name of the option that acts as momentum; null for none.
const char* momentum_of(const std::map<std::string, double>& options) {
  if (options.count("beta1")) return "beta1";
  return options.count("momentum") ? "momentum" : nullptr;
}

}  // namespace

OneCycleLR::OneCycleLR(const ScheduledGroups& optimizer, OneCycleLROptions options)
    : LRScheduler(optimizer),
      options_(std::move(options)),
      linear_(options_.anneal_strategy() == AnnealStrategy::Linear) {
  const auto& o = options_;
  HALFTAPE_CHECK(o.div_factor() > 0 && o.final_div_factor() > 0, "OneCycleLR: div_factor ",
                 o.div_factor(), " and final_div_factor ", o.final_div_factor(),
                 " must be positive");
  max_lrs_ = per_group("max_lr", o.max_lr());
  base_momenta_ = per_group("base_momentum", o.base_momentum());
  max_momenta_ = per_group("max_momentum", o.max_momentum());
  for (OptimizerParamGroup& group : *groups_)
    HALFTAPE_CHECK(!o.cycle_momentum() || momentum_of(group.options().to_map()),
                   "OneCycleLR: this optimizer has no momentum; turn cycle_momentum off");
  for (size_t i = 0; i < max_lrs_.size(); ++i) {
    initial_lrs_.push_back(max_lrs_[i] / o.div_factor());
    min_lrs_.push_back(initial_lrs_[i] / o.final_div_factor());
  }
  base_lrs_ = initial_lrs_;
  initial_step();
  for (size_t i = 0; i < max_lrs_.size(); ++i) (*groups_)[i].initial_lr = initial_lrs_[i];
}

std::vector<OneCycleLR::Phase> OneCycleLR::phases() const {
  const auto steps = static_cast<double>(options_.total_steps());
  const double top = options_.pct_start() * steps - 1;
  const Phase up{top, initial_lrs_, max_lrs_, max_momenta_, base_momenta_};
  if (!options_.three_phase())
    return {up, {steps - 1, max_lrs_, min_lrs_, base_momenta_, max_momenta_}};
  return {
      up,
      {2 * options_.pct_start() * steps - 2, max_lrs_, initial_lrs_, base_momenta_, max_momenta_},
      {steps - 1, initial_lrs_, min_lrs_, max_momenta_, max_momenta_}};
}

std::vector<double> OneCycleLR::get_lrs() {
  const auto step = static_cast<double>(step_count_);
  HALFTAPE_CHECK(step_count_ <= options_.total_steps(), "OneCycleLR: step ", step_count_,
                 " is beyond total_steps ", options_.total_steps());
  const std::vector<Phase> all = phases();
  size_t p = 0;
  while (p + 1 < all.size() && step > all[p].end_step) ++p;
  const Phase& phase = all[p];
  const double start_step = p == 0 ? 0 : all[p - 1].end_step;
  const double length = phase.end_step - start_step;
  double done = length == 0 ? 1 : (step - start_step) / length;
  // The step after the last one, whose rate no optimizer's step uses, has no other than that: on
  // the line it would be below 0.
  if (linear_) done = std::min(done, 1.0);
  std::vector<double> lrs;
  std::vector<std::map<std::string, double>> momenta;
  for (size_t i = 0; i < max_lrs_.size(); ++i) {
    lrs.push_back(anneal(phase.start_lr[i], phase.end_lr[i], done, linear_));
    if (!options_.cycle_momentum()) continue;
    const OptimizerOptions& options = (*groups_)[i].options();
    auto& values = momenta.emplace_back(options.to_map());
    values[momentum_of(values)] =
        anneal(phase.start_momentum[i], phase.end_momentum[i], done, linear_);
    options.clone()->from_map(values);  // throws before any group has changed
  }
  for (size_t i = 0; i < momenta.size(); ++i) (*groups_)[i].options().from_map(momenta[i]);
  return lrs;
}

void OneCycleLR::fields(StateFields& f) {
  f.owner = "OneCycleLR";
  f.add("total_steps", options_.total_steps(), kAtLeastOne);
  f.add("pct_start", options_.pct_start(), kFraction);
  f.add("cycle_momentum", options_.cycle_momentum());
  f.add("three_phase", options_.three_phase());
  f.add("linear", linear_);
  f.add("max_lr", max_lrs_, kNonNegative);
  f.add("initial_lr", initial_lrs_, kNonNegative);
  f.add("min_lr", min_lrs_, kNonNegative);
  f.add("base_momentum", base_momenta_, kNonNegative);
  f.add("max_momentum", max_momenta_, kNonNegative);
}

SWALR::SWALR(const ScheduledGroups& optimizer, const std::vector<double>& swa_lr,
             int64_t anneal_epochs, AnnealStrategy anneal_strategy)
    : LRScheduler(optimizer),
      swa_lrs_(per_group("swa_lr", swa_lr)),
      anneal_epochs_(anneal_epochs),
      linear_(anneal_strategy == AnnealStrategy::Linear) {
  initial_step();
}

std::vector<double> SWALR::get_lrs() {
  // Without epochs to anneal in, epoch 0 has the last rate.
  const int64_t epoch = anneal_epochs_ == 0 ? std::max<int64_t>(1, step_count_) : step_count_;
  const auto done = [&](int64_t e) {
    const double t = std::clamp(
        static_cast<double>(e) / static_cast<double>(std::max<int64_t>(1, anneal_epochs_)), 0.0,
        1.0);
    return linear_ ? t : (1 - std::cos(std::numbers::pi * t)) / 2;
  };
  const double before = done(epoch - 1), now = done(epoch);
  std::vector<double> lrs = get_current_lrs();
  for (size_t i = 0; i < lrs.size(); ++i) {
    // Computes the rate before annealing from the present one, then anneals it to `now`.
    const double from = before == 1 ? swa_lrs_[i] : (lrs[i] - before * swa_lrs_[i]) / (1 - before);
    lrs[i] = swa_lrs_[i] * now + from * (1 - now);
  }
  return lrs;
}

void SWALR::fields(StateFields& f) {
  f.owner = "SWALR";
  f.add("swa_lr", swa_lrs_, kNonNegative);
  f.add("anneal_epochs", anneal_epochs_, kNonNegative);
  f.add("linear", linear_);
}

}  // namespace halftape::optim
