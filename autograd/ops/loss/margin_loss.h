// Losses of margins: a number that is on the right side by the margin costs nothing. `reduction`
// says how the single losses are combined. Halves are computed in float32 and rounded once; under
// autocast: float32, unless another is stated.
#pragma once
#include <functional>

#include "halftape/autograd/ops/loss/loss.h"

namespace halftape {

/// x where y is 1, max(0, margin − x) where y is −1. Shapes must be equal.
Tensor hinge_embedding_loss(const Tensor& x, const Tensor& y, double margin = 1,
                            Reduction reduction = Reduction::Mean);
/// ln(1 + e^(−y·x)), stable for any x, with y ±1. Shapes must be equal.
Tensor soft_margin_loss(const Tensor& x, const Tensor& y, Reduction reduction = Reduction::Mean);
/// max(0, margin − y·(a − b)): y 1 where a is to be the larger, −1 where b is. They broadcast.
Tensor margin_ranking_loss(const Tensor& a, const Tensor& b, const Tensor& y, double margin = 0,
                           Reduction reduction = Reduction::Mean);
/// Of vectors a, b: (N, D) and labels y: (N), or (D) and (): 1 − cos(a, b) where y is 1,
/// max(0, cos(a, b) − margin) where y is −1.
Tensor cosine_embedding_loss(const Tensor& a, const Tensor& b, const Tensor& y, double margin = 0,
                             Reduction reduction = Reduction::Mean);

/// Σ weight[t]·max(0, margin − x[t] + x[i])ᵖ / C over the classes i ≠ t. x: (N, C), t: (N) int64,
/// or (C) and (). p: 1 or 2; weight: (C). Targets outside [0, C) throw.
Tensor multi_margin_loss(const Tensor& x, const Tensor& target, Scalar p = 1, Scalar margin = 1,
                         const Tensor& weight = {}, Reduction reduction = Reduction::Mean);
/// Σ max(0, 1 − (x[j] − x[i])) / C over a sample's classes j and the others i. x: (N, C) or (C);
/// target: int64 of x's shape, classes up to the first −1. Others outside [0, C) throw.
Tensor multilabel_margin_loss(const Tensor& x, const Tensor& target,
                              Reduction reduction = Reduction::Mean);
/// −weight·(y·ln σ(x) + (1 − y)·ln σ(−x)), averaged over the classes, the last dimension. Shapes
/// must be equal. Under autocast: float32.
Tensor multilabel_soft_margin_loss(const Tensor& x, const Tensor& y, const Tensor& weight = {},
                                   Reduction reduction = Reduction::Mean);

/// max(0, margin + d(anchor, positive) − d(anchor, negative)) with d = pairwise_distance of norm p
/// and eps, over the last dimension; `swap`: the smaller of the negative's distances to the two.
/// Balntas et al. 2016. The three have the same number of dimensions.
Tensor triplet_margin_loss(const Tensor& anchor, const Tensor& positive, const Tensor& negative,
                           double margin = 1, double p = 2, double eps = 1e-6, bool swap = false,
                           Reduction reduction = Reduction::Mean);
using DistanceFunction = std::function<Tensor(const Tensor&, const Tensor&)>;
/// The same with another distance; none: pairwise_distance. Under autocast: as the distance.
Tensor triplet_margin_with_distance_loss(const Tensor& anchor, const Tensor& positive,
                                         const Tensor& negative,
                                         const DistanceFunction& distance = {}, double margin = 1,
                                         bool swap = false, Reduction reduction = Reduction::Mean);

}  // namespace halftape
