#include "halftape/amp/autocast.h"

#include <unordered_map>

#include "halftape/autograd/ops/view.h"
#include "halftape/autograd/record.h"

namespace halftape::amp {
namespace {

constexpr std::array<AutocastState, kDeviceTypes> kDefaults = {AutocastState{false, kBFloat16},
                                                               AutocastState{false, kFloat16}};

/// A leaf's bytes in a lower dtype. Only bytes: every use records a cast of its own, so that
/// gradients of several uses meet in float32, and a cast made under NoGradGuard serves a later
/// recorded use.
struct CachedCast {
  Tensor leaf;  // keeps the key's address from being reused
  Array source, lowered;
  uint64_t version = 0;
};

/// What autocast means: the DtypePolicy that amp plugs into autograd. One for each thread.
class Autocaster final : public DtypePolicy {
 public:
  std::array<AutocastState, kDeviceTypes> state = kDefaults;
  bool cache_enabled = true;
  int nesting = 0;
  std::unordered_map<const detail::TensorImpl*, CachedCast> cache;

  bool any_enabled() const {
    for (const AutocastState& s : state)
      if (s.enabled) return true;
    return false;
  }

  Tensor cast(Cast rule, const char* op, const Tensor& x,
              std::span<const Tensor* const> all) override {
    if (rule == Cast::Keep || !eligible(x)) return x;
    HALFTAPE_CHECK(
        rule != Cast::Refuse, op,
        ": unsafe under autocast: a probability near 0 or 1 has no digits left in ", of(x).dtype,
        "; use the form that takes logits, binary_cross_entropy_with_logits, or run this op in an ",
        "autocast region with enabled=false on float32 inputs");
    const Dtype lower = of(x).dtype;
    const Dtype target = rule == Cast::Lower     ? lower
                         : rule == Cast::Float32 ? kFloat32
                                                 : widest(lower, all);
    return x.dtype() == target ? x : cached(x, target);
  }
  std::shared_ptr<DtypePolicy> snapshot() const override {
    auto copy = std::make_shared<Autocaster>();
    copy->state = state;
    return copy;
  }

 private:
  const AutocastState& of(const Tensor& x) const {
    return state[static_cast<size_t>(x.device().type())];
  }
  bool eligible(const Tensor& x) const {
    return x.defined() && x.is_floating_point() && x.dtype() != kFloat64 && of(x).enabled;
  }
  /// float32 as soon as one input is something other than the region's dtype.
  Dtype widest(Dtype lower, std::span<const Tensor* const> all) const {
    for (const Tensor* t : all)
      if (eligible(*t) && t->dtype() != lower) return kFloat32;
    return lower;
  }

  Tensor cached(const Tensor& x, Dtype target) {
    const bool worth_it = cache_enabled && x.dtype() == kFloat32 && x.is_leaf() &&
                          x.requires_grad() && !x.impl()->is_view;
    if (!worth_it) return halftape::cast(x, target);
    CachedCast& entry = cache[x.impl()];
    const bool hit = entry.lowered.defined() && entry.lowered.dtype() == target &&
                     entry.version == x.version() && entry.source.buffer() == x.array().buffer();
    if (!hit) entry = {x, x.array(), x.array().to(target), x.version()};
    return record("to", entry.lowered, {&x},
                  [](Node&, const Tensor& g) -> Grads { return {halftape::cast(g, kFloat32)}; });
  }
};

Autocaster& autocaster() {
  thread_local Autocaster instance;
  return instance;
}

}  // namespace

autocast::autocast(DeviceType device, std::optional<Dtype> dtype, bool enabled,
                   std::optional<bool> cache_enabled) {
  const auto d = static_cast<size_t>(device);
  const Dtype lower = dtype.value_or(kDefaults[d].dtype);
  HALFTAPE_CHECK(!enabled || is_16bit(lower), "autocast: dtype ", lower,
                 " is not float16 or bfloat16");
  Autocaster& a = autocaster();
  before_ = a.state;
  cache_before_ = a.cache_enabled;
  a.state[d] = {enabled, lower};
  a.cache_enabled = cache_enabled.value_or(cache_before_);
  ++a.nesting;
  scope_.emplace(a.any_enabled() ? &a : nullptr);
}

autocast::~autocast() {
  Autocaster& a = autocaster();
  scope_.reset();
  a.state = before_;
  a.cache_enabled = cache_before_;
  if (--a.nesting == 0) a.cache.clear();
}

bool is_autocast_enabled(DeviceType device) {
  return autocaster().state[static_cast<size_t>(device)].enabled;
}
Dtype get_autocast_dtype(DeviceType device) {
  return autocaster().state[static_cast<size_t>(device)].dtype;
}
bool is_autocast_cache_enabled() { return autocaster().cache_enabled; }
void clear_autocast_cache() { autocaster().cache.clear(); }
size_t autocast_cache_size() { return autocaster().cache.size(); }

}  // namespace halftape::amp
