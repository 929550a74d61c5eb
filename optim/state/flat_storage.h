// Flat storage: the parameters of an optimizer, their gradients, what it remembers of them and
// their 16-bit copies, each kind in one buffer, so that one call reaches all of a kind.
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

#include "halftape/autograd/tape/leaf_slots.h"
#include "halftape/core/capture/buffer_slot.h"
#include "halftape/optim/optimizer.h"

namespace halftape::optim {

/// Where the parts of a region's buffers begin: alike in all of them, whatever their dtype.
struct FlatLayout {
  explicit FlatLayout(const std::vector<Tensor>& params);
  std::vector<Shape> shapes;
  std::vector<int64_t> offsets;  // in elements
  int64_t numel = 0;             // with the zeros between the parts
  Device device;
};

/// One kind of things, of one dtype: all of them, and the place of each.
struct FlatArray {
  FlatArray(const FlatLayout& layout, Dtype dtype);
  Array all;  // (layout.numel), made of zeros
  std::vector<Ref<Place>> places;
};

/// The parameters of one group that have one dtype, on one device: what Optimizer::flatten() makes.
///
/// Every parameter stays the tensor that it was, with a version of its own: a write to it makes
/// nothing stale of the others. Each begins at a multiple of 32 elements, and so of 64 bytes; what
/// lies between is 0, and stays so unless it is written through the tensors that are given here.
///
/// A gradient is made at its place where the rule that makes it asks for one (those of products,
/// layers, embeddings, norms, sums for biases, casts) and the place is free; nothing is copied
/// then. It is free unless a tensor has it: an earlier gradient that somebody kept, say, or one of
/// a Graph's. Everything else about gradients is as it is without flat storage.
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

  // Each 1-D, (numel()), without history: what is written to it is written to all of its parts.

  /// The parameters. Throws when one has other bytes by now: after set_data(), or to() of its
  /// module; flatten() takes it in again.
  Tensor parameters() const;
  /// The gradients, for an all-reduce, or anything else that is done to all of them alike. Brings
  /// those into place that lie elsewhere: they are copied, without their history, and grad() of the
  /// parameter is what lies here from then on. Parameters without a gradient remain so, and have
  /// zeros here. If somebody holds an earlier gradient that lies here, or a Graph writes here, they
  /// keep it, and the region takes a new buffer. Throws, changing nothing, when a gradient has not
  /// its parameter's shape, dtype and device.
  Tensor gradients();
  /// What the optimizer remembers under a key, as "exp_avg" or "master"; undefined when it does
  /// not, and where that is one number for a parameter, as "step". Zeros, or what was there last,
  /// for parameters without such a state.
  Tensor state(const std::string& key) const;

 private:
  friend class Optimizer;
  friend class FlatState;
  explicit FlatRegion(std::vector<Tensor> params);
  void move_in();
  /// All of them, where they belong?
  bool holds(const std::vector<Tensor>& params) const;
  bool covers(const Tensor& p) const { return numbers_.count(p.impl()) > 0; }
  /// Gives parameters their places; again after requires_grad_(), which begins the tape anew.
  void attach();
  void detach() noexcept;
  void renew_gradients();
  /// By one fill. False: something lies elsewhere, and nothing is done.
  bool zero_gradients();
  /// For state of this dtype that has the parameter's shape; undefined where its place is not free.
  Array state_array(const std::string& key, const Tensor& p, Dtype dtype);
  /// Moves what lies elsewhere, but for what others hold there.
  void adopt(const Tensor& p, ParamState& state);

  class WeightCasts;
  class Places;
  std::vector<Tensor> params_;
  std::shared_ptr<const FlatLayout> layout_;
  FlatArray parameters_, gradients_;
  Ref<WeightCasts> lows_;
  std::vector<Ref<LeafPlaces>> places_;
  std::map<std::string, FlatArray> state_;
  std::unordered_map<const ::halftape::detail::TensorImpl*, size_t> numbers_;
};

/// For a scope, in this thread: state that is made of these regions' parameters is made in them.
class [[nodiscard]] FlatState {
 public:
  explicit FlatState(std::vector<FlatRegion>& regions);
  ~FlatState();
  FlatState(const FlatState&) = delete;
  FlatState& operator=(const FlatState&) = delete;
  /// Uninitialised, of the parameter's shape.
  static Array array(const char* key, const Tensor& parameter, Dtype dtype);

 private:
  std::vector<FlatRegion>* before_;
};

}  // namespace halftape::optim
