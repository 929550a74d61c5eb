// Distances between vectors as modules.
#pragma once
#include "halftape/nn/modules/common.h"
#include "halftape/nn/options/distance.h"

namespace halftape::nn {

/// a·b / max(|a|·|b|, eps) along a dimension, of tensors that broadcast.
class CosineSimilarityImpl : public Cloneable<CosineSimilarityImpl> {
 public:
  explicit CosineSimilarityImpl(const CosineSimilarityOptions& o = {}) : options(o) {}
  Tensor forward(const Tensor& a, const Tensor& b) const;
  void pretty_print(std::ostream& out) const override;
  CosineSimilarityOptions options;
};
HALFTAPE_MODULE(CosineSimilarity);

/// The p-norm of a − b + eps along the last dimension, of tensors that broadcast.
class PairwiseDistanceImpl : public Cloneable<PairwiseDistanceImpl> {
 public:
  explicit PairwiseDistanceImpl(const PairwiseDistanceOptions& o = {}) : options(o) {}
  Tensor forward(const Tensor& a, const Tensor& b) const;
  void pretty_print(std::ostream& out) const override;
  PairwiseDistanceOptions options;
};
HALFTAPE_MODULE(PairwiseDistance);

}  // namespace halftape::nn
