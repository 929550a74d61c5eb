#include "halftape/optim/state/flat_storage.h"

#include <mutex>
#include <utility>

#include "halftape/autograd/tape/grad_mode.h"
#include "halftape/autograd/tape/grad_tag.h"
#include "halftape/autograd/tape/node.h"
#include "halftape/core/capture/capture.h"
#include "halftape/core/contract/backend.h"

namespace halftape::optim {
namespace {

constexpr int64_t kAligned = 32;  // elements: 64 bytes even of a 16-bit dtype

Accumulate* accumulator_of(const Tensor& leaf) {
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
    slots.push_back(make_ref<BufferSlot>(all, layout.offsets[i], layout.shapes[i]));
}

/// The 16-bit copies, in one buffer for each dtype, made when autocast first asks for one.
class FlatRegion::WeightCasts : public RefCounted {
 public:
  explicit WeightCasts(std::shared_ptr<const FlatLayout> layout) : layout_(std::move(layout)) {}
  Array lend(size_t i, Dtype dtype) {
    const std::lock_guard lock(mutex_);
    auto made = copies_.find(dtype);
    if (made == copies_.end()) {
      FlatArray fresh(*layout_, dtype);
      backend(layout_->device).synchronize();  // the next one may ask in another queue
      made = copies_.emplace(dtype, std::move(fresh)).first;
    }
    return made->second.slots[i]->lend();
  }

 private:
  std::shared_ptr<const FlatLayout> layout_;
  std::mutex mutex_;
  std::map<Dtype, FlatArray> copies_;
};

/// The slots of parameter i. They may outlive the region.
class FlatRegion::Slots final : public LeafSlots {
 public:
  Slots(Ref<BufferSlot> gradient, Ref<WeightCasts> casts, size_t i)
      : gradient_(std::move(gradient)), casts_(std::move(casts)), i_(i) {}
  Array gradient() override { return gradient_->lend(); }
  Array low_copy(Dtype dtype) override { return casts_->lend(i_, dtype); }

 private:
  Ref<BufferSlot> gradient_;
  Ref<WeightCasts> casts_;
  size_t i_;
};

FlatRegion::FlatRegion(std::vector<Tensor> params)
    : params_(std::move(params)),
      layout_(std::make_shared<FlatLayout>(params_)),
      parameters_(*layout_, params_[0].dtype()),
      gradients_(*layout_, params_[0].dtype()),
      casts_(make_ref<WeightCasts>(layout_)) {
  for (size_t i = 0; i < params_.size(); ++i) {
    numbers_[params_[i].impl()] = i;
    slots_.push_back(make_ref<Slots>(gradients_.slots[i], casts_, i));
  }
}
FlatRegion::FlatRegion(FlatRegion&&) noexcept = default;
FlatRegion::~FlatRegion() { detach(); }

void FlatRegion::move_in() {
  for (size_t i = 0; i < params_.size(); ++i) {
    const Array to = parameters_.slots[i]->lend();
    backend(layout_->device).copy(to, params_[i].array());
    params_[i].impl()->set_value(to);
  }
  attach();
}

bool FlatRegion::in_slot(size_t i) const { return parameters_.slots[i]->holds(params_[i].array()); }

bool FlatRegion::holds(const std::vector<Tensor>& params) const {
  if (params.size() != params_.size()) return false;
  for (size_t i = 0; i < params.size(); ++i)
    if (!params[i].is_same(params_[i]) || !in_slot(i)) return false;
  return true;
}

void FlatRegion::attach() {
  for (size_t i = 0; i < params_.size(); ++i) {
    Accumulate* const end = accumulator_of(params_[i]);
    if (end && end->slots != slots_[i] && in_slot(i)) end->slots = slots_[i];
  }
}

void FlatRegion::detach() noexcept {
  for (size_t i = 0; i < params_.size(); ++i)
    if (Accumulate* const end = accumulator_of(params_[i]); end && end->slots == slots_[i])
      end->slots = {};
}

Tensor FlatRegion::parameters() const {
  for (size_t i = 0; i < params_.size(); ++i)
    HALFTAPE_CHECK(in_slot(i), "FlatRegion::parameters: the ", params_[i].dtype(), " parameter ", i,
                   " of shape ", params_[i].sizes(),
                   " has other bytes than those that it was given here; call flatten() again");
  return Tensor(parameters_.all);
}

void FlatRegion::renew_gradients() {
  const LastingState stays;
  detach();
  gradients_ = FlatArray(*layout_, gradients_.all.dtype());
  for (size_t i = 0; i < params_.size(); ++i)
    slots_[i] = make_ref<Slots>(gradients_.slots[i], casts_, i);
  attach();
}

bool FlatRegion::gradient_in_slot(size_t i) const {
  const Tensor& g = params_[i].grad();
  return g.defined() && !g.requires_grad() && gradients_.slots[i]->holds(g.array());
}

Tensor FlatRegion::gradients() {
  const NoGradGuard no_grad;
  bool blocked = false;
  for (size_t i = 0; i < params_.size(); ++i) {
    const Tensor &p = params_[i], &g = p.grad();
    HALFTAPE_CHECK(!g.defined() || (g.sizes() == p.sizes() && g.device() == layout_->device &&
                                    g.dtype() == gradients_.all.dtype()),
                   "FlatRegion::gradients: the gradient of parameter ", i, " (", g.sizes(), ", ",
                   g.dtype(), ", ", g.device(), ") does not fit among those of its region (",
                   p.sizes(), ", ", gradients_.all.dtype(), ", ", layout_->device, ")");
    check_whole(g, "FlatRegion::gradients");
    blocked |= !gradient_in_slot(i) && !gradients_.slots[i]->free();
  }
  if (blocked) renew_gradients();
  for (size_t i = 0; i < params_.size(); ++i) {
    if (gradient_in_slot(i)) continue;
    Tensor& g = params_[i].mutable_grad();
    const Array to = gradients_.slots[i]->lend();
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
    const bool defined = params_[i].grad().defined();
    any |= defined;
    if (defined ? !gradient_in_slot(i) : !gradients_.slots[i]->free()) return false;
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
  return kind.all.dtype() == dtype ? kind.slots[numbers_.at(p.impl())]->lend() : Array();
}

void FlatRegion::adopt(const Tensor& p, ParamState& state) {
  for (auto& [key, value] : state) {
    if (key == "step" || value.shape() != p.sizes() || !is_floating_point(value.dtype()) ||
        value.device() != layout_->device)
      continue;
    const auto found = state_.find(key);
    if (found != state_.end() && found->second.slots[numbers_.at(p.impl())]->holds(value)) continue;
    if (!value.unique()) continue;  // a Graph, say, relies on the address
    const Array to = state_array(key, p, value.dtype());
    if (!to.defined()) continue;
    backend(to.device()).copy(to, value);
    value = to;
  }
}

namespace {
thread_local constinit std::vector<FlatRegion>* current_regions = nullptr;
}

FlatState::FlatState(std::vector<FlatRegion>& regions)
    : before_(std::exchange(current_regions, regions.empty() ? nullptr : &regions)) {}
FlatState::~FlatState() { current_regions = before_; }

Array FlatState::array(const char* key, const Tensor& p, Dtype dtype) {
  if (current_regions)
    for (FlatRegion& region : *current_regions)
      if (region.covers(p) && region.in_slot(region.numbers_.at(p.impl())))
        if (Array slot = region.state_array(key, p, dtype); slot.defined()) return slot;
  return {p.sizes(), dtype, p.device()};
}

}  // namespace halftape::optim
