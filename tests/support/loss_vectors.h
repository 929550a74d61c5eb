// Losses compared with PyTorch's, in value and gradient.
#pragma once
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <string>
#include <utility>
#include <vector>

#include "halftape/tests/support/close.h"
#include "halftape/tests/support/vectors.h"

namespace halftape::testing {

inline const std::pair<Reduction, std::string> reductions[] = {
    {kNone, "none"}, {kMean, "mean"}, {kSum, "sum"}};

inline Tensor classes(const std::vector<double>& values) {
  return tensor(values, kFloat64).to(kInt64);
}

/// The value, and the gradients for an incoming gradient of 1, 2, 3, … as the vectors have them.
inline void check(const Vectors& torch, const std::string& name, const Tensor& loss,
                  const std::vector<Tensor>& inputs, Tolerance allowed = {.ulps = 16, .eps = 4}) {
  CAPTURE(name);
  CHECK(differ(loss, torch[name + "/value"], allowed) == "");
  std::vector<double> upstream;
  for (int64_t i = 1; i <= loss.numel(); ++i) upstream.push_back(static_cast<double>(i));
  const auto grads =
      autograd::grad({loss}, inputs, {tensor(upstream, kFloat64).reshape(loss.sizes())});
  for (size_t i = 0; i < grads.size(); ++i)
    CHECK(differ(grads[i], torch[name + "/grad" + std::to_string(i)], allowed) == "");
}

}  // namespace halftape::testing
