// Weight normalisation: a layer whose weight is a direction times a length. Spelled as
// torch.nn.utils.weight_norm; LibTorch has none.
#pragma once
#include <memory>
#include <optional>
#include <utility>

#include "halftape/nn/any_module.h"

namespace halftape::nn::utils {

/// ‖v‖ over all dimensions but `dim`, which keep size 1, or over all of v without one.
Tensor weight_length(const Tensor& v, std::optional<int64_t> dim = 0);
/// g·v/‖v‖, with the norm above. Halves are computed in float32 and rounded once.
Tensor normalized_weight(const Tensor& v, const Tensor& g, std::optional<int64_t> dim = 0);

/// The layer M with a weight g·v/‖v‖, where g and v are trained instead.
template <class M, class Forward = typename nn::detail::Call<decltype(&M::forward)>::Type>
class WeightNormImpl;

/// An M whose forward() first computes `weight` from the parameters weight_g and weight_v; other
/// parameters keep their names, as in PyTorch. Not thread-safe: each thread needs a clone.
template <class M, class R, class... Args>
class WeightNormImpl<M, R(Args...)> : public M {
 public:
  explicit WeightNormImpl(const M& layer, std::optional<int64_t> dim = 0) : M(layer), dim_(dim) {
    split();
  }
  void reset() override {
    M::reset();
    split();
  }
  /// Draws weight and other parameters as M does; the weight gives directions and lengths.
  void reset_parameters() requires requires(M& layer) { layer.reset_parameters(); }
  {
    this->weight = weight_v.detach().clone();
    M::reset_parameters();
    const NoGradGuard no_grad;
    weight_v.copy_(this->weight);
    weight_g.copy_(weight_length(this->weight, dim_));
  }
  R forward(Args... args) {
    const Module::PlaceScope scope(*this);
    this->weight = normalized_weight(weight_v, weight_g, dim_);
    return scope.result(M::forward(std::forward<Args>(args)...));
  }
  /// The layer with a parameter `weight` again, with its present value.
  std::shared_ptr<M> without_norm() const {
    WeightNormImpl plain(*this);
    plain.unregister_parameter("weight_g");
    plain.unregister_parameter("weight_v");
    plain.weight = plain.register_parameter(
        "weight", normalized_weight(weight_v, weight_g, dim_).detach(), weight_v.requires_grad());
    return std::make_shared<M>(static_cast<const M&>(plain));
  }

  std::shared_ptr<Module> clone(const std::optional<Device>& device = {}) const override {
    std::shared_ptr<Module> copy = M::clone(device);
    auto& of = static_cast<WeightNormImpl&>(*copy);  // whose reset() has drawn a weight
    of.weight = normalized_weight(of.weight_v, of.weight_g, dim_).detach();
    return copy;
  }

  Tensor weight_g;  // lengths
  Tensor weight_v;  // directions, of the shape of the weight

 protected:
  CloneableModule* shallow_copy() const override {
    return new WeightNormImpl(*this);  // NOLINT: clone() owns it
  }
  bool assign_from(const Module& other) override {
    const auto* same = dynamic_cast<const WeightNormImpl*>(&other);
    if (same) *this = *same;
    return same;
  }

 private:
  void split() {
    HALFTAPE_CHECK(this->parameters_.contains("weight"),
                   "weight_norm: the layer has no parameter `weight`; its norm is split already");
    const Tensor w = this->weight.detach();
    const bool trains = this->weight.requires_grad();
    this->unregister_parameter("weight");
    weight_g = this->register_parameter("weight_g", weight_length(w, dim_), trains);
    weight_v = this->register_parameter("weight_v", w.clone(), trains);
    this->weight = w.clone();  // the given layer keeps its own
  }
  std::optional<int64_t> dim_;
};

/// A holder, made by weight_norm():  WeightNorm<nn::Linear> fc = weight_norm(nn::Linear(4, 2));
template <nn::detail::Holder Layer>
class WeightNorm : public ModuleHolder<WeightNormImpl<typename Layer::ContainedType>> {
 public:
  using ModuleHolder<WeightNormImpl<typename Layer::ContainedType>>::ModuleHolder;
};

/// The layer with its `weight` split into length and direction, with the same value at first.
/// `dim`: each index of this dimension has a length of its own (0: the outputs of Linear and Conv);
/// none, and -1 as in PyTorch: one length for all. The other parameters are shared with `layer`,
/// which should not be trained any more. Salimans & Kingma 2016, arXiv:1602.07868.
///
/// Modules here have no hooks before forward(), so this returns another layer for the model to
/// register, where torch.nn.utils changes the given one.
template <nn::detail::Holder Layer>
WeightNorm<Layer> weight_norm(const Layer& layer, std::optional<int64_t> dim = 0) {
  return WeightNorm<Layer>(*layer, dim);
}
/// The layer without the norm: `weight` is a parameter again. Shares the other parameters.
template <nn::detail::Holder Layer>
Layer remove_weight_norm(const WeightNorm<Layer>& layer) {
  return Layer(layer->without_norm());
}

}  // namespace halftape::nn::utils
