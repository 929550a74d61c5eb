// Distances between vectors: options, functions and modules.
#pragma once
#include <cstdint>

#include "halftape/autograd/ops/reduction/statistics.h"
#include "halftape/core/options.h"
#include "halftape/nn/modules/common.h"

namespace halftape::nn {

struct CosineSimilarityOptions {
  HALFTAPE_ARG(int64_t, dim) = 1;
  HALFTAPE_ARG(double, eps) = 1e-8;
};
struct PairwiseDistanceOptions {
  HALFTAPE_ARG(double, p) = 2;
  HALFTAPE_ARG(double, eps) = 1e-6;
  HALFTAPE_ARG(bool, keepdim) = false;
};

namespace functional {

using CosineSimilarityFuncOptions = CosineSimilarityOptions;
using PairwiseDistanceFuncOptions = PairwiseDistanceOptions;

/// a·b / max(|a|·|b|, eps) along `dim`, which is removed; a and b broadcast.
inline Tensor cosine_similarity(const Tensor& a, const Tensor& b,
                                const CosineSimilarityFuncOptions& o = {}) {
  return halftape::cosine_similarity(a, b, o.dim(), o.eps());
}
/// ‖xᵢ − xⱼ‖ₚ of every pair of rows i < j of x (m, k).
inline Tensor pdist(const Tensor& x, double p = 2) { return halftape::pdist(x, p); }
/// The p-norm of a − b + eps over the last dimension, which goes without keepdim; a and b
/// broadcast.
inline Tensor pairwise_distance(const Tensor& a, const Tensor& b,
                                const PairwiseDistanceFuncOptions& o = {}) {
  return halftape::pairwise_distance(a, b, o.p(), o.eps(), o.keepdim());
}

}  // namespace functional

/// a·b / max(|a|·|b|, eps) along a dimension, of tensors that broadcast.
class CosineSimilarityImpl : public Cloneable<CosineSimilarityImpl> {
 public:
  explicit CosineSimilarityImpl(const CosineSimilarityOptions& o = {}) : options(o) {}
  Tensor forward(const Tensor& a, const Tensor& b) const {
    const PlaceScope scope(*this);
    return functional::cosine_similarity(a, b, options);
  }
  void pretty_print(std::ostream& out) const override;
  CosineSimilarityOptions options;
};
HALFTAPE_MODULE(CosineSimilarity);

/// The p-norm of a − b + eps along the last dimension, of tensors that broadcast.
class PairwiseDistanceImpl : public Cloneable<PairwiseDistanceImpl> {
 public:
  explicit PairwiseDistanceImpl(const PairwiseDistanceOptions& o = {}) : options(o) {}
  Tensor forward(const Tensor& a, const Tensor& b) const {
    const PlaceScope scope(*this);
    return functional::pairwise_distance(a, b, options);
  }
  void pretty_print(std::ostream& out) const override;
  PairwiseDistanceOptions options;
};
HALFTAPE_MODULE(PairwiseDistance);

}  // namespace halftape::nn
