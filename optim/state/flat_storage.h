// Flat storage: the parameters of an optimizer, their gradients, optimizer state and 16-bit copies,
// each kind in one buffer, so that one call reaches all tensors of a kind.
//
//     optimizer.flatten();
//     …
//     loss.backward();
//     for (optim::FlatRegion& region : optimizer.flat_regions()) all_reduce(region.gradients());
//     optimizer.step();
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "halftape/autograd/tape/node.h"
#include "halftape/core/capture/buffer_slot.h"
#include "halftape/optim/optimizer.h"

namespace halftape::optim {

/// Where each parameter's part begins: the same in all buffers of a region, whatever their dtype.
struct FlatLayout {
  explicit FlatLayout(const std::vector<Tensor>& params);
  std::vector<Shape> shapes;     // of the parameters
  std::vector<int64_t> offsets;  // in elements
  int64_t numel = 0;             // with the zeros between the parts
  Device device;                 // of all of them
};

/// A buffer of one kind and dtype, filled with zeros, and a slot in it for each parameter.
struct FlatArray {
  FlatArray(const FlatLayout& layout, Dtype dtype);
  Array all;                           // (layout.numel)
  std::vector<Ref<BufferSlot>> slots;  // one for each parameter
};

/// The parameters of one group with the same dtype and device. Optimizer::flatten() makes it.
///
/// Every parameter remains the same Tensor, with a version of its own: writing to one parameter
/// does not invalidate what was saved of another. Each begins at a multiple of 32 elements, and so
/// of 64 bytes. The elements between are 0, unless you write them through the tensors below.
///
/// backward() copies the gradient of each parameter into the parameter's slot, and adds further
/// gradients there. A slot is free unless a tensor has its bytes (an earlier gradient that somebody
/// kept) or a Graph writes them. Where it is not free, the gradient lies elsewhere until
/// gradients() is called, and so does one recorded with create_graph.
class FlatRegion {
 public:
  ~FlatRegion();
  FlatRegion(FlatRegion&&) noexcept;

  /// In the order in which they lie.
  const std::vector<Tensor>& params() const { return params_; }
  /// Where each begins in the tensors below, in elements.
  const std::vector<int64_t>& offsets() const { return layout_->offsets; }
  /// Elements of the tensors below.
  int64_t numel() const { return layout_->numel; }

  // Each is 1-D, (numel()), without history. Writing to it writes to all of its parts.

  /// The parameters. Throws when a parameter has other bytes by now, after set_data() or its
  /// module's to(); flatten() takes it in again.
  Tensor parameters() const;
  /// The gradients, for an all-reduce, say. Gradients that lie elsewhere are copied in, without
  /// their history, and become the parameter's grad(). Parameters without a gradient remain so, and
  /// have zeros here. If somebody holds an earlier gradient that lies here, or a Graph writes here,
  /// they keep the old buffer, and the region takes a new one. Throws, changing nothing, when a
  /// gradient does not have its parameter's shape, dtype and device.
  Tensor gradients();
  /// The optimizer's state under a key such as "exp_avg" or "master". Undefined where there is
  /// none, and where it is one number for a parameter, as "step". Parameters without such a state
  /// have zeros, or what was there last.
  Tensor state(const std::string& key) const;

 private:
  friend class Optimizer;
  friend class FlatState;
  explicit FlatRegion(std::vector<Tensor> params);
  void move_in();
  /// True if `params` are this region's, and all of them still lie in its buffer.
  bool holds(const std::vector<Tensor>& params) const;
  bool covers(const Tensor& p) const { return numbers_.count(p.impl()) > 0; }
  /// True if parameter i, or its gradient, lies in its slot.
  bool in_slot(size_t i) const;
  bool gradient_in_slot(size_t i) const;
  /// Gives the parameters' accumulators their slots; again after requires_grad_(), which makes a
  /// new accumulator.
  void attach();
  void detach() noexcept;
  void renew_gradients();
  /// Zeros all gradients by one fill. Returns false, having done nothing, if one lies elsewhere.
  bool zero_gradients();
  /// Uninitialised, of the parameter's shape; undefined where the slot is not free or has another
  /// dtype.
  Array state_array(const std::string& key, const Tensor& p, Dtype dtype);
  /// Moves state that lies elsewhere into its slots, unless others hold its bytes.
  void adopt(const Tensor& p, ParamState& state);

  class WeightCasts;
  class Slots;
  std::vector<Tensor> params_;
  std::shared_ptr<const FlatLayout> layout_;
  FlatArray parameters_, gradients_;
  Ref<WeightCasts> casts_;
  std::vector<Ref<LeafSlots>> slots_;  // of each parameter's gradient and 16-bit copies
  std::map<std::string, FlatArray> state_;
  std::unordered_map<const ::halftape::detail::TensorImpl*, size_t> numbers_;
};

/// For a scope, in this thread: new state of these regions' parameters is made in the regions.
class [[nodiscard]] FlatState {
 public:
  [[nodiscard]] explicit FlatState(std::vector<FlatRegion>& regions);
  ~FlatState();
  FlatState(const FlatState&) = delete;
  FlatState& operator=(const FlatState&) = delete;
  /// Uninitialised, of the parameter's shape.
  static Array array(const char* key, const Tensor& parameter, Dtype dtype);

 private:
  std::vector<FlatRegion>* before_;
};

}  // namespace halftape::optim
