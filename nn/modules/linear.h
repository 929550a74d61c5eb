// Linear and Identity.
#pragma once
#include "halftape/core/options.h"
#include "halftape/nn/module.h"

namespace halftape::nn {

class LinearOptions {
 public:
  LinearOptions(int64_t in_features, int64_t out_features)
      : in_features_(in_features), out_features_(out_features) {}
  HALFTAPE_ARG(int64_t, in_features);
  HALFTAPE_ARG(int64_t, out_features);
  HALFTAPE_ARG(bool, bias) = true;
};

/// y = x·weightᵀ + bias. x: (…, in) → (…, out). weight (out, in) and bias (out) start in U(−1/√in,
/// 1/√in).
class LinearImpl : public Module {
 public:
  LinearImpl(int64_t in_features, int64_t out_features)
      : LinearImpl(LinearOptions(in_features, out_features)) {}
  explicit LinearImpl(const LinearOptions& options);
  void reset_parameters();
  Tensor forward(const Tensor& x) const;
  void pretty_print(std::ostream& out) const override;

  LinearOptions options;
  Tensor weight;
  Tensor bias;  // undefined without bias
};
HALFTAPE_MODULE(Linear);

/// y = x.
class IdentityImpl : public Module {
 public:
  Tensor forward(const Tensor& x) const { return x; }
  void pretty_print(std::ostream& out) const override;
};
HALFTAPE_MODULE(Identity);

}  // namespace halftape::nn
