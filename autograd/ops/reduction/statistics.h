// Spread, length and distance. `dims` empty: all dimensions. Computed in float32 (float64) and
// rounded once.
#pragma once
#include <concepts>
#include <tuple>

#include "halftape/autograd/tensor.h"

namespace halftape {

/// Σ (x − mean)² / (N − correction) over `dims`, two passes; correction 1 (Bessel's) unless given,
/// `unbiased` false is correction 0. NaN where N is 1 and the correction 1. Floating-point only.
Tensor var(const Tensor& x, const Dims& dims = {}, std::optional<Scalar> correction = {},
           bool keepdim = false);
/// √var; the derivative where it is 0 is 0.
Tensor std(const Tensor& x, const Dims& dims = {}, std::optional<Scalar> correction = {},
           bool keepdim = false);
/// var, and the mean.
std::tuple<Tensor, Tensor> var_mean(const Tensor& x, const Dims& dims = {},
                                    std::optional<Scalar> correction = {}, bool keepdim = false);
/// std, and the mean.
std::tuple<Tensor, Tensor> std_mean(const Tensor& x, const Dims& dims = {},
                                    std::optional<Scalar> correction = {}, bool keepdim = false);
// LibTorch's older forms with a flag: in var(x, true) it chooses the divisor. var(x, 1) is refused:
// in Python the number is a dimension, in LibTorch it is a flag.
#define HALFTAPE_WITH_FLAG(name, Result)                                                \
  template <std::same_as<bool> Flag>                                                    \
  Result name(const Tensor& x, const Dims& dims, Flag unbiased, bool keepdim = false) { \
    return name(x, dims, std::optional<Scalar>(unbiased ? 1 : 0), keepdim);             \
  }                                                                                     \
  template <std::same_as<bool> Flag>                                                    \
  Result name(const Tensor& x, Flag unbiased) {                                         \
    return name(x, Dims(), std::optional<Scalar>(unbiased ? 1 : 0), false);             \
  }                                                                                     \
  template <std::integral Number>                                                       \
  requires(!std::same_as<Number, bool>) Result name(const Tensor& x, Number)            \
  = delete;
HALFTAPE_WITH_FLAG(var, Tensor)
HALFTAPE_WITH_FLAG(std, Tensor)
using TensorPair = std::tuple<Tensor, Tensor>;
HALFTAPE_WITH_FLAG(var_mean, TensorPair)
HALFTAPE_WITH_FLAG(std_mean, TensorPair)
#undef HALFTAPE_WITH_FLAG

/// (Σ |x|ᵖ)^(1/p) over `dims`; p = ∞: the largest |x|, −∞: the smallest, 0: how many are not 0. The
/// derivative where it is 0 is 0. Floating-point tensors only. `dtype`: x is converted first. Under
/// autocast: float32.
Tensor linalg_vector_norm(const Tensor& x, Scalar ord = 2, const Dims& dims = {},
                          bool keepdim = false, std::optional<Dtype> dtype = {});
Tensor norm(const Tensor& x, Scalar p = 2);
Tensor norm(const Tensor& x, std::optional<Scalar> p, const Dims& dims, bool keepdim = false,
            std::optional<Dtype> dtype = {});
Tensor norm(const Tensor& x, std::optional<Scalar> p, Dtype dtype);
namespace linalg {
inline Tensor vector_norm(const Tensor& x, Scalar ord = 2, const Dims& dims = {},
                          bool keepdim = false, std::optional<Dtype> dtype = {}) {
  return linalg_vector_norm(x, ord, dims, keepdim, dtype);
}
}  // namespace linalg

/// ln Σ eˣ over `dims`, computed from x − max(x); −∞ of nothing but −∞. Under autocast: float32.
Tensor logsumexp(const Tensor& x, const Dims& dims, bool keepdim = false);

/// x with each slice x[…, i, …] of dimension `dim` whose norm of order p is above maxnorm scaled
/// down to it. At least two dimensions. Under autocast: float32.
Tensor renorm(const Tensor& x, Scalar p, int64_t dim, Scalar maxnorm);

/// ‖a − b‖ₚ over all elements. Under autocast, as the next four: float32.
Tensor dist(const Tensor& a, const Tensor& b, Scalar p = 2);
/// ‖a − b + eps‖ₚ over the last dimension.
Tensor pairwise_distance(const Tensor& a, const Tensor& b, double p = 2, double eps = 1e-6,
                         bool keepdim = false);
/// a·b / (max(‖a‖, eps)·max(‖b‖, eps)) along `dim`.
Tensor cosine_similarity(const Tensor& a, const Tensor& b, int64_t dim = 1, double eps = 1e-8);
/// ‖aᵢ − bⱼ‖ₚ of every pair of rows: (…, m, k) and (…, n, k) → (…, m, n).
Tensor cdist(const Tensor& a, const Tensor& b, double p = 2);
/// ‖xᵢ − xⱼ‖ₚ of every pair of rows i < j: (m, k) → (m·(m − 1)/2), row by row.
Tensor pdist(const Tensor& x, double p = 2);

}  // namespace halftape
