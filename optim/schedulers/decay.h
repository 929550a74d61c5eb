// Schedules that lower or raise the rate by a one-line rule.
#pragma once
#include <functional>
#include <vector>

#include "halftape/optim/schedulers/lr_scheduler.h"

namespace halftape::optim {

/// The base of the schedules that multiply the present rates by one factor per epoch.
class FactorLR : public LRScheduler {
 protected:
  using LRScheduler::LRScheduler;
  /// The factor that leads to epoch step_count_.
  virtual double factor() const = 0;
  std::vector<double> get_lrs() override { return scaled(get_current_lrs(), factor()); }
  std::vector<double> first_lrs() override { return scaled(base_lrs_, factor()); }
};

/// Multiplies by gamma every step_size epochs. (LibTorch's StepLR is one epoch later: its first
/// step() is epoch 0.) Throws unless step_size ≥ 1 and gamma ≥ 0.
class StepLR : public FactorLR {
 public:
  StepLR(const ScheduledGroups& optimizer, int64_t step_size, double gamma = 0.1);

 private:
  double factor() const override;
  void fields(StateFields& fields) override;
  int64_t step_size_;
  double gamma_;
};

/// Multiplies by gamma at each milestone, and by gammaⁿ at one that the list has n times. Throws
/// unless gamma ≥ 0.
class MultiStepLR : public FactorLR {
 public:
  MultiStepLR(const ScheduledGroups& optimizer, std::vector<int64_t> milestones,
              double gamma = 0.1);

 private:
  double factor() const override;
  void fields(StateFields& fields) override;
  std::vector<int64_t> milestones_;
  double gamma_;
};

/// Multiplies by gamma in every epoch. Throws unless gamma ≥ 0.
class ExponentialLR : public FactorLR {
 public:
  ExponentialLR(const ScheduledGroups& optimizer, double gamma);

 private:
  double factor() const override { return step_count_ == 0 ? 1 : gamma_; }
  void fields(StateFields& fields) override;
  double gamma_;
};

/// `factor` times the rate until epoch total_iters, the rate itself from there on. Throws unless
/// 0 < factor ≤ 1 (torch accepts 0, and cannot return to the rate by multiplication) and
/// total_iters ≥ 0; with 0 the rate is never multiplied (in torch always).
class ConstantLR : public FactorLR {
 public:
  explicit ConstantLR(const ScheduledGroups& optimizer, double factor = 1.0 / 3,
                      int64_t total_iters = 5);

 private:
  double factor() const override;
  void fields(StateFields& fields) override;
  double factor_;
  int64_t total_iters_;
};

/// From start_factor to end_factor times the rate within total_iters epochs: a warm-up. Throws
/// unless 0 < start_factor ≤ 1, 0 ≤ end_factor ≤ 1 and total_iters ≥ 1.
class LinearLR : public FactorLR {
 public:
  explicit LinearLR(const ScheduledGroups& optimizer, double start_factor = 1.0 / 3,
                    double end_factor = 1, int64_t total_iters = 5);

 private:
  double factor() const override;
  void fields(StateFields& fields) override;
  double start_factor_, end_factor_;
  int64_t total_iters_;
};

/// rate·(1 − epoch/total_iters)^power, and 0 from total_iters on; a power of 0 leaves the rate as
/// it is. Throws unless total_iters ≥ 1 and power ≥ 0.
class PolynomialLR : public FactorLR {
 public:
  explicit PolynomialLR(const ScheduledGroups& optimizer, int64_t total_iters = 5,
                        double power = 1);

 private:
  double factor() const override;
  void fields(StateFields& fields) override;
  int64_t total_iters_;
  double power_;
};

/// The factor of an epoch.
using LRLambda = std::function<double(int64_t epoch)>;

/// The base of the schedules by functions of the epoch: one for all groups, or one for each.
/// Functions are not saved.
class FunctionLR : public LRScheduler {
 protected:
  FunctionLR(const char* name, const ScheduledGroups& optimizer, std::vector<LRLambda> f);
  /// Each rate times the function of its group at this epoch.
  std::vector<double> times_f(std::vector<double> lrs) const;

 private:
  std::vector<LRLambda> f_;
};

/// The rate before any schedule times f(epoch).
class LambdaLR : public FunctionLR {
 public:
  LambdaLR(const ScheduledGroups& optimizer, LRLambda f)
      : LambdaLR(optimizer, std::vector{std::move(f)}) {}
  LambdaLR(const ScheduledGroups& optimizer, std::vector<LRLambda> f)
      : FunctionLR("LambdaLR", optimizer, std::move(f)) {
    initial_step();
  }

 private:
  std::vector<double> get_lrs() override { return times_f(base_lrs_); }
};

/// Multiplies the present rate by f(epoch), from epoch 1 on.
class MultiplicativeLR : public FunctionLR {
 public:
  MultiplicativeLR(const ScheduledGroups& optimizer, LRLambda f)
      : MultiplicativeLR(optimizer, std::vector{std::move(f)}) {}
  MultiplicativeLR(const ScheduledGroups& optimizer, std::vector<LRLambda> f)
      : FunctionLR("MultiplicativeLR", optimizer, std::move(f)) {
    initial_step();
  }

 private:
  std::vector<double> get_lrs() override {
    return step_count_ == 0 ? get_current_lrs() : times_f(get_current_lrs());
  }
};

}  // namespace halftape::optim
