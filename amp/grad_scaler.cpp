#include "halftape/amp/grad_scaler.h"

#include <cmath>

#include "halftape/autograd/grad_mode.h"
#include "halftape/autograd/ops/binary.h"
#include "halftape/autograd/policy.h"
#include "halftape/core/formula/binary.h"
#include "halftape/core/formula/unary.h"

namespace halftape::amp {
namespace {

void check_scale(double scale) {
  HALFTAPE_CHECK(std::isfinite(static_cast<float>(scale)) && scale > 0, "GradScaler: scale ", scale,
                 " must be positive and finite in float32");
}

void check_law(const ScalerLaw& law) {
  const bool fixed = law.growth_factor == 1 && law.backoff_factor == 1;
  HALFTAPE_CHECK(fixed || (law.growth_factor > 1 && std::isfinite(law.growth_factor)),
                 "GradScaler: growth_factor ", law.growth_factor,
                 " must be greater than 1 (or 1 with backoff_factor 1, for a fixed scale)");
  HALFTAPE_CHECK(fixed || (law.backoff_factor > 0 && law.backoff_factor < 1),
                 "GradScaler: backoff_factor ", law.backoff_factor, " must lie between 0 and 1");
  HALFTAPE_CHECK(law.growth_interval > 0, "GradScaler: growth_interval ", law.growth_interval,
                 " must be positive");
  HALFTAPE_CHECK(law.min_scale >= 0 && law.min_scale <= law.max_scale, "GradScaler: min_scale ",
                 law.min_scale, " and max_scale ", law.max_scale, " are not an interval");
}

ScalerLaw law_of(const GradScalerOptions& o) {
  ScalerLaw law;
  law.growth_factor = o.growth_factor;
  law.backoff_factor = o.backoff_factor;
  law.growth_interval = o.growth_interval;
  if (o.min_scale) law.min_scale = *o.min_scale;
  if (o.max_scale) law.max_scale = *o.max_scale;
  return law;
}

}  // namespace

GradScaler::GradScaler(GradScalerOptions options) : options_(options), law_(law_of(options)) {
  if (!options_.enabled) return;
  check_law(law_);
  check_scale(options_.init_scale);
  initial_.scale = static_cast<float>(options_.init_scale);
}

void GradScaler::require_scale(const char* call) const {
  HALFTAPE_CHECK(initialised(), "GradScaler::", call,
                 ": nothing was scaled yet; call scaler.scale(loss).backward() first");
}

Tensor GradScaler::scale(const Tensor& loss) {
  if (!options_.enabled) return loss;
  HALFTAPE_CHECK(loss.defined() && loss.is_floating_point(),
                 "GradScaler::scale: expected a floating-point tensor");
  if (!initialised()) {
    scale_ = Tensor(full({}, initial_.scale, kFloat32, loss.device()));
    trackers_ = full({2}, 0, kInt32, loss.device());
    backend(loss.device()).fill(trackers_.slice(0, 0, 1), initial_.growth_tracker);
  }
  HALFTAPE_CHECK(loss.device().type() == scale_.device().type(),
                 "GradScaler::scale: the loss is on ", loss.device(), ", the scaler's state on ",
                 scale_.device());
  const PolicyScope plain(nullptr);
  // A copy of the scale: update() changes the scaler's own in place, and backward may come later.
  return loss * scale_.detach().clone();
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
  PerOptimizer& mine = optimizers_[&optimizer];
  HALFTAPE_CHECK(mine.stage != Stage::Unscaled,
                 "GradScaler::unscale_: already called for this optimizer since the last update(); "
                 "call it once per step");
  HALFTAPE_CHECK(
      mine.stage != Stage::Stepped,
      "GradScaler::unscale_: called after step(); call update() first, or unscale_ before step()");
  std::vector<Array> grads;
  for (const Tensor& p : optimizer.parameters()) {
    const Tensor& g = p.grad();
    if (!g.defined()) continue;
    HALFTAPE_CHECK(options_.allow_fp16_grads || g.dtype() != kFloat16,
                   "GradScaler::unscale_: the gradient of a ", p.sizes(),
                   " parameter is float16, which loses what scaling saved when it is divided back; "
                   "keep parameters in ",
                   "float32 and let autocast make the halves, or set allow_fp16_grads");
    grads.push_back(g.array());
  }
  if (!grads.empty()) {
    const Device device = scale_.device();
    const Array inverse = empty_like(scale_.array());
    backend(device).unary(UnaryOps::index<formula::Reciprocal>(), inverse, scale_.array(), {});
    mine.found_inf = full({}, 0, kFloat32, device);
    backend(device).unscale(grads, inverse, mine.found_inf);
  }
  mine.stage = Stage::Unscaled;
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
  HALFTAPE_CHECK(optimizers_[&optimizer].stage != Stage::Stepped,
                 "GradScaler::step: already called for this optimizer since the last update(); "
                 "call update() first");
  if (optimizers_[&optimizer].stage == Stage::Ready) unscale_(optimizer);
  PerOptimizer& mine = optimizers_[&optimizer];
  result.had_gradients = mine.found_inf.defined();
  result.found_inf_ = mine.found_inf;
  if (result.had_gradients) {
    if (optimizer.supports_control())
      optimizer.step(StepControl{mine.found_inf, {}});
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
  Array found;  // the sum over optimizers: not zero when any overflowed
  for (const auto& [optimizer, mine] : optimizers_) {
    if (!mine.found_inf.defined()) continue;
    if (!found.defined()) {
      found = mine.found_inf;
      continue;
    }
    const Array sum = empty_like(found);
    backend(sum.device()).binary(BinaryOps::index<formula::Add>(), sum, found, mine.found_inf);
    found = sum;
  }
  // Without any gradient there was nothing to learn about the scale: it stays.
  if (found.defined()) {
    const ScalerFinding finding{found, {}};
    backend(found.device()).scaler_update({scale_.array(), trackers_, {}, {&finding, 1}, {}}, law_);
  }
  optimizers_.clear();
}

void GradScaler::update(double new_scale) {
  if (!options_.enabled) return;
  check_scale(new_scale);
  if (initialised()) {
    const NoGradGuard no_grad;
    scale_.fill_(new_scale);
  } else {
    initial_.scale = static_cast<float>(new_scale);
  }
  optimizers_.clear();
}

void GradScaler::update(const Tensor& new_scale) {
  if (!options_.enabled) return;
  HALFTAPE_CHECK(new_scale.defined() && new_scale.numel() == 1 && new_scale.is_floating_point() &&
                     !new_scale.requires_grad(),
                 "GradScaler::update: the new scale must be a floating-point tensor of one element "
                 "that does not require grad");
  require_scale("update");
  const NoGradGuard no_grad;
  scale_.copy_(new_scale.reshape({}));
  optimizers_.clear();
}

double GradScaler::get_scale() const {
  if (!options_.enabled) return 1;
  return initialised() ? scale_.item<double>() : initial_.scale;
}

int64_t GradScaler::get_growth_tracker() const {
  return initialised() ? read_int64(trackers_.slice(0, 0, 1)) : initial_.growth_tracker;
}

void GradScaler::set_growth_factor(double factor) {
  ScalerLaw law = law_;
  law.growth_factor = factor;
  check_law(law);
  law_ = law;
}
void GradScaler::set_backoff_factor(double factor) {
  ScalerLaw law = law_;
  law.backoff_factor = factor;
  check_law(law);
  law_ = law;
}
void GradScaler::set_growth_interval(int64_t interval) {
  ScalerLaw law = law_;
  law.growth_interval = interval;
  check_law(law);
  law_ = law;
}

GradScaler::StateDict GradScaler::state_dict() const {
  if (!options_.enabled) return {};
  return {{"scale", get_scale()},
          {"growth_factor", law_.growth_factor},
          {"backoff_factor", law_.backoff_factor},
          {"growth_interval", static_cast<double>(law_.growth_interval)},
          {"_growth_tracker", static_cast<double>(get_growth_tracker())}};
}

void GradScaler::load_state_dict(const StateDict& saved) {
  if (!options_.enabled) return;
  HALFTAPE_CHECK(
      !saved.empty(),
      "GradScaler::load_state_dict: the saved state is empty; was it saved by a disabled scaler?");
  auto value = [&](const char* key) {
    const auto found = saved.find(key);
    HALFTAPE_CHECK(found != saved.end(), "GradScaler::load_state_dict: \"", key, "\" is missing");
    return found->second;
  };
  ScalerLaw law = law_;
  law.growth_factor = value("growth_factor");
  law.backoff_factor = value("backoff_factor");
  law.growth_interval = convert<int64_t>(value("growth_interval"));
  check_law(law);
  const double scale = value("scale"), tracker = value("_growth_tracker");
  check_scale(scale);
  HALFTAPE_CHECK(tracker >= 0 && tracker <= std::numeric_limits<int32_t>::max(),
                 "GradScaler::load_state_dict: growth tracker ", tracker, " is out of range");
  law_ = law;
  initial_ = {static_cast<float>(scale), static_cast<int32_t>(tracker)};
  if (!initialised()) return;
  const NoGradGuard no_grad;
  scale_.fill_(scale);
  backend(scale_.device()).fill(trackers_.slice(0, 0, 1), initial_.growth_tracker);
}

}  // namespace halftape::amp
