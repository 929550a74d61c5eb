// Linear and Bilinear; Identity, Flatten and Unflatten, which compute nothing.
#pragma once
#include <utility>
#include <vector>

#include "halftape/core/options.h"
#include "halftape/nn/modules/common.h"

namespace halftape::nn {

struct LinearOptions {
  LinearOptions(int64_t in_features, int64_t out_features)
      : in_features_(in_features), out_features_(out_features) {}
  HALFTAPE_ARG(int64_t, in_features);
  HALFTAPE_ARG(int64_t, out_features);
  HALFTAPE_ARG(bool, bias) = true;
};
struct BilinearOptions {
  BilinearOptions(int64_t in1_features, int64_t in2_features, int64_t out_features)
      : in1_features_(in1_features), in2_features_(in2_features), out_features_(out_features) {}
  HALFTAPE_ARG(int64_t, in1_features);
  HALFTAPE_ARG(int64_t, in2_features);
  HALFTAPE_ARG(int64_t, out_features);
  HALFTAPE_ARG(bool, bias) = true;
};
struct FlattenOptions {
  HALFTAPE_ARG(int64_t, start_dim) = 1;
  HALFTAPE_ARG(int64_t, end_dim) = -1;
};
struct UnflattenOptions {
  UnflattenOptions(int64_t dim, std::vector<int64_t> sizes) : dim_(dim), sizes_(std::move(sizes)) {}
  HALFTAPE_ARG(int64_t, dim);
  HALFTAPE_ARG(std::vector<int64_t>, sizes);
};

/// y = x·weightᵀ + bias. x: (…, in) → (…, out). weight (out, in) and bias (out) start in U(−1/√in,
/// 1/√in).
class LinearImpl : public Cloneable<LinearImpl> {
 public:
  LinearImpl(int64_t in_features, int64_t out_features)
      : LinearImpl(LinearOptions(in_features, out_features)) {}
  explicit LinearImpl(const LinearOptions& o) : options(o) { LinearImpl::reset(); }
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
  explicit BilinearImpl(const BilinearOptions& o) : options(o) { BilinearImpl::reset(); }
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
