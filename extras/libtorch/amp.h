// torch.amp for C++ programs on LibTorch: autocast and GradScaler, in one file to copy.
//
//     optimizer.zero_grad();
//     torch::Tensor loss;
//     { amp::autocast region(torch::kCUDA);  loss = F::cross_entropy(model->forward(x), y); }
//     scaler.scale(loss).backward();  // outside of the region
//     scaler.step(optimizer);         // skipped if a gradient is infinite or NaN
//     scaler.update();
//
// Names and semantics are torch.amp's; README.md beside this file lists what differs. C++17,
// LibTorch 1.13 to 2.15. From Halftape, for mixed precision in C++. SPDX-License-Identifier: MIT
#pragma once
#include <ATen/autocast_mode.h>
#include <torch/torch.h>

#include <algorithm>
#include <atomic>
#include <cfloat>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

namespace amp {
using at::Tensor;
using c10::DeviceType;

namespace detail {  // All that differs between versions of LibTorch.
struct Region {
  bool enabled;
  at::ScalarType dtype;
};
#if TORCH_VERSION_MAJOR * 100 + TORCH_VERSION_MINOR >= 204
inline Region get(DeviceType d) {
  return {at::autocast::is_autocast_enabled(d), at::autocast::get_autocast_dtype(d)};
}
inline void set(DeviceType d, Region region) {
  at::autocast::set_autocast_dtype(d, region.dtype);
  at::autocast::set_autocast_enabled(d, region.enabled);
}
#else  // each device type had functions of its own; those without a name are CUDA's
inline Region get(DeviceType d) {
  return d == at::kCPU
             ? Region{at::autocast::is_cpu_enabled(), at::autocast::get_autocast_cpu_dtype()}
             : Region{at::autocast::is_enabled(), at::autocast::get_autocast_gpu_dtype()};
}
inline void set(DeviceType d, Region region) {
  const bool cpu = d == at::kCPU;
  // First the dtype: the CPU's function throws for float16 in early versions.
  (cpu ? at::autocast::set_autocast_cpu_dtype : at::autocast::set_autocast_gpu_dtype)(region.dtype);
  (cpu ? at::autocast::set_cpu_enabled : at::autocast::set_enabled)(region.enabled);
}
#endif
constexpr bool kHasCpuKernels = TORCH_VERSION_MAJOR * 100 + TORCH_VERSION_MINOR >= 203;

/// Sets found_inf if one of the gradients, all of one device and dtype, is not finite, and
/// multiplies them by inv. LibTorch has no kernel for bfloat16 on CUDA.
inline void check_and_unscale(std::vector<Tensor>& grads, Tensor& found_inf, const Tensor& inv) {
  const auto dtype = grads.front().scalar_type();
  if (found_inf.is_cpu() ? kHasCpuKernels : dtype != at::kBFloat16)
    return at::_amp_foreach_non_finite_check_and_unscale_(grads, found_inf, inv);
  for (Tensor& g : grads) {
    found_inf.add_(at::isfinite(g).all().logical_not());
    g.copy_(g.to(dtype == at::kDouble ? dtype : at::kFloat).mul(inv));
  }
}

/// The next scale and growth tracker, in place.
inline void update_scale(Tensor& scale, Tensor& tracker, bool found_inf, double growth,
                         double backoff, int64_t interval) {
  if (!scale.is_cpu() || kHasCpuKernels) {
    const Tensor found = at::full({}, found_inf ? 1. : 0., scale.options());
    at::_amp_update_scale_(scale, tracker, found, growth, backoff, interval);
    return;
  }
  const int64_t good = found_inf ? 0 : tracker.item<int64_t>() + 1;
  const float before = scale.item<float>(), grown = static_cast<float>(before * growth);
  if (found_inf) scale.fill_(before * backoff);
  if (good == interval && std::isfinite(grown)) scale.fill_(grown);
  tracker.fill_(good == interval ? 0 : good);
}

/// Notices gradients that arrive at parameters while it lives.
struct Arrivals {
  using Node = decltype(torch::autograd::impl::grad_accumulator(std::declval<Tensor>()));
  using List = torch::autograd::variable_list;
  struct Hook : torch::autograd::FunctionPostHook {
    explicit Hook(std::shared_ptr<std::atomic<bool>> flag) : seen(std::move(flag)) {}
    List operator()(const List& out, const List&) override { return *seen = true, out; }
    std::shared_ptr<std::atomic<bool>> seen;
  };
  std::vector<std::pair<Node, uintptr_t>> watched;
  std::shared_ptr<std::atomic<bool>> any = std::make_shared<std::atomic<bool>>(false);
  Arrivals() = default;
  Arrivals(const Arrivals&) = delete;
  ~Arrivals() {
    for (auto& [node, hook] : watched) node->del_post_hook(hook);
  }
  void watch(const Tensor& parameter) {
    Node node = torch::autograd::impl::grad_accumulator(parameter);
    if (!node) return;  // does not require grad
    const auto hook = node->add_post_hook(std::make_unique<Hook>(any));
    watched.emplace_back(std::move(node), hook);
  }
};
}  // namespace detail

/// torch.amp.autocast as a guard: until the end of its scope this thread's ops on `device`, kCPU or
/// kCUDA, run in the dtypes of torch's lists. dtype: kHalf or kBFloat16, by default float16 on CUDA
/// and bfloat16 on the CPU; others throw. enabled: false switches autocast off within an outer
/// region. cache_enabled: each weight is cast once, until the outermost region ends; by default as
/// outside. A region for CUDA on a machine without it warns, and is disabled.
class [[nodiscard]] autocast {
 public:
  [[nodiscard]] explicit autocast(DeviceType device, std::optional<at::ScalarType> dtype = {},
                                  bool enabled = true, std::optional<bool> cache_enabled = {})
      : device_(device), cached_(at::autocast::is_autocast_cache_enabled()) {
    TORCH_CHECK(device == at::kCPU || device == at::kCUDA, "autocast: device ", device,
                " is neither CPU nor CUDA");
    outer_ = detail::get(device);
    const at::ScalarType lower = enabled ? dtype.value_or(outer_.dtype) : outer_.dtype;
    TORCH_CHECK(!enabled || lower == at::kHalf || lower == at::kBFloat16, "autocast: dtype ", lower,
                " is neither Half nor BFloat16");
    if (enabled && device == at::kCUDA && !torch::cuda::is_available()) {
      TORCH_WARN("autocast: CUDA is not available; the region is disabled");
      enabled = false;
    }
    detail::set(device, {enabled, lower});
    at::autocast::increment_nesting();
    at::autocast::set_autocast_cache_enabled(cache_enabled.value_or(cached_));
  }
  ~autocast() {
    if (std::this_thread::get_id() != thread_) {
      TORCH_WARN("autocast: a region was ended by another thread, and stays open in its own");
      return;
    }
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    detail::set(device_, outer_);
    at::autocast::set_autocast_cache_enabled(cached_);
  }
  autocast(const autocast&) = delete;
  autocast& operator=(const autocast&) = delete;
  static void* operator new(size_t) = delete;  // regions end in the order of their scopes

 private:
  DeviceType device_;
  bool cached_;
  detail::Region outer_ = {};
  std::thread::id thread_ = std::this_thread::get_id();
};

/// GradScalerOptions().init_scale(1024).growth_interval(100). torch's defaults under torch's names,
/// and below them what torch lacks.
struct GradScalerOptions {
  TORCH_ARG(double, init_scale) = 65536;
  TORCH_ARG(double, growth_factor) = 2;        // > 1; or 1 and backoff_factor 1: a fixed scale
  TORCH_ARG(double, backoff_factor) = 0.5;     // in (0, 1)
  TORCH_ARG(int64_t, growth_interval) = 2000;  // good steps in a row before the scale grows
  TORCH_ARG(bool, enabled) = true;             // false: every call passes through
  TORCH_ARG(double, min_scale) = FLT_MIN;      // the smallest float with a finite reciprocal
  TORCH_ARG(double, max_scale) = FLT_MAX;
  TORCH_ARG(bool, allow_fp16_grads) = false;  // divides them in float16: small ones become 0
  TORCH_ARG(int64_t, warn_after_skips) = 10;  // in a row; 0: never
};

/// The outcome of one step.
struct StepResult {
  Tensor loss;                // what the optimizer returned
  bool applied = false;       // the parameters were updated
  bool found_inf = false;     // a gradient or a loss was infinite or NaN: the step was skipped
  bool bad_loss = false;      // it was a loss, before it was scaled: no scale would have helped
  bool had_gradients = true;  // false: nothing was checked and nothing done
};

/// What happened so far. A step here is an update() that had gradients to check.
struct ScalerStats {
  int64_t steps = 0, skips = 0, skips_in_row = 0;
  int64_t bad_losses = 0;  // skips because of the loss itself
};

/// torch.amp.GradScaler with checks: calls in a wrong order throw, name the missing call, and
/// change nothing. For one thread at a time. step() waits for the device, as in torch.
class GradScaler {
 public:
  using Optimizer = torch::optim::Optimizer;
  /// Throws for senseless options, unless they disable the scaler. A scaler for CUDA on a machine
  /// without it warns, and is disabled.
  explicit GradScaler(DeviceType device = at::kCUDA, const GradScalerOptions& options = {})
      : options_(options), initial_scale_(options.init_scale()) {
    if (is_enabled() && device == at::kCUDA && !torch::cuda::is_available()) {
      TORCH_WARN("GradScaler: CUDA is not available; the scaler is disabled");
      options_.enabled(false);
    }
    check(options_, initial_scale_);
  }
  GradScaler(const GradScaler&) = delete;  // a copy would share the state on the device
  GradScaler& operator=(const GradScaler&) = delete;

  /// loss · scale, of any shape. The first one decides on which device the state lives. After a
  /// loss that is itself infinite or NaN all steps until update() are skipped, and the scale stays.
  [[nodiscard]] Tensor scale(const Tensor& loss) {
    if (!is_enabled()) return loss;
    TORCH_CHECK(loss.defined() && loss.is_floating_point(),
                "GradScaler::scale: the loss must be a tensor of floating-point numbers");
    if (!scale_.defined()) {
      const c10::InferenceMode off(false);
      scale_ = at::full({}, initial_scale_, at::TensorOptions(loss.device()).dtype(at::kFloat));
      tracker_ = at::full({}, initial_tracker_, scale_.options().dtype(at::kInt));
    }
    const Tensor bad = to((loss.detach() * 0).sum(at::kFloat), scale_.device());  // 0 or NaN
    bad_loss_ = bad_loss_.defined() ? bad_loss_ + bad : bad;
    Tensor scaled = loss * to(scale_, loss.device());
    if (scaled.requires_grad())
      scaled.register_hook([passes = passes_](const Tensor&) { ++*passes; });
    return scaled;
  }

  /// Divides the optimizer's gradients by the scale, in place, and looks for inf and NaN.
  void unscale_(Optimizer& optimizer) {
    if (!is_enabled()) return;
    PerOptimizer& mine = entry(optimizer, "unscale_");
    TORCH_CHECK(mine.stage != Stage::Unscaled,
                "GradScaler::unscale_: already called for this optimizer; call it once per step");
    mine.found_inf = check_and_unscale(optimizer, scale_);
    mine.stage = Stage::Unscaled;
    for (const auto& group : optimizer.param_groups())
      for (const Tensor& p : group.params()) mine.arrivals.watch(p);
  }

  /// The optimizer's step if all gradients are finite, after unscale_() if that was not called.
  /// Takes a closure only if the scaler is disabled.
  StepResult step(Optimizer& optimizer, Optimizer::LossClosure closure = nullptr) {
    if (!is_enabled()) return {optimizer.step(std::move(closure)), true, false, false, true};
    TORCH_CHECK(!closure,
                "GradScaler::step: a closure's loss is not scaled; call scale() yourself");
    PerOptimizer& mine = entry(optimizer, "step");
    TORCH_CHECK(!*mine.arrivals.any,
                "GradScaler::step: a gradient arrived after unscale_(); it is still scaled");
    if (mine.stage == Stage::Ready) mine.found_inf = check_and_unscale(optimizer, scale_);
    mine.stage = Stage::Unscaled;
    StepResult result;
    result.had_gradients = !mine.found_inf.empty();
    // The check comes before the division, and a division by less than 1 may overflow.
    if (result.had_gradients && judge(mine, mine.found_inf) < 1 && mine.verdict == Verdict::Finite)
      judge(mine, check_and_unscale(optimizer, at::ones_like(scale_)));
    result.bad_loss = mine.verdict == Verdict::BadLoss;
    result.found_inf = mine.verdict != Verdict::Finite;
    result.applied = result.had_gradients && !result.found_inf;
    if (result.applied) {
      result.loss = optimizer.step();
      at::autocast::clear_cache();  // an open region would go on with casts of the old weights
    }
    mine.stage = Stage::Stepped;
    return result;
  }

  /// Moves the scale after what the steps since the last update() found; once, after all of them.
  void update() {
    if (!is_enabled()) return;
    bool called = false, checked = false;
    Verdict worst = Verdict::Finite;
    for (auto& [optimizer, mine] : optimizers_) {
      called |= mine.stage != Stage::Ready;
      checked |= !mine.found_inf.empty();
      if (mine.stage == Stage::Unscaled && !mine.found_inf.empty()) judge(mine, mine.found_inf);
      worst = std::max(worst, mine.verdict);
    }
    TORCH_CHECK(called, "GradScaler::update: nothing was checked since the last update(); call ",
                "scaler.step(optimizer) first");
    if (checked && worst != Verdict::BadLoss) {
      detail::update_scale(scale_, tracker_, worst == Verdict::Overflow, options_.growth_factor(),
                           options_.backoff_factor(), options_.growth_interval());
      scale_.clamp_(options_.min_scale(), options_.max_scale());
    }
    begin_anew();
    if (!checked) return;
    ++stats_.steps;
    stats_.skips += worst != Verdict::Finite;
    stats_.bad_losses += worst == Verdict::BadLoss;
    stats_.skips_in_row = worst == Verdict::Finite ? 0 : stats_.skips_in_row + 1;
    if (stats_.skips_in_row > 0 && stats_.skips_in_row == options_.warn_after_skips())
      TORCH_WARN("GradScaler: ", stats_.skips_in_row, " steps in a row were skipped, the scale is ",
                 get_scale(), worst == Verdict::BadLoss ? "; the loss itself is not finite" : "");
  }
  /// Sets the scale instead; the growth tracker stays, and the statistics count nothing.
  void update(double new_scale) {
    check(options_, new_scale);
    initial_scale_ = new_scale;
    if (scale_.defined()) scale_.fill_(new_scale);
    begin_anew();
  }

  bool is_enabled() const { return options_.enabled(); }
  /// 1 if disabled. Waits for the device, as does get_growth_tracker().
  double get_scale() const {
    return !is_enabled() ? 1 : scale_.defined() ? scale_.item<double>() : initial_scale_;
  }
  int64_t get_growth_tracker() const {
    return tracker_.defined() ? tracker_.item<int64_t>() : initial_tracker_;
  }
  double get_growth_factor() const { return options_.growth_factor(); }
  double get_backoff_factor() const { return options_.backoff_factor(); }
  int64_t get_growth_interval() const { return options_.growth_interval(); }
  /// The setters throw for a senseless value, and then change nothing.
  void set_growth_factor(double v) { set(GradScalerOptions(options_).growth_factor(v)); }
  void set_backoff_factor(double v) { set(GradScalerOptions(options_).backoff_factor(v)); }
  void set_growth_interval(int64_t v) { set(GradScalerOptions(options_).growth_interval(v)); }
  const ScalerStats& stats() const { return stats_; }

  /// torch's five numbers under torch's names; empty if disabled. Call it after update().
  std::map<std::string, double> state_dict() const {
    if (!is_enabled()) return {};
    return {{"scale", get_scale()},
            {"growth_factor", get_growth_factor()},
            {"backoff_factor", get_backoff_factor()},
            {"growth_interval", static_cast<double>(get_growth_interval())},
            {"_growth_tracker", static_cast<double>(get_growth_tracker())}};
  }
  /// Throws, changing nothing, for a missing or senseless number. Begins anew as update() does.
  void load_state_dict(const std::map<std::string, double>& saved) {
    if (!is_enabled()) return;
    const auto number = [&](const char* key, bool whole) {
      const auto found = saved.find(key);
      const double v = found == saved.end() ? NAN : found->second;
      TORCH_CHECK(whole ? v >= 0 && v <= INT32_MAX && v == std::floor(v) : !std::isnan(v),
                  "GradScaler::load_state_dict: ", key, " is missing, or no ",
                  whole ? "count below 2^31" : "number",
                  saved.empty() ? "; the state is empty: was its scaler disabled?" : "");
      return v;
    };
    const double scale = number("scale", false), tracker = number("_growth_tracker", true);
    const auto loaded = GradScalerOptions(options_)
                            .growth_factor(number("growth_factor", false))
                            .backoff_factor(number("backoff_factor", false))
                            .growth_interval(static_cast<int64_t>(number("growth_interval", true)));
    check(loaded, scale);
    initial_tracker_ = static_cast<int64_t>(tracker);
    if (tracker_.defined()) tracker_.fill_(tracker);
    set(loaded);
    update(scale);
  }

 private:
  enum class Stage : uint8_t { Ready, Unscaled, Stepped };
  enum class Verdict : uint8_t { Finite, Overflow, BadLoss };
  struct PerOptimizer {
    Stage stage = Stage::Ready;
    Verdict verdict = Verdict::Finite;
    std::vector<Tensor> found_inf;  // one for each device that has gradients
    detail::Arrivals arrivals;      // since unscale_()
  };

  static Tensor to(const Tensor& x, at::Device device) { return x.to(device, at::kFloat, true); }

  static void check(const GradScalerOptions& o, double scale) {
    if (!o.enabled()) return;
    const double growth = o.growth_factor(), backoff = o.backoff_factor();
    TORCH_CHECK((growth > 1 && growth <= FLT_MAX && backoff > 0 && backoff < 1) ||
                    (growth == 1 && backoff == 1),
                "GradScaler: growth_factor ", growth, " must be greater than 1 and backoff_factor ",
                backoff, " between 0 and 1; or both 1, for a fixed scale");
    TORCH_CHECK(o.growth_interval() > 0 && o.growth_interval() <= INT32_MAX,
                "GradScaler: growth_interval ", o.growth_interval(), " is not in 1 … 2^31 - 1");
    const double low = o.min_scale(), high = o.max_scale();
    const auto kept = [](double x) { return std::abs(x) <= FLT_MAX ? static_cast<float>(x) : x; };
    TORCH_CHECK(
        low >= FLT_MIN && high <= FLT_MAX && kept(scale) >= kept(low) && kept(scale) <= kept(high),
        "GradScaler: scale ", scale, " must lie between min_scale ", low, " and max_scale ", high,
        ", which must be normal in float32");
  }

  void set(const GradScalerOptions& changed) {
    check(changed, changed.max_scale());
    options_ = changed;
    // torch's law grows at tracker == interval; a tracker beyond a lowered interval never would.
    initial_tracker_ = std::min(initial_tracker_, options_.growth_interval() - 1);
    if (tracker_.defined()) tracker_.clamp_max_(options_.growth_interval() - 1);
  }

  /// After this, gradients belong to another scale.
  void begin_anew() {
    optimizers_.clear();
    bad_loss_ = Tensor();
    passes_ = std::make_shared<std::atomic<int64_t>>(0);
  }

  PerOptimizer& entry(const Optimizer& optimizer, const char* call) {
    TORCH_CHECK(*passes_ > 0, "GradScaler::", call,
                ": no scaled loss went backward since the last ",
                "update(); call scaler.scale(loss).backward() first");
    PerOptimizer& mine = optimizers_[&optimizer];
    TORCH_CHECK(mine.stage != Stage::Stepped, "GradScaler::", call,
                ": step() was already called for this optimizer; call update() first");
    return mine;
  }

  /// Returns what was found, for each device.
  std::vector<Tensor> check_and_unscale(Optimizer& optimizer, const Tensor& scale) const {
    const torch::NoGradGuard no_grad;
    const Tensor inverse = scale.to(at::kDouble).reciprocal();
    using Kind = std::tuple<DeviceType, c10::DeviceIndex, at::ScalarType>;
    std::map<Kind, std::vector<Tensor>> lists;
    for (auto& group : optimizer.param_groups())
      for (Tensor& p : group.params()) {
        if (!p.grad().defined()) continue;
        const bool is_half = p.grad().scalar_type() == at::kHalf, is_sparse = p.grad().is_sparse();
        TORCH_CHECK(!is_half || options_.allow_fp16_grads(), "GradScaler: the gradient of a ",
                    p.sizes(), " is float16, which loses small numbers when divided; keep ",
                    "parameters in float32 and use autocast (or set allow_fp16_grads)");
        // The sum of values that share an index may overflow in float16.
        if (is_half && is_sparse) p.mutable_grad() = p.grad().coalesce();
        const Tensor grad = is_sparse ? p.grad()._values() : p.grad();
        lists[{grad.device().type(), grad.device().index(), grad.scalar_type()}].push_back(grad);
      }
    std::vector<Tensor> found;
    for (auto& [kind, grads] : lists) {
      const at::Device device = grads.front().device();
      if (found.empty() || found.back().device() != device)
        found.push_back(at::zeros({}, scale_.options().device(device)));
      detail::check_and_unscale(grads, found.back(), to(inverse, device));
    }
    return found;
  }

  /// Reads what was found, the one time that a step waits. Returns the scale.
  float judge(PerOptimizer& mine, const std::vector<Tensor>& found_inf) const {
    Tensor found = at::zeros_like(scale_);
    for (const Tensor& f : found_inf) found += to(f, scale_.device());
    const Tensor seen = at::stack({found, bad_loss_, scale_}).cpu();
    const float* number = seen.data_ptr<float>();
    mine.verdict = number[1] != 0   ? Verdict::BadLoss
                   : number[0] != 0 ? Verdict::Overflow
                                    : Verdict::Finite;
    return number[2];
  }

  GradScalerOptions options_;
  double initial_scale_;         // the state until the first scaled loss decides on the device
  int64_t initial_tracker_ = 0;  // likewise
  Tensor scale_, tracker_;       // () float32 and () int32
  ScalerStats stats_;
  // Since the last update():
  Tensor bad_loss_;  // () float32: NaN after a loss that is infinite or NaN
  std::shared_ptr<std::atomic<int64_t>> passes_ = std::make_shared<std::atomic<int64_t>>(0);
  std::map<const Optimizer*, PerOptimizer> optimizers_;
};

}  // namespace amp
