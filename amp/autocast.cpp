#include "halftape/amp/autocast.h"

#include "halftape/amp/autocaster.h"
#include "halftape/autograd/ops/layout/view.h"
#include "halftape/autograd/tape/grad_mode.h"
#include "halftape/autograd/tape/weight_cast.h"
#include "halftape/core/capture/capture.h"
#include "halftape/core/contract/backend.h"

namespace halftape::amp {

// 1. A region changes this thread's state, and restores it at its end.

autocast::autocast(DeviceType device, std::optional<Dtype> dtype, bool enabled,
                   std::optional<bool> cache_enabled) {
  AutocastState state = capture();
  AutocastState::PerDevice& d = state[device];
  d.enabled = enabled;
  HALFTAPE_CHECK(!enabled || is_16bit(dtype.value_or(d.dtype)), "autocast: dtype ",
                 dtype.value_or(d.dtype), " is not float16 or bfloat16");
  if (dtype && is_16bit(*dtype)) d.dtype = *dtype;
  state.cache_enabled = cache_enabled.value_or(state.cache_enabled);
  enter(state);
}

autocast::autocast(DeviceType device, std::optional<Dtype> dtype, Policy policy, bool enabled,
                   std::optional<bool> cache_enabled)
    : autocast(device, dtype, enabled, cache_enabled) {
  autocaster_->state[device].policy = std::make_shared<const Policy>(std::move(policy));
  autocaster_->install();
}

autocast::autocast(const AutocastState& state) {
  for (const AutocastState::PerDevice& d : state.devices)
    HALFTAPE_CHECK(!d.enabled || is_16bit(d.dtype), "autocast: dtype ", d.dtype,
                   " is not float16 or bfloat16");
  enter(state);
}

namespace {
constinit thread_local bool gone = false;  // the thread's autocaster
struct OwnAutocaster {
  Autocaster its;
  ~OwnAutocaster() {
    if (Autocaster::active() == &its) set_dtype_policy(nullptr);
    gone = true;
  }
};
}  // namespace

void autocast::enter(const AutocastState& state) {
  autocaster_ = Autocaster::hold();
  region_.emplace(
      [&] {
        return Before{autocaster_->state, dtype_policy(), PolicyScope::current()};
      },
      autocaster_.get());
  ++autocaster_->nesting;
  autocaster_->state = state;
  autocaster_->install();
}

autocast::~autocast() {
  if (Autocaster::outlived(autocaster_.get())) return;
  const bool ended = region_->end("autocast", [&](Before before) {
    DtypePolicy* const now = dtype_policy();
    autocaster_->state = std::move(before.state);
    autocaster_->install();
    // Where a PolicyScope began or ended meanwhile, as that of a backward pass, it has the say.
    const uint64_t scope = PolicyScope::current();
    if (scope == before.scope)
      set_dtype_policy(before.policy);
    else if (scope != 0)
      set_dtype_policy(now);
  });
  if (ended && --autocaster_->nesting == 0) autocaster_->cache.clear();
}

Autocaster& Autocaster::current() {
  if (Autocaster* carried = active()) return *carried;
  if (gone) {                            // in the destructors of statics
    static auto* late = new Autocaster;  // NOLINT
    return *late;
  }
  thread_local OwnAutocaster own;
  return own.its;
}

std::shared_ptr<Autocaster> Autocaster::hold() {
  Autocaster& a = current();
  if (!a.carried) return {std::shared_ptr<void>(), &a};
  return a.shared_from_this();
}

bool Autocaster::outlived(const Autocaster* a) { return gone && a != &current(); }

void Autocaster::install() {
  bool any = false;
  every_op = false;  // where nothing is cast, nothing is to be seen
  for (const AutocastState::PerDevice& d : state.devices) {
    if (!d.enabled) continue;
    any = true;
    every_op |= observer || to_float32 || (d.policy && d.policy->overrides());
  }
  if (!carried) set_dtype_policy(any ? this : nullptr);
}

// 2. Each op then asks for casts of its inputs: cast_inputs() in autograd/tape/policy.h.

namespace {
[[noreturn]] void refuse(const CastOp& op, const AutocastState::PerDevice& region) {
  HALFTAPE_CHECK(
      op.cast == Cast::Refuse, op.name,
      ": refused by the region's policy; run it in an autocast region with enabled=false");
  halftape::detail::fail(
      op.name, ": unsafe under autocast: a probability near 0 or 1 has no digits left in ",
      region.dtype,
      "; use the form that takes logits, binary_cross_entropy_with_logits, or run this op in an ",
      "autocast region with enabled=false on float32 inputs");
}

/// float32 if an input has another dtype than the region.
Dtype widest(const Autocaster& a, Dtype lower, std::span<const Tensor* const> given) {
  for (const Tensor* t : given)
    if (a.eligible(*t) && t->dtype() != lower) return kFloat32;
  return lower;
}
}  // namespace

std::optional<Dtype> Autocaster::cast(const CastOp& op, std::span<const Tensor* const> given,
                                      std::span<Tensor> casts) {
  const AutocastState::PerDevice* region = nullptr;
  for (const Tensor* t : given)
    if (!region && eligible(*t)) region = &region_of(*t);
  if (!region) return {};
  std::optional<Dtype> compute_as;
  const Cast rule = op.decided       ? Cast::Keep
                    : to_float32     ? Cast::Float32
                    : region->policy ? region->policy->get(op)
                                     : op.cast;
  if (rule == Cast::Refuse) refuse(op, *region);
  if (rule != Cast::Keep) {
    const Dtype target = rule == Cast::Lower     ? region->dtype
                         : rule == Cast::Float32 ? kFloat32
                                                 : widest(*this, region->dtype, given);
    if (op.converts && op.converts(target))
      compute_as = target;
    else
      for (size_t i = 0; i < given.size(); ++i)
        if (eligible(*given[i]) && given[i]->dtype() != target)
          casts[i] = cached(*given[i], target);
  }
  if (observer) observer->note(op, rule, *region, given, casts, compute_as);
  return compute_as;
}

// 3. A cast of a weight comes from the cache of this thread, then from the 16-bit copy that
// optimizers keep beside the weight; only then is it computed.

namespace {
bool same_view(const Array& a, const Array& b) {
  return a.buffer() == b.buffer() && a.raw() == b.raw() && a.shape() == b.shape() &&
         a.strides() == b.strides();
}

bool is_current(const CachedCast& entry, const Tensor& x) {
  // The replays of a captured step do not repeat a cast that was made before the capture.
  const Capture* capture = Capture::on(x.device());
  return entry.version == x.version() && same_view(entry.source, x.array()) &&
         entry.lowered_version == entry.lowered.version() && !entry.lowered.buffer()->exposed() &&
         entry.queue == current_queue(x.device()) &&
         (!capture || capture->made_here(entry.lowered));
}

/// The leaf's 16-bit copy, made if need be; kept for later unless writes to the leaf go unseen.
Array lowered(const Tensor& leaf, Dtype target) {
  Capture* capture = Capture::on(leaf.device());
  Array low = capture ? detail::find_captured_low_copy(leaf, target, *capture)
                      : detail::find_low_copy(leaf, target);
  if (low.defined()) return low;
  if (capture) return leaf.array().to(target);  // each replay casts
  const LastingState stays;
  const uint64_t version = leaf.version();
  low = detail::low_copy_array(leaf, target);
  backend(leaf.device()).copy(low, leaf.array());
  detail::keep_low_copy(leaf, low, version);
  return low;
}
}  // namespace

Tensor Autocaster::cached(const Tensor& x, Dtype target) {
  const bool kept = state.cache_enabled && x.dtype() == kFloat32 && x.is_leaf() &&
                    x.requires_grad() && !x.impl()->is_view && !InferenceMode::is_enabled();
  if (!kept) return halftape::cast(x, target);
  const std::pair key(static_cast<const halftape::detail::TensorImpl*>(x.impl()), target);
  auto place = cache.lower_bound(key);
  const bool found = place != cache.end() && place->first == key;
  if (!found || !is_current(place->second, x)) {
    const Array low = lowered(x, target);
    CachedCast made{x, x.array(), low, x.version(), low.version(), current_queue(x.device())};
    if (found)
      place->second = std::move(made);
    else
      place = cache.emplace_hint(place, key, std::move(made));
  }
  return halftape::detail::recorded_cast(x, place->second.lowered);
}

// 4. This thread's state, for other threads, for backward, and for programs without regions.

AutocastState capture() {
  AutocastState state = Autocaster::current().state;
  if (!Autocaster::active())
    for (AutocastState::PerDevice& device : state.devices) device.enabled = false;
  return state;
}

/// Keeps the state, but neither the cache nor the observer.
std::shared_ptr<DtypePolicy> Autocaster::snapshot() const {
  auto copy = std::make_shared<Autocaster>();
  copy->state = state;
  copy->every_op = every_op;
  copy->carried = true;
  copy->to_float32 = to_float32;
  return copy;
}

namespace {
[[maybe_unused]] const bool known_to_autograd = [] {
  detail::snapshot_of_thread = [] {
    AutocastState state = capture();
    auto copy = Autocaster::current().snapshot();
    static_cast<Autocaster&>(*copy).state = std::move(state);
    copy->every_op &= Autocaster::active() != nullptr;
    return copy;
  };
  return true;
}();
}  // namespace

bool is_autocast_enabled(DeviceType device) {
  const Autocaster* a = Autocaster::active();
  return a && a->state[device].enabled;
}
Dtype get_autocast_dtype(DeviceType device) { return Autocaster::current().state[device].dtype; }
bool is_autocast_cache_enabled() { return Autocaster::current().state.cache_enabled; }

void set_autocast_enabled(DeviceType device, bool enabled) {
  AutocastState state = capture();
  state[device].enabled = enabled;
  Autocaster& a = Autocaster::current();
  a.state = state;
  a.install();
  if (a.nesting == 0 && !Autocaster::active()) a.cache.clear();
}
void set_autocast_dtype(DeviceType device, Dtype dtype) {
  HALFTAPE_CHECK(is_16bit(dtype), "set_autocast_dtype: dtype ", dtype,
                 " is not float16 or bfloat16");
  Autocaster::current().state[device].dtype = dtype;
}
void set_autocast_cache_enabled(bool enabled) {
  Autocaster::current().state.cache_enabled = enabled;
}
bool is_autocast_available(DeviceType device) { return static_cast<size_t>(device) < kDeviceTypes; }

void clear_autocast_cache() {
  Autocaster::current().cache.clear();
  detail::drop_low_copies();
}
size_t autocast_cache_size() { return Autocaster::current().cache.size(); }
int increment_autocast_nesting() {
  Autocaster& a = Autocaster::current();
  ++a.entered_by_call;
  return ++a.nesting;
}
int decrement_autocast_nesting() {
  Autocaster& a = Autocaster::current();
  HALFTAPE_CHECK(a.entered_by_call > 0,
                 "decrement_autocast_nesting: no region is open that increment_autocast_nesting() "
                 "has entered");
  --a.entered_by_call;
  if (--a.nesting == 0) a.cache.clear();
  return a.nesting;
}

Tensor cast_if_eligible(const Tensor& x, Dtype dtype) {
  Autocaster* a = Autocaster::active();
  if (a && a->to_float32) dtype = kFloat32;
  return a && a->eligible(x) && x.dtype() != dtype ? a->cached(x, dtype) : x;
}

}  // namespace halftape::amp
