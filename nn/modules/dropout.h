// Dropout and Flatten.
#pragma once
#include "halftape/core/options.h"
#include "halftape/nn/module.h"

namespace halftape::nn {

class DropoutOptions {
 public:
  DropoutOptions(double p = 0.5) : p_(p) {}  // NOLINT: as LibTorch
  HALFTAPE_ARG(double, p);                   // probability of a zero
};

/// In training each element is 0 with probability p and x/(1 − p) otherwise; in evaluation y = x.
class DropoutImpl : public Module {
 public:
  explicit DropoutImpl(const DropoutOptions& o = {});
  Tensor forward(const Tensor& x) const;
  void pretty_print(std::ostream& out) const override;
  DropoutOptions options;
};
HALFTAPE_MODULE(Dropout);

class FlattenOptions {
 public:
  HALFTAPE_ARG(int64_t, start_dim) = 1;
  HALFTAPE_ARG(int64_t, end_dim) = -1;
};

/// Dimensions start_dim … end_dim made one; by default all but the batch.
class FlattenImpl : public Module {
 public:
  explicit FlattenImpl(const FlattenOptions& o = {}) : options(o) {}
  Tensor forward(const Tensor& x) const;
  void pretty_print(std::ostream& out) const override;
  FlattenOptions options;
};
HALFTAPE_MODULE(Flatten);

}  // namespace halftape::nn
