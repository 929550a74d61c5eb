// Functional: a function as a module.
#pragma once
#include <functional>
#include <utility>

#include "halftape/nn/cloneable.h"

namespace halftape::nn {

/// Calls a function of a Tensor, with further arguments bound once:
///
///     nn::Sequential net(nn::Linear(3, 4), nn::Functional(relu), nn::Functional(elu, 1, 0, 1));
class FunctionalImpl : public Cloneable<FunctionalImpl> {
 public:
  using Function = std::function<Tensor(Tensor)>;
  explicit FunctionalImpl(Function function);
  template <class F, class... Args>
  requires(sizeof...(Args) > 0) explicit FunctionalImpl(F function, Args&&... args)
      : FunctionalImpl(
            std::bind(std::move(function), std::placeholders::_1, std::forward<Args>(args)...)) {}
  Tensor forward(Tensor x) const { return function_(std::move(x)); }
  Tensor operator()(Tensor x) const { return forward(std::move(x)); }
  void pretty_print(std::ostream& out) const override;

 private:
  Function function_;
};
class Functional : public ModuleHolder<FunctionalImpl> {
 public:
  using ModuleHolder<FunctionalImpl>::ModuleHolder;
  /// Chooses the overload of a function name that takes one Tensor.
  Functional(Tensor (*function)(const Tensor&));  // NOLINT: as LibTorch
};

}  // namespace halftape::nn
