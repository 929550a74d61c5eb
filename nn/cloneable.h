// Cloneable: a module that knows how to make another of its kind. Spelled as torch::nn::Cloneable.
#pragma once
#include <memory>
#include <optional>

#include "halftape/nn/module.h"

namespace halftape::nn {

/// What Cloneable is for every class: all but how an object is copied.
class CloneableModule : public Module {
 public:
  using Module::Module;

  /// Registers parameters, buffers and submodules, with fresh values. A module without them has
  /// nothing to do.
  virtual void reset() {}

  std::shared_ptr<Module> clone(const std::optional<Device>& device = {}) const override;

 protected:
  /// A copy of the object, which shares its tensors and submodules.
  virtual CloneableModule* shallow_copy() const = 0;
  /// Becomes a copy of an object of the same class, which shares with it; false if it is of
  /// another.
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
/// The clone is a copy of the object whose reset() registers anew, so that its members are its own;
/// then values, dtypes and submodules are those of the original. What frozen parameters are stays
/// frozen. Tensors and modules that were registered under several names are several in the clone.
///
/// `Base`: what modules that differ in little have in common, as convolutions of 1, 2 and 3
/// dimensions; derived from CloneableModule.
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
