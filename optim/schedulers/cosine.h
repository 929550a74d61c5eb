// Schedules that follow a cosine.
#pragma once
#include "halftape/optim/schedulers/lr_scheduler.h"

namespace halftape::optim {

/// From the rate to eta_min along half a cosine of T_max epochs, and up again in the epochs after.
/// Loshchilov & Hutter 2016, arXiv:1608.03983, without its restarts. Throws unless T_max ≥ 1
/// and eta_min ≥ 0.
class CosineAnnealingLR : public LRScheduler {
 public:
  CosineAnnealingLR(const ScheduledGroups& optimizer, int64_t T_max, double eta_min = 0);

 private:
  std::vector<double> get_lrs() override;
  std::vector<double> first_lrs() override { return base_lrs_; }
  void fields(StateFields& fields) override;
  int64_t T_max_;
  double eta_min_;
};

/// Half a cosine of T_0 epochs, then one of T_0·T_mult epochs, and so on; each begins with the full
/// rate. Throws unless T_0 ≥ 1, T_mult ≥ 1 and eta_min ≥ 0.
class CosineAnnealingWarmRestarts : public LRScheduler {
 public:
  CosineAnnealingWarmRestarts(const ScheduledGroups& optimizer, int64_t T_0, int64_t T_mult = 1,
                              double eta_min = 0);
  void step() override;
  /// Sets the rate of a moment between epochs: step(epoch + batch / batches). Throws unless it is
  /// in [0, 2^53).
  void step(double epoch);

 private:
  std::vector<double> get_lrs() override;
  void rewind() override;
  void restart() override { step(0.0); }
  void fields(StateFields& fields) override;
  void check() const override;
  int64_t T_0_, T_mult_;
  double T_i_, T_cur_ = 0,
               eta_min_;  // the present cosine's length, and the epochs of it that are over
};

/// The schedule of nanoGPT's training loop, epoch by epoch: rate·(epoch + 1)/(warmup_iters + 1) in
/// the first warmup_iters epochs, then half a cosine that reaches min_lr at epoch lr_decay_iters,
/// then min_lr. Throws unless 0 ≤ warmup_iters < lr_decay_iters and min_lr ≥ 0.
///
/// Except in the first epochs of the warm-up, SequentialLR of a LinearLR and a CosineAnnealingLR
/// gives the same rates.
class WarmupCosineLR : public LRScheduler {
 public:
  WarmupCosineLR(const ScheduledGroups& optimizer, int64_t warmup_iters, int64_t lr_decay_iters,
                 double min_lr = 0);

 private:
  std::vector<double> get_lrs() override;
  void fields(StateFields& fields) override;
  void check() const override;
  int64_t warmup_iters_, lr_decay_iters_;
  double min_lr_;
};

}  // namespace halftape::optim
