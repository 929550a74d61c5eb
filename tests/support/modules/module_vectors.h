// Modules and functions against PyTorch's: parameters are read from a file of vectors, and results
// and gradients compared with what stands there.
#pragma once
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include "halftape/tests/support/close.h"
#include "halftape/tests/support/counted.h"
#include "halftape/tests/support/vectors.h"

namespace halftape::testing {

class ModuleVectors {
 public:
  ModuleVectors(const std::string& file, Dtype dtype) : torch_(file), dtype_(dtype) {}

  Dtype dtype() const { return dtype_; }
  Tensor leaf(const std::string& name, const Shape& shape) const {
    return torch_.tensor(name, shape).to(dtype_).requires_grad_();
  }
  /// The module in this dtype, with the parameters of `name`, of which there are as many.
  template <class M>
  M loaded(const std::string& name, M module) const {
    module->to(dtype_);
    const NoGradGuard no_grad;
    for (const auto& p : module->named_parameters()) {
      if (!p.value().defined()) continue;
      p.value().copy_(torch_.tensor(name + "/parameter/" + p.key(), p.value().sizes()));
    }
    return module;
  }
  /// 1e-10 of the largest in float64, 1e-5 in float32.
  void same(const std::string& name, const Tensor& got) const {
    INFO(name << ' ' << dtype_);
    const bool wide = dtype_ == kFloat64;
    CHECK(got.dtype() == dtype_);
    CHECK(differ(got, torch_[name], {.eps = (wide ? 1e-10 : 1e-5) / epsilon(dtype_)}) == "");
  }
  /// The value, and the gradients for an incoming gradient of 1, 2, 3, …
  void check(const std::string& name, const Tensor& y, const TensorList& inputs) const {
    same(name + "/value", y);
    const TensorList grads = gradients(y, inputs);
    for (size_t i = 0; i < grads.size(); ++i) same(name + "/grad" + std::to_string(i), grads[i]);
  }
  /// The gradients of a module's parameters.
  template <class M>
  void check_parameters(const std::string& name, const Tensor& y, const M& module) const {
    TensorList all;
    std::vector<std::string> names;
    for (const auto& p : module->named_parameters()) {
      if (!p.value().defined()) continue;
      all.push_back(p.value());
      names.push_back(p.key());
    }
    const TensorList grads = gradients(y, all);
    for (size_t i = 0; i < grads.size(); ++i) same(name + "/grad/" + names[i], grads[i]);
  }

 private:
  static TensorList gradients(const Tensor& y, const TensorList& of) {
    return autograd::grad({y}, of, {counting(y)}, true);
  }

  Vectors torch_;
  Dtype dtype_;
};

}  // namespace halftape::testing
