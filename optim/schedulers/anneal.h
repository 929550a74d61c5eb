// Schedules that anneal from one value to another: one cycle with its momentum, and the constant
// rate of stochastic weight averaging.
#pragma once
#include <cstdint>
#include <vector>

#include "halftape/core/options.h"
#include "halftape/optim/schedulers/lr_scheduler.h"

namespace halftape::optim {

enum class AnnealStrategy : uint8_t { Cos, Linear };

/// A list holds one value for all groups, or one for each.
struct OneCycleLROptions {
  using Values = std::vector<double>;
  /// total_steps: usually epochs · steps_per_epoch.
  OneCycleLROptions(double max_lr, int64_t total_steps)
      : OneCycleLROptions(Values{max_lr}, total_steps) {}
  OneCycleLROptions(Values max_lr, int64_t total_steps)
      : max_lr_(std::move(max_lr)), total_steps_(total_steps) {}

  HALFTAPE_ARG(Values, max_lr);
  HALFTAPE_ARG(int64_t, total_steps) = 0;
  HALFTAPE_ARG(double, pct_start) = 0.3;  // the rising fraction of the cycle
  HALFTAPE_ARG(AnnealStrategy, anneal_strategy) = AnnealStrategy::Cos;
  HALFTAPE_ARG(bool, cycle_momentum) = true;  // SGD's momentum, or Adam's first beta
  HALFTAPE_ARG(Values, base_momentum) = {0.85};
  HALFTAPE_ARG(Values, max_momentum) = {0.95};
  HALFTAPE_ARG(double, div_factor) = 25;         // max_lr / the first rate
  HALFTAPE_ARG(double, final_div_factor) = 1e4;  // the first rate / the last one
  HALFTAPE_ARG(bool, three_phase) = false;  // as many steps down as up, then on to the last rate
};

/// Raises the rate to max_lr, then lowers it almost to 0, in total_steps steps; momentum falls and
/// rises again. Smith & Topin 2017, arXiv:1708.07120. Overwrites the optimizer's rates. Throws for
/// options out of range, for cycle_momentum without a momentum, and after total_steps steps.
class OneCycleLR : public LRScheduler {
 public:
  OneCycleLR(const ScheduledGroups& optimizer, OneCycleLROptions options);

 private:
  struct Phase {
    double end_step;
    const std::vector<double>&start_lr, &end_lr, &start_momentum, &end_momentum;
  };
  std::vector<Phase> phases() const;
  std::vector<double> get_lrs() override;
  void fields(StateFields& fields) override;
  OneCycleLROptions options_;
  bool linear_;
  std::vector<double> initial_lrs_, max_lrs_, min_lrs_, base_momenta_, max_momenta_;
};

/// From the present rates to swa_lr within anneal_epochs, then constant, for averaging the weights
/// from there on. Izmailov et al. 2018, arXiv:1803.05407. Throws if swa_lr or
/// anneal_epochs is negative.
class SWALR : public LRScheduler {
 public:
  SWALR(const ScheduledGroups& optimizer, double swa_lr, int64_t anneal_epochs = 10,
        AnnealStrategy anneal_strategy = AnnealStrategy::Cos)
      : SWALR(optimizer, std::vector{swa_lr}, anneal_epochs, anneal_strategy) {}
  SWALR(const ScheduledGroups& optimizer, const std::vector<double>& swa_lr,
        int64_t anneal_epochs = 10, AnnealStrategy anneal_strategy = AnnealStrategy::Cos);

 private:
  std::vector<double> get_lrs() override;
  void fields(StateFields& fields) override;
  std::vector<double> swa_lrs_;
  int64_t anneal_epochs_;
  bool linear_;
};

}  // namespace halftape::optim
