#include "halftape/amp/grad_scaler.h"

#include <algorithm>
#include <utility>

#include "halftape/amp/scale_tag.h"
#include "halftape/amp/scaler_state.h"
#include "halftape/amp/tools/inject.h"
#include "halftape/autograd/ops/elementwise/binary.h"
#include "halftape/autograd/ops/elementwise/unary.h"
#include "halftape/autograd/ops/layout/view.h"
#include "halftape/autograd/tape/grad_mode.h"
#include "halftape/autograd/tape/policy.h"
#include "halftape/core/contract/skips.h"
#include "halftape/core/formula/unary.h"

namespace halftape::amp {
namespace {
/// f(p) of each parameter, in their order.
template <class F>
void for_parameters(const optim::Optimizer& optimizer, const F& f) {
  for (const optim::OptimizerParamGroup& group : optimizer.param_groups())
    for (const Tensor& p : group.params()) f(p);
}
}  // namespace

Tensor GradScaler::scale(const Tensor& loss) {
  if (!options_.enabled) return loss;
  check_loss(loss, "GradScaler::scale");
  if (!initialised()) create_state(loss.device());
  HALFTAPE_CHECK(loss.device() == scale_.device(), "GradScaler::scale: the loss is on ",
                 loss.device(), ", the scaler's state on ", scale_.device());
  const Device device = loss.device();
  const bool begins = !bad_loss_.defined();
  if (begins) bad_loss_ = Array({}, kFloat32, device);
  // What earlier checks have seen of it stays theirs.
  if (!bad_loss_.unique()) bad_loss_ = bad_loss_.clone();
  if (!inverse_.defined()) inverse_ = empty_like(scale_);
  if (!next_.found_inf.defined())
    next_ = {Array({}, kFloat32, device), Array({}, kInt64, device), 0};
  begin_epoch();
  // The factor is a copy, because update() changes the scale in place, and backward may come later;
  // but where an op was told the scale, that op shall see that it is the one it knows.
  return scaled_loss(loss,
                     {.scale = scale_,
                      .bad_loss = bad_loss_,
                      .begins = begins,
                      .factor = factor_is_known_ ? Array() : empty_like(scale_),
                      .inverse = inverse_,
                      .found_inf = next_.found_inf,
                      .first = next_.first},
                     scaled_);
}

Tensor GradScaler::factor() {
  if (!initialised()) return {};
  factor_is_known_ = true;
  return Tensor(scale_);
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
  judge(optimizer, "GradScaler::unscale_", InPlace::Yes);
  mine.stage = Stage::Unscaled;
}

/// Looks for what is not finite in the optimizer's gradients, as they are and once divided by the
/// scale. Divides them, or gives what they are to be multiplied by.
Array GradScaler::judge(const optim::Optimizer& optimizer, const char* call, InPlace divide) {
  begin_epoch();
  const DivisibleBy divisible{call, scaled_, options_.allow_fp16_grads};
  std::vector<Array> grads;  // in the order of the parameters, undefined where there is none
  size_t count = 0;
  for_parameters(optimizer, [&](const Tensor&) { ++count; });
  grads.reserve(count);
  bool any = false;
  for_parameters(optimizer, [&](const Tensor& p) {
    const Tensor& g = p.grad();
    if (g.defined()) divisible.check(g, grads.size());
    grads.push_back(g.defined() ? g.array() : Array());
    any |= g.defined();
  });
  if (detail::faults_planned())
    detail::apply_faults(optim::parameters_of(optimizer.param_groups()));
  if (any) {
    const Device device = scale_.device();
    if (!inverse_.defined()) {
      inverse_ = empty_like(scale_);
      backend(device).unary(UnaryOps::index<formula::Reciprocal>(), inverse_, scale_, {});
    }
    Array inverse = inverse_;
    PerOptimizer& mine = per(optimizer);
    // A bad loss has settled the verdict already.
    mine.bad_loss = bad_loss_;
    mine.finding = std::exchange(next_, {});
    if (!mine.finding.found_inf.defined()) {
      mine.finding.found_inf =
          bad_loss_.defined() ? bad_loss_.clone() : full({}, 0, kFloat32, device);
      mine.finding.first = full({}, -1, kInt64, device);
    }
    mine.finding.optimizer = met_.meet(optimizer.id(), optimizer.param_groups());
    const ScalerFinding& f = mine.finding;
    if (divide == InPlace::No) {
      backend(device).check_finite(grads, f.found_inf, inverse, f.first);
      return inverse;
    }
    backend(device).unscale(grads, inverse, f.found_inf, f.first);
    for_parameters(optimizer, [&](const Tensor& p) {
      if (p.grad().defined()) set_mark(p.grad(), unscaled_);
    });
  }
  return {};
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
  Array inverse;  // undefined: the gradients are divided already
  if (per(optimizer).stage == Stage::Ready) {
    if (divides_as_it_reads(optimizer))
      inverse = judge(optimizer, "GradScaler::step", InPlace::No);
    else
      unscale_(optimizer);
  }
  PerOptimizer& mine = per(optimizer);
  result.had_gradients = mine.finding.found_inf.defined();
  result.found_inf_ = mine.finding.found_inf;
  result.bad_loss_ = mine.bad_loss;
  for_parameters(optimizer, [&](const Tensor& p) {
    if (!p.grad().defined() || inverse.defined()) return;
    HALFTAPE_CHECK(result.had_gradients && !has_mark(p.grad(), scaled_),
                   "GradScaler::step: a gradient arrived after unscale_(optimizer) and is still "
                   "scaled; call unscale_ after the last backward()");
    check_mark(p.grad(), "GradScaler::step");
  });
  if (result.had_gradients) {
    if (optimizer.supports_control())
      optimizer.step(StepControl{mine.finding.found_inf, inverse});
    else if (!result.found_inf())
      optimizer.step();  // this optimizer decides on the host: wait
  }
  mine.stage = Stage::Stepped;
  return result;
}

/// Where a gradient is float16: divided in its own dtype, what scaling saved of it would become 0.
bool GradScaler::divides_as_it_reads(const optim::Optimizer& optimizer) {
  bool any = false;
  for_parameters(optimizer, [&](const Tensor& p) {
    any |= p.grad().defined() && p.grad().dtype() == kFloat16;
  });
  return any && optimizer.supports_control();
}

void GradScaler::update() {
  if (!options_.enabled) return;
  require_scale("update");
  HALFTAPE_CHECK(std::any_of(optimizers_.begin(), optimizers_.end(),
                             [](const PerOptimizer& p) { return p.stage != Stage::Ready; }),
                 "GradScaler::update: nothing was checked since the last update(); ",
                 "call scaler.step(optimizer) first");
  std::vector<ScalerFinding> findings;
  findings.reserve(optimizers_.size());
  for (PerOptimizer& mine : optimizers_)
    if (mine.finding.found_inf.defined()) findings.push_back(std::move(mine.finding));
  const ScalerUpdate judged{scale_,   trackers_, counts_,
                            findings, bad_loss_, options_.warn_after_skips};
  end_epoch();
  // Without any gradient there was nothing to learn about the scale: it stays.
  if (findings.empty()) return;
  backend(scale_.device()).scaler_update(judged, law_);
  watch_skips(judged.bad_loss);
}

void GradScaler::update(double new_scale) {
  if (!options_.enabled) return;
  check_scale(new_scale, law_);
  if (initialised()) {
    backend(scale_.device()).fill(scale_, new_scale);
    scale_.bump_version();
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
  const PolicyScope plain(nullptr);
  const Tensor wanted = new_scale.reshape({}).to(TensorOptions(kFloat32).device(scale_.device()));
  // NaN compares as nothing: the scale stays.
  const Tensor now(scale_),
      set = where(wanted > 0, clamp(wanted, law_.min_scale, law_.max_scale), now);
  backend(scale_.device()).copy(scale_, set.array());
  scale_.bump_version();
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
  bad_loss_ = inverse_ = {};
  next_ = {};
  factor_is_known_ = false;
  scaled_ = unscaled_ = {};
}

/// A run of n skips cannot be complete before n − (those in a row now) further updates: that is
/// when the host looks, and no sooner.
void GradScaler::watch_skips(const Array& bad_loss) {
  const int64_t most = options_.throw_after_skips;
  if (most == 0 || --until_look_ > 0) return;
  const int64_t in_row = counts().skips_in_row;
  until_look_ = most - in_row;
  HALFTAPE_CHECK(in_row < most,
                 tell_skips("GradScaler::update", in_row, static_cast<float>(get_scale()),
                            bad_loss.defined() && read_double(bad_loss) != 0),
                 " (throw_after_skips ", most, ")");
}

void GradScaler::require_scale(const char* call) const {
  HALFTAPE_CHECK(initialised(), "GradScaler::", call,
                 ": nothing was scaled yet; call scaler.scale(loss).backward() first");
}

GradScaler::PerOptimizer& GradScaler::per(const optim::Optimizer& optimizer) {
  const auto found = std::find_if(optimizers_.begin(), optimizers_.end(),
                                  [&](const PerOptimizer& p) { return p.who == optimizer.id(); });
  if (found != optimizers_.end()) return *found;
  return optimizers_.emplace_back(PerOptimizer{optimizer.id()});
}

}  // namespace halftape::amp
