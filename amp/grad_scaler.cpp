#include "halftape/amp/grad_scaler.h"

#include <algorithm>

#include "halftape/amp/inject.h"
#include "halftape/amp/scale_tag.h"
#include "halftape/amp/scaler_state.h"
#include "halftape/autograd/grad_mode.h"
#include "halftape/autograd/ops/binary.h"
#include "halftape/autograd/ops/unary.h"
#include "halftape/autograd/ops/view.h"
#include "halftape/autograd/policy.h"
#include "halftape/autograd/record.h"
#include "halftape/core/formula/unary.h"

namespace halftape::amp {

Tensor GradScaler::scale(const Tensor& loss) {
  if (!options_.enabled) return loss;
  HALFTAPE_CHECK(loss.defined() && loss.is_floating_point(),
                 "GradScaler::scale: expected a floating-point tensor");
  if (!initialised()) create_state(loss.device());
  HALFTAPE_CHECK(loss.device().type() == scale_.device().type(),
                 "GradScaler::scale: the loss is on ", loss.device(), ", the scaler's state on ",
                 scale_.device());
  if (!bad_loss_.defined()) bad_loss_ = full({}, 0, kFloat32, loss.device());
  backend(loss.device()).check_finite({&loss.array(), 1}, bad_loss_);
  begin_epoch();
  const PolicyScope plain(nullptr);
  // A copy of the scale: update() changes the scaler's own in place, and backward may come later.
  const Tensor factor = scale_.detach().clone();
  return record("scale", mul(loss.detach(), factor).array(), {&loss},
                [factor, tag = scaled_](Node&, const Tensor& g) -> Grads {
                  GradTag::mark_pass(tag);
                  return {mul(g, factor)};
                });
}

std::vector<Tensor> GradScaler::scale(const std::vector<Tensor>& losses) {
  std::vector<Tensor> scaled;
  scaled.reserve(losses.size());
  for (const Tensor& loss : losses) scaled.push_back(scale(loss));
  return scaled;
}

void GradScaler::unscale_(optim::Optimizer& optimizer) {
  if (!options_.enabled) return;
  require_scale("unscale_");
  PerOptimizer& mine = per(optimizer);
  HALFTAPE_CHECK(mine.stage != Stage::Unscaled,
                 "GradScaler::unscale_: already called for this optimizer since the last update(); "
                 "call it once per step");
  HALFTAPE_CHECK(
      mine.stage != Stage::Stepped,
      "GradScaler::unscale_: called after step(); call update() first, or unscale_ before step()");
  begin_epoch();
  const std::vector<Array> grads = scaled_gradients(optimizer);
  detail::apply_faults(optimizer);
  if (std::any_of(grads.begin(), grads.end(), [](const Array& g) { return g.defined(); })) {
    const Device device = scale_.device();
    const Array inverse = empty_like(scale_.array());
    backend(device).unary(UnaryOps::index<formula::Reciprocal>(), inverse, scale_.array(), {});
    mine.finding = {verdict_so_far(), full({}, -1, kInt64, device), meet(optimizer)};
    backend(device).unscale(grads, inverse, mine.finding.found_inf, mine.finding.first);
    for (const Tensor& p : optimizer.parameters())
      if (p.grad().defined()) set_mark(p.grad(), unscaled_);
  }
  mine.stage = Stage::Unscaled;
}

/// In the order of the parameters, undefined where there is none.
std::vector<Array> GradScaler::scaled_gradients(const optim::Optimizer& optimizer) const {
  std::vector<Array> grads;
  for (const Tensor& p : optimizer.parameters()) {
    const Tensor& g = p.grad();
    if (g.defined()) {
      HALFTAPE_CHECK(options_.allow_fp16_grads || g.dtype() != kFloat16,
                     "GradScaler::unscale_: the gradient of parameter ", grads.size(), ", ",
                     p.sizes(),
                     ", is float16, which loses what scaling saved when it is divided back; keep "
                     "parameters in float32 and let autocast make the halves, or set "
                     "allow_fp16_grads");
      const GradMark mark = mark_of(g);
      HALFTAPE_CHECK(!mark.known || mark.tag, "GradScaler::unscale_: the gradient of parameter ",
                     grads.size(), ", ", p.sizes(),
                     ", is of a loss that was not scaled; call scaler.scale(loss).backward()");
      HALFTAPE_CHECK(!mark.known || mark.tag == scaled_,
                     "GradScaler::unscale_: the gradient of parameter ", grads.size(), ", ",
                     p.sizes(),
                     ", is not of a loss that was scaled since the last update(): it was unscaled "
                     "already, or scaled earlier; call optimizer.zero_grad(), then "
                     "scaler.scale(loss).backward()");
    }
    grads.push_back(g.defined() ? g.array() : Array());
  }
  return grads;
}

/// A fresh verdict, which a bad loss has settled already.
Array GradScaler::verdict_so_far() const {
  return bad_loss_.defined() ? bad_loss_.clone() : full({}, 0, kFloat32, scale_.device());
}

StepResult GradScaler::step(optim::Optimizer& optimizer,
                            const optim::Optimizer::LossClosure& closure) {
  StepResult result;
  if (!options_.enabled) {
    result.loss = optimizer.step(closure);
    return result;
  }
  HALFTAPE_CHECK(
      !closure,
      "GradScaler::step: a closure computes an unscaled loss; run forward, scale and backward ",
      "yourself and call step(optimizer)");
  require_scale("step");
  HALFTAPE_CHECK(per(optimizer).stage != Stage::Stepped,
                 "GradScaler::step: already called for this optimizer since the last update(); "
                 "call update() first");
  if (per(optimizer).stage == Stage::Ready) unscale_(optimizer);
  PerOptimizer& mine = per(optimizer);
  result.had_gradients = mine.finding.found_inf.defined();
  result.found_inf_ = mine.finding.found_inf;
  result.bad_loss_ = bad_loss_;
  for (const Tensor& p : optimizer.parameters())
    HALFTAPE_CHECK(
        !p.grad().defined() || (result.had_gradients && mark_of(p.grad()).tag != scaled_),
        "GradScaler::step: a gradient arrived after unscale_(optimizer) and is still "
        "scaled; call unscale_ after the last backward()");
  if (result.had_gradients) {
    if (optimizer.supports_control())
      optimizer.step(StepControl{mine.finding.found_inf, {}});
    else if (!result.found_inf())
      optimizer.step();  // this optimizer decides on the host: wait
  }
  mine.stage = Stage::Stepped;
  return result;
}

void GradScaler::update() {
  if (!options_.enabled) return;
  require_scale("update");
  HALFTAPE_CHECK(!optimizers_.empty(),
                 "GradScaler::update: nothing was checked since the last update(); ",
                 "call scaler.step(optimizer) first");
  std::vector<ScalerFinding> findings;
  for (const PerOptimizer& mine : optimizers_)
    if (mine.finding.found_inf.defined()) findings.push_back(mine.finding);
  const ScalerUpdate judged{scale_.array(), trackers_, counts_,
                            findings,       bad_loss_, options_.warn_after_skips};
  end_epoch();
  // Without any gradient there was nothing to learn about the scale: it stays.
  if (findings.empty()) return;
  backend(scale_.device()).scaler_update(judged, law_);
  watch_skips();
}

void GradScaler::update(double new_scale) {
  if (!options_.enabled) return;
  check_scale(new_scale, law_);
  if (initialised()) {
    const NoGradGuard no_grad;
    scale_.fill_(new_scale);
  } else {
    initial_.scale = static_cast<float>(new_scale);
  }
  end_epoch();
}

void GradScaler::update(const Tensor& new_scale) {
  if (!options_.enabled) return;
  HALFTAPE_CHECK(new_scale.defined() && new_scale.numel() == 1 && new_scale.is_floating_point() &&
                     !new_scale.requires_grad(),
                 "GradScaler::update: the new scale must be a floating-point tensor of one element "
                 "that does not require grad");
  require_scale("update");
  const NoGradGuard no_grad;
  scale_.copy_(clamp(new_scale.reshape({}), law_.min_scale, law_.max_scale));
  end_epoch();
}

void GradScaler::begin_epoch() {
  if (scaled_) return;
  scaled_ = make_ref<ScaleTag>(ScaleTag::Is::Scaled);
  unscaled_ = make_ref<ScaleTag>(ScaleTag::Is::Unscaled);
}

/// The next gradients are of another scale.
void GradScaler::end_epoch() {
  optimizers_.clear();
  bad_loss_ = {};
  scaled_ = unscaled_ = {};
}

/// A run of n skips cannot be complete before n − (those in a row now) further updates: that is
/// when the host looks, and no sooner.
void GradScaler::watch_skips() {
  const int64_t most = options_.throw_after_skips;
  if (most == 0 || --until_look_ > 0) return;
  const int64_t in_row = counts().skips_in_row;
  until_look_ = most - in_row;
  HALFTAPE_CHECK(in_row < most, "GradScaler::update: ", in_row,
                 " steps in a row were skipped (throw_after_skips ", most, "), the scale is ",
                 get_scale(),
                 "; stats() tells whether losses or gradients are not finite, and which");
}

void GradScaler::require_scale(const char* call) const {
  HALFTAPE_CHECK(initialised(), "GradScaler::", call,
                 ": nothing was scaled yet; call scaler.scale(loss).backward() first");
}

GradScaler::PerOptimizer& GradScaler::per(const optim::Optimizer& optimizer) {
  const auto found = std::find_if(optimizers_.begin(), optimizers_.end(),
                                  [&](const PerOptimizer& p) { return p.who == &optimizer; });
  if (found != optimizers_.end()) return *found;
  return optimizers_.emplace_back(PerOptimizer{&optimizer, {}});
}

}  // namespace halftape::amp
