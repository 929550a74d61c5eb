// Cloneable: a module that knows how to make another of its kind. Spelled as torch::nn::Cloneable.
#pragma once
#include <memory>
#include <optional>

#include "halftape/nn/module.h"

namespace halftape::nn {

/// The part of Cloneable that does not depend on the class.
class CloneableModule : public Module {
 public:
  using Module::Module;

  /// Registers parameters, buffers and submodules with fresh values; by default there are none.
  virtual void reset() {}

  std::shared_ptr<Module> clone(const std::optional<Device>& device = {}) const override;

 protected:
  /// A copy of the object, which shares its tensors and submodules.
  virtual CloneableModule* shallow_copy() const = 0;
  /// Becomes a copy that shares its tensors with `other`; false if the classes differ.
  virtual bool assign_from(const Module& other) = 0;

 private:
  void clone_(const Module& other, const std::optional<Device>& device) override;
};

/// clone() for a module that registers all it has in reset(), and calls that in its constructor:
///
///     struct Net : nn::Cloneable<Net> {
///       Net() { reset(); }
///       void reset() override { fc = register_module("fc", nn::Linear(4, 2)); }
///       nn::Linear fc{nullptr};
///     };
///
/// The clone copies the object, calls reset() so that its members are its own, and then takes over
/// values, dtypes and submodules. Frozen parameters stay frozen. A tensor or module registered
/// under several names becomes several in the clone.
///
/// `Base`: a common base, derived from CloneableModule, as of the convolutions of 1, 2 and 3
/// dimensions.
template <class Derived, class Base = CloneableModule>
class Cloneable : public Base {
 public:
  using Base::Base;

 protected:
  CloneableModule* shallow_copy() const override {
    return new Derived(static_cast<const Derived&>(*this));  // NOLINT: clone() owns it
  }
  bool assign_from(const Module& other) override {
    const auto* same = dynamic_cast<const Derived*>(&other);
    if (same) static_cast<Derived&>(*this) = *same;
    return same;
  }
};

}  // namespace halftape::nn
