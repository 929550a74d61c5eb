// Sequential: modules and functions one after another.
#pragma once
#include <functional>

#include "halftape/nn/module.h"

namespace halftape::nn {

/// Calls its parts in order, each on the result of the one before. Parts are modules, holders of
/// modules, or anything that takes a Tensor and gives one; modules are registered under their
/// number, or the name they are given.
class SequentialImpl : public Module {
 public:
  SequentialImpl() : Module("halftape::nn::Sequential") {}
  template <class... Parts>
  requires(sizeof...(Parts) > 0) explicit SequentialImpl(Parts&&... parts) : SequentialImpl() {
    (push_back(std::forward<Parts>(parts)), ...);
  }

  template <class Part>
  void push_back(Part part) {
    push_back(std::to_string(parts_.size()), std::move(part));
  }
  template <class Part>
  void push_back(std::string name, Part part) {
    if constexpr (requires { typename Part::ContainedType; }) {
      push_back(std::move(name), part.ptr());
    } else if constexpr (requires { part->forward(std::declval<const Tensor&>()); }) {
      register_module(std::move(name), part);
      parts_.push_back([part](const Tensor& x) { return part->forward(x); });
    } else if constexpr (std::is_base_of_v<Module, Part>) {
      push_back(std::move(name), std::make_shared<Part>(std::move(part)));
    } else {
      static_assert(std::is_invocable_r_v<Tensor, Part, const Tensor&>,
                    "Sequential takes modules, and functions from Tensor to Tensor");
      parts_.push_back(std::move(part));
    }
  }

  Tensor forward(const Tensor& x) const;
  size_t size() const { return parts_.size(); }
  bool is_empty() const { return parts_.empty(); }

 private:
  std::vector<std::function<Tensor(const Tensor&)>> parts_;
};

class Sequential : public ModuleHolder<SequentialImpl> {
 public:
  using ModuleHolder<SequentialImpl>::ModuleHolder;
  Sequential() = default;
};

}  // namespace halftape::nn
