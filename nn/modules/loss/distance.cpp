#include "halftape/nn/modules/loss/distance.h"

namespace halftape::nn {

Tensor CosineSimilarityImpl::forward(const Tensor& a, const Tensor& b) const {
  return functional::cosine_similarity(a, b, options);
}
HALFTAPE_MODULE_TEXT(CosineSimilarity, "dim", options.dim(), "eps", options.eps())

Tensor PairwiseDistanceImpl::forward(const Tensor& a, const Tensor& b) const {
  return functional::pairwise_distance(a, b, options);
}
HALFTAPE_MODULE_TEXT(PairwiseDistance, "p", options.p(), "eps", options.eps(), "keepdim",
                     options.keepdim())

}  // namespace halftape::nn
