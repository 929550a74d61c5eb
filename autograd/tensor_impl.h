// The object behind a Tensor: the array, its gradient, and its place in the graph.
#pragma once
#include <atomic>
#include <memory>
#include <string>

#include "halftape/autograd/tensor.h"
#include "halftape/core/machine/free_list.h"

namespace halftape {

namespace autograd {
/// How a view came about. Only a recorded one follows when its base gets another history: of the
/// others gradients would be lost, so that they may neither be written nor used after that.
enum class CreationMeta : uint8_t { DEFAULT, IN_CUSTOM_FUNCTION, NO_GRAD_MODE, INFERENCE_MODE };
}  // namespace autograd

namespace detail {
struct TensorImpl final : RefCounted, FreeListed {
  explicit TensorImpl(Array&& v);
  ~TensorImpl();
  Array value;
  /// Puts other bytes behind this tensor.
  void set_value(Array v);
  Edge history;                            // the node that made it; empty for a leaf
  Ref<Node> accumulator;                   // of a leaf that requires grad: receives its gradient
  Ref<Node> resting;                       // the accumulator, after requires_grad_(false)
  std::shared_ptr<GradSlot> retained;      // of a non-leaf that keeps its gradient
  Ref<GradTag> mark;                       // of a gradient: autograd/tape/grad_tag.h …
  uint64_t marked_version = ~uint64_t{0};  // … and the version of the bytes that it describes

  // A view shares bytes with the tensor it was cut from. When those are written, by whatever name,
  // the base's history changes, and the views take theirs from it anew.
  bool is_view = false;
  autograd::CreationMeta creation_meta = autograd::CreationMeta::DEFAULT;  // of a view
  bool unrecorded = false;  // a view without history of a tensor that requires grad
  bool inference = false;   // made in InferenceMode: outside all graphs
  bool low_copied = false;  // there may be a 16-bit copy: autograd/tape/weight_cast.h
  bool partial = false;     // of a gradient: autograd/tape/grad_tag.h
  uint32_t times_set = 0;   // how often set_data() put other numbers here
  uint32_t rewritten = 0;   // of a base: how often its history changed
  // Of a view: the base's count when the view's history was made.
  std::atomic<uint32_t> seen = 0;
  Ref<TensorImpl> base;  // of a view; never a view itself
  void becomes_view_of(const Tensor& x);
  bool outdated() const { return base && base->rewritten != seen; }
  /// Whether what happens to the base's history happens to this view's.
  bool follows() const { return base && creation_meta == autograd::CreationMeta::DEFAULT; }
  void renew();
  /// Renews what is outdated: of threads that read the view at once, the first one does. A view
  /// that does not follow stays outdated if a gradient is concerned.
  void catch_up();
  /// "A view was created in no_grad mode": the beginning of errors.
  std::string creation() const;
  /// Throws, as gradients of an outdated view would not reach its base.
  [[noreturn]] void refuse_outdated() const;
  /// Replaces the history; a gradient that is retained follows.
  void set_history(Edge edge);
  /// PyTorch's internal names for the state of a view.
  bool has_bw_view() const { return is_view; }
  autograd::CreationMeta get_creation_meta() const { return creation_meta; }
  TensorImpl* autograd_meta() { return this; }
  static int64_t live_count();

  Tensor grad;  // the last member: ~TensorImpl() has looked whether there is one
};
[[noreturn]] void undefined_tensor();
}  // namespace detail

const Array& TensorBase::array() const {
  if (!impl_) [[unlikely]]
    detail::undefined_tensor();
  return impl_->value;
}
bool TensorBase::requires_grad() const {
  if (!impl_) return false;
  if (impl_->outdated()) [[unlikely]]
    impl_->catch_up();
  return impl_->history || impl_->accumulator || impl_->unrecorded;
}

unsigned TensorBase::register_hook(auto hook) const {
  if constexpr (std::is_void_v<decltype(hook(std::declval<Tensor>()))>)
    return add_hook([hook](const Tensor& g) { return hook(g), Tensor(); });
  else
    return add_hook(hook);
}

}  // namespace halftape
