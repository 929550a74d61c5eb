#include "halftape/optim/state/param_storage.h"

#include <atomic>

#include "halftape/autograd/ops/creation/create.h"
#include "halftape/autograd/ops/elementwise/binary.h"
#include "halftape/autograd/ops/elementwise/compare.h"
#include "halftape/autograd/ops/elementwise/mask.h"
#include "halftape/autograd/tape/policy.h"
#include "halftape/core/capture/capture.h"
#include "halftape/core/contract/backend.h"
#include "halftape/core/formula/philox.h"
#include "halftape/optim/state/flat_storage.h"

namespace halftape::optim {
namespace {

std::atomic<RoundingSeed> rounding_seed{nullptr};

/// A new key, and 0 updates.
Array rounding_stream(const Tensor& original) {
  const Device device = original.device();
  const RoundingSeed find = rounding_seed.load(std::memory_order_relaxed);
  const std::optional<uint64_t> shared = find ? find(original) : std::nullopt;
  const RandomKey from = shared ? RandomKey{*shared, 0} : random_reserve(device, 4);
  const PhiloxBlock words =
      philox(from.seed, from.offset, ~uint64_t{0});  // a block that no draw uses
  const uint64_t key = uint64_t{words.v[1]} << 32 | words.v[0];
  const std::vector<int64_t> state = {static_cast<int64_t>(key), 0};
  return tensor(state, kInt64).to(device).array();
}

struct Storage {
  Weights weights;
  const char* option;
  const char* state;  // the name of the extra array; null for none
};
constexpr Storage kStorages[] = {{Weights::Plain, "Plain", nullptr},
                                 {Weights::Master, "Master", "master"},
                                 {Weights::Stochastic, "Stochastic", "rounding"},
                                 {Weights::Kahan, "Kahan", "remainder"}};
const Storage& storage_of(Weights weights) { return kStorages[static_cast<size_t>(weights)]; }

/// The storage that earlier steps chose.
Weights storage_in(const ParamState& state) {
  for (const Storage& n : kStorages)
    if (n.state && state.find(n.state) != state.end()) return n.weights;
  return Weights::Plain;
}
/// The state under `name`, made by make() on first use.
template <class Make>
Array& find_or_make(ParamState& state, const char* name, const Make& make) {
  const auto found = state.find(name);
  if (found != state.end()) return found->second;
  const LastingState lasting;
  return state.emplace(name, make()).first->second;
}

/// `array`, once it is known to lie beside the parameter element by element.
const Array& beside(const Tensor& p, const char* name, const Array& array) {
  HALFTAPE_CHECK(array.shape() == p.sizes() && array.device() == p.device() &&
                     is_floating_point(array.dtype()),
                 "optimizer: \"", name, "\" (", array.shape(), ", ", array.dtype(), ", ",
                 array.device(), ") does not fit its parameter (", p.sizes(), ", ", p.dtype(), ", ",
                 p.device(),
                 "); a parameter of another shape, or on another device, needs a new optimizer");
  return array;
}

}  // namespace

Weights effective_weights(const Tensor& parameter, Weights chosen) {
  return needs_master_copy(parameter.dtype()) ? chosen : Weights::Plain;
}

Dtype moment_dtype(const Tensor& parameter, Weights weights) {
  return weights == Weights::Plain ? parameter.dtype() : kFloat32;
}

const char* storage_name(Weights weights) { return storage_of(weights).state; }

void check_storage(const Tensor& p, Weights weights, const ParamState& state) {
  HALFTAPE_CHECK(state.empty() || storage_in(state) == weights, "optimizer: a ", p.sizes(),
                 " parameter was kept as ", storage_of(storage_in(state)).option,
                 " and is now to be ", storage_of(weights).option,
                 "; choose weights before the first step");
}

void check_beside(const Tensor& p, const char* name, const ParamState& state) {
  if (const auto found = state.find(name); found != state.end()) beside(p, name, found->second);
}

void set_rounding_seed(RoundingSeed find) { rounding_seed = find; }

Keeping param_storage(const Tensor& p, Weights weights, ParamState& state) {
  return param_storage(p, weights, state, p);
}

Keeping param_storage(const Tensor& p, Weights weights, ParamState& state, const Tensor& original) {
  if (weights == Weights::Plain) return {};
  const char* name = storage_name(weights);
  const Array& extra = find_or_make(state, name, [&]() -> Array {
    check_storage(p, weights, state);
    if (weights == Weights::Stochastic) return rounding_stream(original);
    const bool master = weights == Weights::Master;
    Array made = FlatState::array(name, p, master ? kFloat32 : p.dtype());
    master ? backend(p.device()).copy(made, p.array()) : backend(p.device()).fill(made, 0);
    return made;
  });
  return {weights, weights == Weights::Stochastic ? extra : beside(p, name, extra)};
}

void follow_weight(const Tensor& p, const Keeping& kept) {
  const PolicyScope as_they_are(nullptr);
  const Tensor weight = p.detach(), extra(kept.extra), wide = weight.to(kFloat32);
  if (kept.weights == Weights::Master) {
    extra.copy_(where(extra.to(p.dtype()) == weight, extra, wide));
    return;
  }
  // A remainder of this weight is at most half a step long; half of it does not reach another one.
  const Tensor fits = (wide + extra.to(kFloat32) * 0.5).to(p.dtype()) == weight;
  extra.copy_(where(fits, extra, zeros_like(extra)));
}

Array moment(const char* name, const Tensor& p, Weights chosen, ParamState& state, double start) {
  return beside(p, name, find_or_make(state, name, [&] {
                  Array made =
                      FlatState::array(name, p, moment_dtype(p, effective_weights(p, chosen)));
                  backend(p.device()).fill(made, start);
                  return made;
                }));
}

Array step_count(const Tensor& p, ParamState& state, double start) {
  return find_or_make(state, "step", [&] { return full({}, start, kFloat32, p.device()); });
}

StateEntry state_entry(const std::string& key, const Tensor& p,
                       const std::map<std::string, double>& options) {
  if (key == "step") return {{}, kFloat32, false, true};  // the number of updates
  if (key == "rounding") return {{2}, kInt64};
  if (key == "master") return {p.sizes(), kFloat32};
  if (key == "remainder") return {p.sizes(), p.dtype(), true};
  const auto saved = options.find("weights");  // a user's optimizer may lack it
  const Weights weights =
      saved == options.end() ? Weights::Plain : static_cast<Weights>(saved->second);
  return {p.sizes(), moment_dtype(p, effective_weights(p, weights)), true};
}

}  // namespace halftape::optim
