#include "halftape/amp/tools/headroom.h"

#include <cmath>
#include <cstddef>
#include <limits>

#include "halftape/amp/gradients.h"
#include "halftape/autograd/methods.h"
#include "halftape/autograd/ops/elementwise/binary.h"
#include "halftape/autograd/tape/grad_mode.h"
#include "halftape/autograd/tape/policy.h"
#include "halftape/core/contract/backend.h"

namespace halftape::amp {

HeadroomGrowth::HeadroomGrowth(GradScaler& scaler, double room) : scaler_(scaler), room_(room) {
  HALFTAPE_CHECK(room >= 1 && std::isfinite(room), "HeadroomGrowth: room ", room,
                 " must be at least 1, and finite");
  HALFTAPE_CHECK(scaler.get_growth_factor() > 1,
                 "HeadroomGrowth: the scale of GradScalerOptions::fixed() never grows");
}

namespace {
/// Whether the gradients were divided by the scale: where one is float16, step() leaves that to the
/// update, and they stay scaled, unless unscale_() was called.
bool divided(const Gradients& gradients) {
  if (!gradients.any_float16) return true;
  for (const Tensor& p : gradients.parameters) {
    const GradMark mark = mark_of(p.grad());
    if (mark.tag && mark.tag->objection("", GradTag::Use::Unscaled).empty()) return true;
  }
  return false;
}
}  // namespace

void HeadroomGrowth::update(const optim::Optimizer& optimizer) {
  const Tensor before = scaler_.factor().defined() ? scaler_.factor().clone() : Tensor();
  scaler_.update();
  const std::vector<Tensor> parameters = optim::parameters_of(optimizer.param_groups());
  Gradients gradients = collect_gradients(parameters);
  if (!gradients.any) return;
  const Tensor scale = scaler_.factor();
  if (!scale.defined()) return;
  std::erase_if(gradients.arrays, [](const Array& g) { return !g.defined(); });
  const Array largest = empty_like(scale.array()), unused = empty_like(largest);
  backend(scale.device())
      .list_norm({.xs = gradients.arrays,
                  .p = std::numeric_limits<double>::infinity(),
                  .norm = largest,
                  .factor = unused});
  const NoGradGuard no_grad;
  const PolicyScope plain(nullptr);
  // What was not divided still has the scale of before, which may have grown by its interval.
  const Tensor most = Tensor(largest) * (divided(gradients) ? scale : scale / before);
  // What was skipped may have these gradients finite: for a bad loss, or for another optimizer's.
  static_assert(offsetof(ScaleCounts, skips_in_row) == 2 * sizeof(int64_t));
  const Tensor skips_in_row(scaler_.counts_.select(0, 2));
  // False for NaN, and where all gradients are 0.
  const Tensor fits =
      (most > 0) & (most * (2 * room_) <= traits(kFloat16).largest) & (skips_in_row == 0);
  scaler_.update(where(fits, scale * 2, scale));
}

}  // namespace halftape::amp
