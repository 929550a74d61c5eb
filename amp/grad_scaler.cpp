#include "halftape/amp/grad_scaler.h"

#include <algorithm>
#include <array>
#include <utility>

#include "halftape/amp/agreement.h"
#include "halftape/amp/gradients.h"
#include "halftape/autograd/ops/elementwise/binary.h"
#include "halftape/autograd/ops/elementwise/unary.h"
#include "halftape/autograd/ops/layout/view.h"
#include "halftape/autograd/tape/grad_mode.h"
#include "halftape/autograd/tape/policy.h"
#include "halftape/autograd/tape/separate_gradients.h"
#include "halftape/core/bit_cast.h"
#include "halftape/core/capture/capture.h"
#include "halftape/core/contract/backend.h"
#include "halftape/core/formula/scale.h"
#include "halftape/core/formula/unary.h"
#include "halftape/core/machine/warn.h"

namespace halftape::amp {

std::ostream& operator<<(std::ostream& out, const StepResult& result) {
  return out << (!result.had_gradients ? "nothing to do: no gradients"
                 : !result.found_inf() ? "applied"
                 : result.bad_loss()   ? "skipped: the loss is not finite"
                                       : "skipped: a gradient is not finite");
}

GradScaler::GradScaler(GradScalerOptions options) : ScalerBase(options) {
  state_number_ = new_state_number();
  if (!options_.enabled) return;
  initial_.scale = static_cast<float>(options_.init_scale);
  updates_until_read_ = options_.throw_after_skips;
}

Tensor GradScaler::scale(const Tensor& loss) {
  if (!options_.enabled) return loss;
  check_loss(loss, "GradScaler::scale");
  if (!initialised()) create_state(loss.device());
  HALFTAPE_CHECK(loss.device() == scale_.device(), "GradScaler::scale: the loss is on ",
                 loss.device(), ", the scaler's state on ", scale_.device());
  const Device device = loss.device();
  begin_epoch();
  // Members change only after the device has written what they will hold.
  const bool begins = !bad_loss_.defined();
  Array bad_loss = begins               ? Array({}, kFloat32, device)
                   : bad_loss_.unique() ? bad_loss_
                                        : bad_loss_.clone();  // earlier checks keep what they saw
  Array inverse = inverse_.defined() ? inverse_ : empty_like(scale_);
  CheckResult next = next_;
  if (!next.found_inf.defined()) next = {Array({}, kFloat32, device), Array({}, kInt64, device), 0};
  // The factor is a copy, because update() changes the scale in place and backward() may come
  // later. An op that was given factor() must recognise it, so then the scale itself is used.
  Tensor scaled = scaled_loss(loss,
                              {.scale = scale_,
                               .nonfinite = bad_loss,
                               .begins = begins,
                               .factor = factor_is_known_ ? Array() : empty_like(scale_),
                               .inverse = inverse,
                               .found_inf = next.found_inf,
                               .first = next.first},
                              scaled_);
  bad_loss_ = std::move(bad_loss);
  inverse_ = std::move(inverse);
  next_ = std::move(next);
  return scaled;
}

Tensor GradScaler::factor() {
  if (!initialised()) return {};
  factor_is_known_ = true;
  return Tensor(scale_);
}

void GradScaler::unscale_(optim::Optimizer& optimizer) {
  if (!options_.enabled) return tell_disabled(optim::parameters_of(optimizer.param_groups()), 2);
  require_scale("unscale_");
  PerOptimizer& mine = entry(optimizer);
  HALFTAPE_CHECK(mine.stage != Stage::Unscaled,
                 "GradScaler::unscale_: already called for this optimizer since the last update(); "
                 "call it once per step");
  HALFTAPE_CHECK(
      mine.stage != Stage::Stepped,
      "GradScaler::unscale_: called after step(); call update() first, or unscale_ before step()");
  mine.checked = check_or_unscale(optimizer, Divide::InPlace);
  mine.stage = Stage::Unscaled;
}

StepResult GradScaler::step(optim::Optimizer& optimizer,
                            const optim::Optimizer::LossClosure& closure) {
  StepResult result;
  if (!options_.enabled) {
    if (!closure) tell_disabled(optim::parameters_of(optimizer.param_groups()), 2);
    result.loss = optimizer.step(closure);
    return result;
  }
  HALFTAPE_CHECK(
      !closure,
      "GradScaler::step: a closure computes an unscaled loss; run forward, scale and backward ",
      "yourself and call step(optimizer)");
  require_scale("step");
  PerOptimizer& mine = entry(optimizer);
  HALFTAPE_CHECK(mine.stage != Stage::Stepped,
                 "GradScaler::step: already called for this optimizer since the last update(); "
                 "call update() first");
  if (mine.stage != Stage::Unscaled)
    mine.checked = check_or_unscale(optimizer, Divide::InUpdateIfFloat16);
  attempt(optimizer, [&] {
    if (mine.stage == Stage::Unscaled) check_unscaled(optimizer, mine.checked);
    const auto& [finding, bad_loss, inv_scale] = mine.checked;
    result.had_gradients = finding.found_inf.defined();
    result.found_inf_ = finding.found_inf;
    result.bad_loss_ = bad_loss;
    if (!result.had_gradients) return;
    if (optimizer.supports_control())
      optimizer.step(StepControl{finding.found_inf, inv_scale});
    else if (!result.found_inf())
      optimizer.step();  // this optimizer decides on the host: wait
  });
  mine.stage = Stage::Stepped;
  return result;
}

/// Runs f, which uses up the optimizer's gradients. If f throws, nobody knows which of them were
/// divided or applied: they are of no further use, and the optimizer may begin anew.
template <class F>
void GradScaler::attempt(const optim::Optimizer& optimizer, const F& f) {
  try {
    f();
  } catch (...) {
    for (const optim::OptimizerParamGroup& group : optimizer.param_groups())
      for (const Tensor& p : group.params())
        if (p.grad().defined()) make_useless(p.grad(), failed_);
    entry(optimizer).stage = Stage::Failed;
    throw;
  }
}

/// Checks that the gradients are finite, both as they are and divided by the scale. Divides them in
/// place, or leaves that to the update: a small gradient divided in float16 would become 0.
GradScaler::CheckedGradients GradScaler::check_or_unscale(const optim::Optimizer& optimizer,
                                                          Divide where) {
  begin_epoch();
  const std::vector<Tensor> parameters = optim::parameters_of(optimizer.param_groups());
  HALFTAPE_CHECK(!parameters.empty(),
                 "GradScaler: the optimizer has no parameters; are the modules registered?");
  separate_gradients(parameters, scale_);
  const Gradients grads = collect_gradients(parameters);
  const bool in_update =
      where == Divide::InUpdateIfFloat16 && grads.any_float16 && optimizer.supports_control();
  check_divisible(grads, in_update ? "GradScaler::step" : "GradScaler::unscale_", scaled_,
                  scale_.device(), options_.allow_fp16_grads);
  call_gradient_hook(parameters);
  if (!grads.any) return {};
  const Device device = scale_.device();
  if (!inverse_.defined()) {
    Array inverse = empty_like(scale_);
    backend(device).unary(UnaryOps::index<formula::Reciprocal>(), inverse, scale_, {});
    inverse_ = std::move(inverse);
  }
  CheckedGradients checked{std::exchange(next_, {}), bad_loss_};
  auto& finding = checked.finding;
  Array &found_inf = finding.found_inf, &first = finding.first;
  if (!found_inf.defined()) {
    // After a bad loss the step is skipped, whatever the gradients are.
    found_inf = bad_loss_.defined() ? bad_loss_.clone() : full({}, 0, kFloat32, device);
    first = full({}, -1, kInt64, device);
  }
  finding.list = registry_.number_of(optimizer.id(), optimizer.param_groups());
  if (in_update) {
    backend(device).check_finite(grads.arrays, found_inf, inverse_, first);
    checked.inv_scale = inverse_;
    agree(parameters, checked);
    return checked;
  }
  const Ref<GradTag> unscaled = make_ref<ScaleTag>(found_inf);
  attempt(optimizer, [&] { backend(device).unscale(grads.arrays, inverse_, found_inf, first); });
  for (const Tensor& p : parameters)
    if (p.grad().defined()) set_mark(p.grad(), unscaled);
  agree(parameters, checked);
  return checked;
}

/// In training over several processes: a bad loss, or an inf, of one of them counts for all.
void GradScaler::agree(const std::vector<Tensor>& parameters, CheckedGradients& checked) {
  const std::shared_ptr<Agreement> agreement = agreement_of(parameters);
  if (!agreement) return;
  if (!bad_loss_.defined()) bad_loss_ = full({}, 0, kFloat32, scale_.device());
  Array bad_loss = bad_loss_.clone();  // earlier checks keep what they saw
  const auto& [found_inf, first, list] = checked.finding;
  agreement->agree(std::vector<Array>{bad_loss, found_inf},
                   {scale_, trackers_, law_, state_number_}, first);
  bad_loss_ = checked.bad_loss = std::move(bad_loss);
}

/// Throws if a backward pass between unscale_() and step() changed the gradients.
void GradScaler::check_unscaled(const optim::Optimizer& optimizer,
                                const CheckedGradients& checked) const {
  for (const optim::OptimizerParamGroup& group : optimizer.param_groups())
    for (const Tensor& p : group.params()) {
      if (!p.grad().defined()) continue;
      HALFTAPE_CHECK(checked.finding.found_inf.defined() && !has_mark(p.grad(), scaled_),
                     "GradScaler::step: a gradient arrived after unscale_(optimizer) and is still "
                     "scaled; call unscale_ after the last backward()");
      check_mark(p.grad(), "GradScaler::step", GradTag::Use::Unscaled, GradParts::Taken);
    }
}

void GradScaler::update() {
  if (!options_.enabled) return;
  require_scale("update");
  HALFTAPE_CHECK(std::any_of(optimizers_.begin(), optimizers_.end(),
                             [](const PerOptimizer& p) { return p.stage != Stage::Ready; }),
                 "GradScaler::update: nothing was checked since the last update(); ",
                 "call scaler.step(optimizer) first");
  std::vector<CheckResult> findings;
  for (PerOptimizer& mine : std::exchange(optimizers_, {}))
    if (mine.checked.finding.found_inf.defined())
      findings.push_back(std::move(mine.checked.finding));
  const Transition judged{scale_,
                          trackers_,
                          counts_,
                          findings,
                          bad_loss_,
                          options_.warn_after_skips,
                          law_,
                          [](int64_t in_row, float scale, bool bad_loss) {
                            warn(skip_warning("GradScaler", in_row, scale, bad_loss));
                          }};
  end_epoch();
  // Steps without gradients say nothing about the scale.
  if (findings.empty()) return;
  backend(scale_.device()).transition(judged);
  watch_skips(judged.bad_loss);
}

void GradScaler::update(double new_scale) {
  if (!options_.enabled) return;
  check_scale(new_scale, law_);
  initial_.scale = static_cast<float>(new_scale);
  if (initialised()) fill_scale();
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
  // NaN > 0 is false: the scale stays.
  const Tensor now(scale_),
      set = where(wanted > 0, clamp(wanted, law_.min_scale, law_.max_scale), now);
  backend(scale_.device()).copy(scale_, set.array());
  scale_.bump_version();
  end_epoch();
}

void GradScaler::begin_epoch() {
  if (scaled_) return;
  failed_ = make_ref<ScaleTag>(
      "the step that this gradient was for failed halfway; call optimizer.zero_grad(), and compute "
      "it anew");
  scaled_ = make_ref<ScaleTag>();
}

/// After this, gradients belong to another scale.
void GradScaler::end_epoch() {
  optimizers_.clear();
  bad_loss_ = inverse_ = {};
  next_ = {};
  factor_is_known_ = false;
  scaled_ = failed_ = {};
}

/// n skips in a row take at least n − skips_in_row further updates. The host reads the counts only
/// then.
void GradScaler::watch_skips(const Array& bad_loss) {
  const int64_t most = options_.throw_after_skips;
  if (most == 0 || --updates_until_read_ > 0) return;
  const int64_t in_row = counts().skips_in_row;
  updates_until_read_ = most - in_row;
  HALFTAPE_CHECK(in_row < most,
                 skip_warning("GradScaler::update", in_row, static_cast<float>(get_scale()),
                              bad_loss.defined() && read_double(bad_loss) != 0),
                 " (throw_after_skips ", most, ")");
}

void GradScaler::require_scale(const char* call) const {
  HALFTAPE_CHECK(initialised(), "GradScaler::", call,
                 ": nothing was scaled yet; call scaler.scale(loss).backward() first");
}

GradScaler::PerOptimizer& GradScaler::entry(const optim::Optimizer& optimizer) {
  const auto found = std::find_if(optimizers_.begin(), optimizers_.end(),
                                  [&](const PerOptimizer& p) { return p.id == optimizer.id(); });
  if (found != optimizers_.end()) return *found;
  return optimizers_.emplace_back(PerOptimizer{optimizer.id()});
}

// The state is on the device once a loss was scaled, and on the host before.

namespace {
template <class T, size_t N>
std::array<T, N> read(const Array& a) {
  std::array<T, N> host;
  backend(a.device()).read(host.data(), a);
  return host;
}
}  // namespace

void GradScaler::create_state(Device device) {
  const LastingState lasting;
  trackers_ = Array({2}, kInt32, device);
  counts_ = Array({8}, kInt64, device);
  fill_counts(initial_, initial_counts_);
  scale_ = full({}, initial_.scale, kFloat32, device);
}

void GradScaler::fill_scale() {
  backend(scale_.device()).fill(scale_, initial_.scale);
  scale_.bump_version();
}

void GradScaler::fill_counts(const ScaleState& state, const ScaleCounts& counts) {
  Backend& device = backend(trackers_.device());
  device.fill(trackers_.slice(0, 0, 1), state.growth_tracker);
  device.fill(trackers_.slice(0, 1, 2), state.overflows);
  for (int64_t i = 0; const int64_t n : bit_cast<std::array<int64_t, 8>>(counts))
    device.fill(counts_.slice(0, i, i + 1), n), ++i;
}

ScaleState GradScaler::state() const {
  if (!initialised()) return initial_;
  const auto trackers = read<int32_t, 2>(trackers_);
  return {read<float, 1>(scale_)[0], trackers[0], trackers[1]};
}

ScaleCounts GradScaler::counts() const {
  return initialised() ? bit_cast<ScaleCounts>(read<int64_t, 8>(counts_)) : initial_counts_;
}

double GradScaler::get_scale() const {
  if (!options_.enabled) return 1;
  return initialised() ? read_double(scale_) : initial_.scale;
}

int64_t GradScaler::get_growth_tracker() const { return state().growth_tracker; }

ScalerStats GradScaler::stats() const { return registry_.stats(counts()); }

GradScaler::StateDict GradScaler::state_dict() const {
  if (!options_.enabled) return {};
  return to_dict({law_, state(), counts()});
}

void GradScaler::load_state_dict(const StateDict& saved) {
  if (!options_.enabled) return;
  const SavedScaler loaded = from_dict(saved, law_);
  law_ = loaded.law;
  initial_ = loaded.state;
  initial_counts_ = loaded.counts;
  updates_until_read_ = options_.throw_after_skips - loaded.counts.skips_in_row;
  state_number_ = new_state_number();
  if (initialised()) {
    fill_scale();
    fill_counts(initial_, initial_counts_);
  }
  end_epoch();
}

}  // namespace halftape::amp
