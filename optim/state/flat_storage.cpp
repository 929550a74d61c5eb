#include "halftape/optim/state/flat_storage.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "halftape/autograd/tape/grad_mode.h"
#include "halftape/autograd/tape/grad_tag.h"
#include "halftape/autograd/tape/node.h"
#include "halftape/core/capture/capture.h"
#include "halftape/core/contract/backend.h"

namespace halftape::optim {
namespace {

constexpr int64_t kAligned = 32;  // elements: 64 bytes of the smallest, and whole packs of all

Accumulate* end_of(const Tensor& leaf) {
  return static_cast<Accumulate*>(leaf.impl()->accumulator.get());
}

}  // namespace

FlatLayout::FlatLayout(const std::vector<Tensor>& params) : device(params[0].device()) {
  for (const Tensor& p : params) {
    shapes.push_back(p.sizes());
    offsets.push_back(numel);
    numel = checked_add(numel, (p.numel() + kAligned - 1) / kAligned * kAligned);
  }
}

FlatArray::FlatArray(const FlatLayout& layout, Dtype dtype)
    : all(full({layout.numel}, 0, dtype, layout.device)) {
  for (size_t i = 0; i < layout.shapes.size(); ++i)
    places.push_back(make_ref<Place>(all, layout.offsets[i], layout.shapes[i]));
}

/// The 16-bit copies, which come when a region of autocast first asks for one.
class FlatRegion::WeightCasts : public RefCounted {
 public:
  explicit WeightCasts(std::shared_ptr<const FlatLayout> layout) : layout_(std::move(layout)) {}
  Array lend(size_t i, Dtype dtype) {
    const std::lock_guard lock(mutex_);
    auto made = copies_.find(dtype);
    if (made == copies_.end()) made = copies_.emplace(dtype, FlatArray(*layout_, dtype)).first;
    return made->second.places[i]->lend();
  }

 private:
  std::shared_ptr<const FlatLayout> layout_;
  std::mutex mutex_;
  std::map<Dtype, FlatArray> copies_;
};

/// Those of parameter i. They know nothing of the region, which holds what they hang on.
class FlatRegion::Places final : public LeafPlaces {
 public:
  Places(Ref<Place> gradient, Ref<WeightCasts> lows, size_t i)
      : gradient_(std::move(gradient)), lows_(std::move(lows)), i_(i) {}
  Array gradient(Dtype dtype) override {
    return dtype == gradient_->dtype() ? gradient_->lend() : Array();
  }
  Array low_copy(Dtype dtype) override { return lows_->lend(i_, dtype); }

 private:
  Ref<Place> gradient_;
  Ref<WeightCasts> lows_;
  size_t i_;
};

FlatRegion::FlatRegion(std::vector<Tensor> params)
    : params_(std::move(params)),
      layout_(std::make_shared<FlatLayout>(params_)),
      parameters_(*layout_, params_[0].dtype()),
      gradients_(*layout_, params_[0].dtype()),
      lows_(make_ref<WeightCasts>(layout_)) {
  for (size_t i = 0; i < params_.size(); ++i) {
    numbers_[params_[i].impl()] = i;
    places_.push_back(make_ref<Places>(gradients_.places[i], lows_, i));
  }
}
FlatRegion::FlatRegion(FlatRegion&&) noexcept = default;
FlatRegion::~FlatRegion() { detach(); }

void FlatRegion::move_in() {
  for (size_t i = 0; i < params_.size(); ++i) {
    const Array to = parameters_.places[i]->lend();
    backend(layout_->device).copy(to, params_[i].array());
    params_[i].impl()->set_value(to);
  }
  attach();
}

bool FlatRegion::holds(const std::vector<Tensor>& params) const {
  if (params.size() != params_.size()) return false;
  for (size_t i = 0; i < params.size(); ++i)
    if (!params[i].is_same(params_[i]) || !parameters_.places[i]->has(params[i].array()))
      return false;
  return true;
}

void FlatRegion::attach() {
  for (size_t i = 0; i < params_.size(); ++i) {
    Accumulate* const end = end_of(params_[i]);
    if (!end || end->places == places_[i]) continue;
    if (parameters_.places[i]->has(params_[i].array())) end->places = places_[i];
  }
}

void FlatRegion::detach() noexcept {
  for (size_t i = 0; i < params_.size(); ++i)
    if (Accumulate* const end = end_of(params_[i]); end && end->places == places_[i])
      end->places = {};
}

Tensor FlatRegion::parameters() const {
  for (size_t i = 0; i < params_.size(); ++i)
    HALFTAPE_CHECK(parameters_.places[i]->has(params_[i].array()), "FlatRegion::parameters: the ",
                   params_[i].dtype(), " parameter ", i, " of shape ", params_[i].sizes(),
                   " has other bytes than those that it was given here; call flatten() again");
  return Tensor(parameters_.all);
}

void FlatRegion::renew_gradients() {
  const LastingState stays;
  detach();
  gradients_ = FlatArray(*layout_, gradients_.all.dtype());
  for (size_t i = 0; i < params_.size(); ++i)
    places_[i] = make_ref<Places>(gradients_.places[i], lows_, i);
  attach();
}

Tensor FlatRegion::gradients() {
  const NoGradGuard no_grad;
  const auto in_place = [&](size_t i) {
    const Tensor& g = params_[i].mutable_grad();
    return g.defined() && !g.requires_grad() && gradients_.places[i]->has(g.array());
  };
  bool blocked = false;
  for (size_t i = 0; i < params_.size(); ++i) {
    const Tensor &p = params_[i], &g = p.mutable_grad();
    HALFTAPE_CHECK(!g.defined() || (g.sizes() == p.sizes() && g.device() == layout_->device &&
                                    g.dtype() == gradients_.all.dtype()),
                   "FlatRegion::gradients: the gradient of parameter ", i, " (", g.sizes(), ", ",
                   g.dtype(), ", ", g.device(), ") does not fit among those of its region (",
                   p.sizes(), ", ", gradients_.all.dtype(), ", ", layout_->device, ")");
    blocked |= !in_place(i) && !gradients_.places[i]->free();
  }
  if (blocked) renew_gradients();
  for (size_t i = 0; i < params_.size(); ++i) {
    if (in_place(i)) continue;
    Tensor& g = params_[i].mutable_grad();
    const Array to = gradients_.places[i]->lend();
    HALFTAPE_CHECK(to.defined(),
                   "FlatRegion::gradients: a backward pass of another thread goes on");
    if (!g.defined()) {
      backend(to.device()).fill(to, 0);
      continue;
    }
    const GradMark mark = mark_of(g);
    backend(to.device()).copy(to, g.array());
    g = Tensor(to);
    if (mark.known) set_mark(g, mark.tag);
  }
  return Tensor(gradients_.all);
}

bool FlatRegion::zero_gradients() {
  bool any = false;
  for (size_t i = 0; i < params_.size(); ++i) {
    const Tensor& g = params_[i].mutable_grad();
    any |= g.defined();
    const bool here = g.defined() ? !g.requires_grad() && gradients_.places[i]->has(g.array())
                                  : gradients_.places[i]->free();
    if (!here) return false;
  }
  if (any) Tensor(gradients_.all).zero_();
  return true;
}

Tensor FlatRegion::state(const std::string& key) const {
  const auto found = state_.find(key);
  return found == state_.end() ? Tensor() : Tensor(found->second.all);
}

Array FlatRegion::state_array(const std::string& key, const Tensor& p, Dtype dtype) {
  auto found = state_.find(key);
  if (found == state_.end()) {
    const LastingState stays;
    found = state_.emplace(key, FlatArray(*layout_, dtype)).first;
  }
  const FlatArray& kind = found->second;
  return kind.all.dtype() == dtype ? kind.places[numbers_.at(p.impl())]->lend() : Array();
}

void FlatRegion::adopt(const Tensor& p, ParamState& state) {
  for (auto& [key, value] : state) {
    if (key == "step" || value.shape() != p.sizes() || !is_floating_point(value.dtype()) ||
        value.device() != layout_->device)
      continue;
    const auto found = state_.find(key);
    if (found != state_.end() && found->second.places[numbers_.at(p.impl())]->has(value)) continue;
    if (!value.unique()) continue;  // somebody, a Graph perhaps, relies on where it is
    const Array to = state_array(key, p, value.dtype());
    if (!to.defined()) continue;
    backend(to.device()).copy(to, value);
    value = to;
  }
}

namespace {
thread_local constinit std::vector<FlatRegion>* making = nullptr;
}

FlatState::FlatState(std::vector<FlatRegion>& regions)
    : before_(std::exchange(making, regions.empty() ? nullptr : &regions)) {}
FlatState::~FlatState() { making = before_; }

Array FlatState::array(const char* key, const Tensor& p, Dtype dtype) {
  if (making)
    for (FlatRegion& region : *making)
      if (region.covers(p) &&
          region.parameters_.places[region.numbers_.at(p.impl())]->has(p.array()))
        if (Array place = region.state_array(key, p, dtype); place.defined()) return place;
  return {p.sizes(), dtype, p.device()};
}

}  // namespace halftape::optim
