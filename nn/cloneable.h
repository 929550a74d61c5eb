// Cloneable: a module that knows how to make another of its kind. Spelled as torch::nn::Cloneable.
#pragma once
#include <memory>
#include <optional>

#include "halftape/nn/module.h"

namespace halftape::nn {

/// clone() for a module that registers all it has in reset(), and calls that in its constructor:
///
///     struct Net : nn::Cloneable<Net> {
///       Net() { reset(); }
///       void reset() override { fc = register_module("fc", nn::Linear(4, 2)); }
///       nn::Linear fc{nullptr};
///     };
///
/// The clone is a copy of the object whose reset() registers anew, so that its members are its own;
/// then values, dtypes and submodules are those of the original. What frozen parameters are stays
/// frozen. Tensors and modules that were registered under several names are several in the clone.
template <class Derived>
class Cloneable : public Module {
 public:
  using Module::Module;

  /// Registers parameters, buffers and submodules, with fresh values. A module without them has
  /// nothing to do.
  virtual void reset() {}

  std::shared_ptr<Module> clone(const std::optional<Device>& device = {}) const override {
    return Module::cloned(static_cast<const Derived&>(*this), device);
  }

 private:
  void clone_(const Module& other, const std::optional<Device>& device) override {
    Module::become_clone(static_cast<Derived&>(*this), other, device);
  }
};

}  // namespace halftape::nn
