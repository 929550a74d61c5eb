// Random tensors. The bits come from Philox, so that one seed gives the same numbers on every
// device; or, on the CPU, from PyTorch's generator (set_cpu_random_engine).
#pragma once
#include "halftape/autograd/tensor.h"

namespace halftape {

/// Uniform in [0, 1), floating-point dtypes only. All random functions draw from the device's
/// default generator (manual_seed). No gradient flows to the parameters of a distribution.
Tensor rand(const Shape& shape, const TensorOptions& options = {});
/// Standard normal.
Tensor randn(const Shape& shape, const TensorOptions& options = {});
/// Integers in [low, high), int64 by default. Throws when the range is empty, or beyond the dtype
/// or 2^53.
Tensor randint(int64_t low, int64_t high, const Shape& shape, const TensorOptions& options = {});
Tensor randint(int64_t high, const Shape& shape, const TensorOptions& options = {});
namespace detail {
/// The largest n for which the dtype holds every integer from 0 to n; at most 2^53.
int64_t whole_numbers(Dtype);
/// Throws when [low, high) is empty, or holds integers that the dtype does not.
void check_integers(const char* op, int64_t low, int64_t high, Dtype dtype);
}  // namespace detail
/// A random order of 0 … n − 1, int64. Throws if the dtype of the options does not hold n − 1.
Tensor randperm(int64_t n, const TensorOptions& options = {});

// The shape of x, and its dtype and device unless options name others.
Tensor rand_like(const Tensor& x, const TensorOptions& options = {});
Tensor randn_like(const Tensor& x, const TensorOptions& options = {});
Tensor randint_like(const Tensor& x, int64_t low, int64_t high, const TensorOptions& options = {});
Tensor randint_like(const Tensor& x, int64_t high, const TensorOptions& options = {});

/// 1 with the probability in p, otherwise 0; shape and dtype of p.
Tensor bernoulli(const Tensor& p);
/// The same with one probability, in the shape and dtype of x.
Tensor bernoulli(const Tensor& x, double p);
/// Normal with mean and standard deviation from tensors (broadcast) or numbers. Throws for a
/// negative standard deviation.
Tensor normal(double mean, double std, const Shape& shape, const TensorOptions& options = {});
Tensor normal(const Tensor& mean, double std = 1);
Tensor normal(double mean, const Tensor& std);
Tensor normal(const Tensor& mean, const Tensor& std);
/// n indices for each row of p, (C) or (R, C), drawn in proportion to its values, which need not
/// sum to 1: int64, (n) or (R, n). Without replacement no index comes twice. Throws for negative or
/// non-finite values, a row of zeros, or fewer than n non-zero values without replacement.
Tensor multinomial(const Tensor& p, int64_t n, bool replacement = false);

/// x, r·x where x ≤ 0: r is drawn from U(lower, upper) for each element in training, and is their
/// mean otherwise. Halves are computed in float32 and rounded once.  Xu et al. 2015,
/// arXiv:1505.00853.
Tensor rrelu(const Tensor& x, double lower = 1.0 / 8, double upper = 1.0 / 3,
             bool training = false);
/// softmax((logits + G)/tau) along `dim` with standard Gumbel noise G: a sample of the softmax's
/// distribution, sharper for smaller tau > 0. hard: 1 for the largest element, 0 for the others,
/// with the gradient of the soft sample. Under autocast: Float32.  Jang et al. 2016,
/// arXiv:1611.01144.
Tensor gumbel_softmax(const Tensor& logits, double tau = 1, bool hard = false, int64_t dim = -1);

}  // namespace halftape
