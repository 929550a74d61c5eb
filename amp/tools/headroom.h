// Growth of the loss scale by headroom, beside GradScaler's growth by intervals.
#pragma once
#include "halftape/amp/grad_scaler.h"

namespace halftape::amp {

/// Doubles the scale after each step whose gradients leave room for it: 2·room·max|g|·scale ≤
/// 65504, where g are the gradients of the parameters, divided by the scale. Overflows back off as
/// ever. A useful scale is reached within tens of steps, and few steps are skipped; no better
/// accuracy was measured (docs/mixed_precision.md). One pass more over the gradients; nothing
/// waits. Do not clip the gradients in place: smaller ones look like room.
///
///     amp::GradScaler scaler;
///     amp::HeadroomGrowth growth(scaler);
///     for (…) {
///       optimizer.zero_grad();
///       scaler.scale(loss).backward();
///       scaler.step(optimizer);
///       growth.update(optimizer);   // in place of scaler.update()
///     }
class HeadroomGrowth {
 public:
  /// The scaler must outlive this. Its growth_interval goes on counting; give it a long one. Throws
  /// unless room ≥ 1 is finite, and for a fixed scale.
  explicit HeadroomGrowth(GradScaler& scaler, double room = 2);
  /// scaler.update(), and then the growth. Parameters must be on the scaler's device. Throws as
  /// scaler.update() does.
  void update(const optim::Optimizer& optimizer);

 private:
  GradScaler& scaler_;
  double room_;
};

}  // namespace halftape::amp
