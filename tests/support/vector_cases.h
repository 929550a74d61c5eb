// Ops of one tensor against another program's values and gradients, whose options stand in the
// file.
#pragma once
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include "halftape/tests/support/close.h"
#include "halftape/tests/support/counted.h"
#include "halftape/tests/support/vectors.h"

namespace halftape::testing {

inline Dims dims_of(const std::vector<double>& v) {
  Dims d;
  for (double x : v) d.push_back(static_cast<int64_t>(x));
  return d;
}

/// The cases of a file whose names begin so.
class Cases {
 public:
  Cases(const Vectors& torch, std::string name) : torch_(torch), name_(std::move(name)) {}
  Dims dims(const char* word) const { return dims_of(torch_[name_ + "/" + word]); }
  const std::vector<double>& numbers(const char* word) const { return torch_[name_ + "/" + word]; }
  Tensor x(Dtype dtype) const {
    return torch_.tensor(name_ + "/x", dims("x_shape")).to(dtype).requires_grad_();
  }
  /// Value and gradient, in float64 and float32.
  template <class F>
  void check(const F& f, const std::string& what = "") const {
    for (const Dtype dtype : {kFloat64, kFloat32}) {
      const Tensor in = x(dtype), y = f(in);
      const Tolerance allowed{.ulps = 8, .eps = 16};
      CHECK(differ(y, torch_[name_ + what + "/value"], allowed) == "");
      const Tensor g = autograd::grad({y}, {in}, {counting(y)})[0];
      CHECK(differ(g, torch_[name_ + what + "/grad0"], allowed) == "");
    }
  }

 private:
  const Vectors& torch_;
  std::string name_;
};

}  // namespace halftape::testing
