// Linear, Bilinear, and the layers that only pass on or reshape: Identity, Flatten, Unflatten.
#pragma once
#include "halftape/nn/modules/common.h"
#include "halftape/nn/options/linear.h"

namespace halftape::nn {

/// y = x·weightᵀ + bias. x: (…, in) → (…, out). weight (out, in) and bias (out) start in U(−1/√in,
/// 1/√in).
class LinearImpl : public Cloneable<LinearImpl> {
 public:
  LinearImpl(int64_t in_features, int64_t out_features)
      : LinearImpl(LinearOptions(in_features, out_features)) {}
  explicit LinearImpl(const LinearOptions& options);
  void reset() override;
  void reset_parameters();
  Tensor forward(const Tensor& x) const;
  void pretty_print(std::ostream& out) const override;

  LinearOptions options;
  Tensor weight;
  Tensor bias;  // undefined without bias
};
HALFTAPE_MODULE(Linear);

/// y_k = aᵀ·weight_k·b + bias_k. a: (…, in1), b: (…, in2) → (…, out). weight (out, in1, in2) and
/// bias (out) start in U(−1/√in1, 1/√in1).
class BilinearImpl : public Cloneable<BilinearImpl> {
 public:
  BilinearImpl(int64_t in1_features, int64_t in2_features, int64_t out_features)
      : BilinearImpl(BilinearOptions(in1_features, in2_features, out_features)) {}
  explicit BilinearImpl(const BilinearOptions& options);
  void reset() override;
  void reset_parameters();
  Tensor forward(const Tensor& a, const Tensor& b) const;
  void pretty_print(std::ostream& out) const override;

  BilinearOptions options;
  Tensor weight;
  Tensor bias;  // undefined without bias
};
HALFTAPE_MODULE(Bilinear);

/// y = x.
HALFTAPE_UNARY_MODULE(Identity, CloneableModule);

/// Joins dimensions start_dim … end_dim; by default all but the batch.
HALFTAPE_UNARY_MODULE(Flatten, detail::WithOptions<FlattenOptions>);

/// Splits dimension `dim` into these sizes; one may be −1, which takes the rest.
class UnflattenImpl : public Cloneable<UnflattenImpl> {
 public:
  UnflattenImpl(int64_t dim, std::vector<int64_t> sizes)
      : UnflattenImpl(UnflattenOptions(dim, std::move(sizes))) {}
  explicit UnflattenImpl(const UnflattenOptions& o) : options(o) {}
  Tensor forward(const Tensor& x) const;
  void pretty_print(std::ostream& out) const override;
  UnflattenOptions options;
};
HALFTAPE_MODULE(Unflatten);

}  // namespace halftape::nn
