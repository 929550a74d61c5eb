// Compositions of element-wise functions. Halves are computed in float32 and rounded once.
#pragma once
#include <optional>

#include "halftape/autograd/tensor.h"

namespace halftape {

/// a + weight·(b − a): a at weight 0, b at 1, each exactly. All broadcast.
Tensor lerp(const Tensor& a, const Tensor& b, Scalar weight);
Tensor lerp(const Tensor& a, const Tensor& b, const Tensor& weight);
/// x + value·a·b. Under autocast: Widest.
Tensor addcmul(const Tensor& x, const Tensor& a, const Tensor& b, Scalar value = 1);
/// x + value·a/b; of floats alone. Under autocast: Widest.
Tensor addcdiv(const Tensor& x, const Tensor& a, const Tensor& b, Scalar value = 1);
/// Gated linear unit: the first half of `dim` times the sigmoid of the second.
/// Dauphin et al. 2017, arXiv:1612.08083. Throws if the dimension is odd.
Tensor glu(const Tensor& x, int64_t dim = -1);
/// x with NaN, ∞ and −∞ replaced by the given numbers, else by 0 and the largest and smallest
/// finite number of x's dtype. Replaced elements receive no gradient.
Tensor nan_to_num(const Tensor& x, std::optional<double> nan = {},
                  std::optional<double> posinf = {}, std::optional<double> neginf = {});
/// The step: 0 below 0, 1 above, `values` at 0. NaN stays NaN; x has no gradient.
Tensor heaviside(const Tensor& x, const Tensor& values);

}  // namespace halftape
