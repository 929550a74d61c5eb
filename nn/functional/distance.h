// Distances between vectors, with options.
#pragma once
#include "halftape/autograd/ops/reduction/statistics.h"
#include "halftape/nn/options/distance.h"

namespace halftape::nn::functional {

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

}  // namespace halftape::nn::functional
