// Element-wise functions of one tensor. Each is a formula of core/formula/unary.h; its derivative
// stands there. Shape of x; dtype of x, except that integers become the default float dtype where
// the formula needs one.
#pragma once
#include <span>

#include "halftape/autograd/tensor.h"
#include "halftape/core/formula/unary.h"

namespace halftape {

/// The type of a formula's numbers when its argument is a tensor.
template <>
struct scalar_of<Tensor> {
  using type = double;
};

/// Any formula of UnaryOps applied to a tensor, recorded.
template <class Op>
Tensor unary(const Tensor& x, const Params<Scalar>& p = {});
namespace detail {
/// unary() for a value that is computed already: y, the formula number `op` of x.
Tensor recorded_unary(OpId op, const Tensor& x, Array y, const Params<Scalar>& p = {});
}  // namespace detail

// Arithmetic and roundings. The derivative of a rounding is 0.
/// −x; throws for bool.
Tensor neg(const Tensor& x);
inline Tensor negative(const Tensor& x) { return neg(x); }
/// x itself; throws for bool.
Tensor positive(const Tensor& x);
/// |x|; the derivative at 0 is 0.
inline Tensor abs(const Tensor& x) { return unary<formula::Abs>(x); }
/// −1, 0 or 1.
inline Tensor sign(const Tensor& x) { return unary<formula::Sign>(x); }
Tensor sgn(const Tensor& x);
inline Tensor square(const Tensor& x) { return unary<formula::Square>(x); }
inline Tensor sqrt(const Tensor& x) { return unary<formula::Sqrt>(x); }
/// 1/√x.
inline Tensor rsqrt(const Tensor& x) { return unary<formula::Rsqrt>(x); }
/// 1/x.
inline Tensor reciprocal(const Tensor& x) { return unary<formula::Reciprocal>(x); }
inline Tensor floor(const Tensor& x) { return unary<formula::Floor>(x); }
inline Tensor ceil(const Tensor& x) { return unary<formula::Ceil>(x); }
/// Towards 0.
inline Tensor trunc(const Tensor& x) { return unary<formula::Trunc>(x); }
/// Halves to the even neighbour.
inline Tensor round(const Tensor& x) { return unary<formula::Round>(x); }
/// x − trunc(x); its derivative is 1.
inline Tensor frac(const Tensor& x) { return unary<formula::Frac>(x); }
/// a·x + b, one rounding. Integer a and b keep an integer dtype.
Tensor affine(const Tensor& x, Scalar a, Scalar b);
/// x·π/180.
Tensor deg2rad(const Tensor& x);
/// x·180/π.
Tensor rad2deg(const Tensor& x);
/// xᵃ. An integer tensor stays one if a is an integer, which then must not be negative.
Tensor pow(const Tensor& x, Scalar exponent);
/// min(max(x, min), max); a bound that is left out does not bind; a NaN bound makes all NaN. The
/// derivative at a bound is 0.
Tensor clamp(const Tensor& x, std::optional<Scalar> min, std::optional<Scalar> max = {});
inline Tensor clamp_min(const Tensor& x, Scalar min) { return clamp(x, min); }
inline Tensor clamp_max(const Tensor& x, Scalar max) { return clamp(x, {}, max); }

// Exponentials, logarithms, trigonometry.
inline Tensor exp(const Tensor& x) { return unary<formula::Exp>(x); }
/// 2ˣ.
inline Tensor exp2(const Tensor& x) { return unary<formula::Exp2>(x); }
/// eˣ − 1, accurate near 0.
inline Tensor expm1(const Tensor& x) { return unary<formula::Expm1>(x); }
/// ln x.
inline Tensor log(const Tensor& x) { return unary<formula::Log>(x); }
/// ln(1 + x), accurate near 0.
inline Tensor log1p(const Tensor& x) { return unary<formula::Log1p>(x); }
inline Tensor log2(const Tensor& x) { return unary<formula::Log2>(x); }
inline Tensor log10(const Tensor& x) { return unary<formula::Log10>(x); }
inline Tensor sin(const Tensor& x) { return unary<formula::Sin>(x); }
inline Tensor cos(const Tensor& x) { return unary<formula::Cos>(x); }
inline Tensor tan(const Tensor& x) { return unary<formula::Tan>(x); }
inline Tensor asin(const Tensor& x) { return unary<formula::Asin>(x); }
inline Tensor acos(const Tensor& x) { return unary<formula::Acos>(x); }
inline Tensor atan(const Tensor& x) { return unary<formula::Atan>(x); }
inline Tensor sinh(const Tensor& x) { return unary<formula::Sinh>(x); }
inline Tensor cosh(const Tensor& x) { return unary<formula::Cosh>(x); }
inline Tensor tanh(const Tensor& x) { return unary<formula::Tanh>(x); }
inline Tensor asinh(const Tensor& x) { return unary<formula::Asinh>(x); }
inline Tensor acosh(const Tensor& x) { return unary<formula::Acosh>(x); }
inline Tensor atanh(const Tensor& x) { return unary<formula::Atanh>(x); }
/// sin(πx), exact zeros at whole x.
inline Tensor sinpi(const Tensor& x) { return unary<formula::Sinpi>(x); }
/// cos(πx).
inline Tensor cospi(const Tensor& x) { return unary<formula::Cospi>(x); }
/// sin(πx)/(πx), 1 at 0.
inline Tensor sinc(const Tensor& x) { return unary<formula::Sinc>(x); }
inline Tensor erf(const Tensor& x) { return unary<formula::Erf>(x); }
/// 1 − erf(x), accurate for large x.
inline Tensor erfc(const Tensor& x) { return unary<formula::Erfc>(x); }
/// y with erf(y) = x: ±∞ at ±1, NaN beyond. Under autocast: float32.
inline Tensor erfinv(const Tensor& x) { return unary<formula::Erfinv>(x); }
/// ln(x/(1 − x)), the inverse of sigmoid; with eps, of x clamped to [eps, 1 − eps].
Tensor logit(const Tensor& x, std::optional<double> eps = {});

// Activations; core/formula/activation.h has their definitions, and their derivatives at kinks.
/// 1/(1 + e⁻ˣ).
inline Tensor sigmoid(const Tensor& x) { return unary<formula::Sigmoid>(x); }
/// max(x, 0); NaN stays NaN, the derivative at 0 is 0.
inline Tensor relu(const Tensor& x) { return unary<formula::Relu>(x); }
/// min(max(x, 0), 6).
Tensor relu6(const Tensor& x);
/// x, negative_slope·x where x ≤ 0.
Tensor leaky_relu(const Tensor& x, Scalar negative_slope = 0.01);
/// scale·x, scale·alpha·(e^(input_scale·x) − 1) where x ≤ 0. Clevert et al. 2015, arXiv:1511.07289.
Tensor elu(const Tensor& x, Scalar alpha = 1, Scalar scale = 1, Scalar input_scale = 1);
/// elu with the constants that keep mean 0 and variance 1. Klambauer et al. 2017, arXiv:1706.02515.
Tensor selu(const Tensor& x);
/// x, alpha·(e^(x/alpha) − 1) where x ≤ 0; alpha not 0. Barron 2017, arXiv:1704.07483.
Tensor celu(const Tensor& x, Scalar alpha = 1.0);
/// x·Φ(x); `approximate` "none" (exact) or "tanh". Hendrycks & Gimpel 2016, arXiv:1606.08415.
Tensor gelu(const Tensor& x, const std::string& approximate = "none");
/// x·sigmoid(x).
inline Tensor silu(const Tensor& x) { return unary<formula::Silu>(x); }
/// x·tanh(softplus(x)). Misra 2019, arXiv:1908.08681.
inline Tensor mish(const Tensor& x) { return unary<formula::Mish>(x); }
/// ln(1 + e^(beta·x))/beta; x itself where beta·x > threshold. beta not 0.
Tensor softplus(const Tensor& x, Scalar beta = 1, Scalar threshold = 20);
/// ln(sigmoid(x)).
inline Tensor log_sigmoid(const Tensor& x) { return unary<formula::LogSigmoid>(x); }
/// x/(1 + |x|).
inline Tensor softsign(const Tensor& x) { return unary<formula::Softsign>(x); }
/// min(max(x, min_val), max_val).
Tensor hardtanh(const Tensor& x, Scalar min_val = -1, Scalar max_val = 1);
/// (x + 3)/6 between 0 and 1.
inline Tensor hardsigmoid(const Tensor& x) { return unary<formula::Hardsigmoid>(x); }
/// x·hardsigmoid(x). Howard et al. 2019, arXiv:1905.02244.
inline Tensor hardswish(const Tensor& x) { return unary<formula::Hardswish>(x); }
/// x − tanh(x).
inline Tensor tanhshrink(const Tensor& x) { return unary<formula::Tanhshrink>(x); }
/// x moved towards 0 by lambd ≥ 0, at most to 0.
Tensor softshrink(const Tensor& x, Scalar lambd = 0.5);
/// x, but 0 where |x| ≤ lambd.
Tensor hardshrink(const Tensor& x, Scalar lambd = 0.5);
/// x, but value where x ≤ threshold.
Tensor threshold(const Tensor& x, Scalar threshold, Scalar value);

// The same in place: x is overwritten, its history goes on.
Tensor& relu_(Tensor& x);
Tensor& relu6_(Tensor& x);
Tensor& leaky_relu_(Tensor& x, Scalar negative_slope = 0.01);
Tensor& elu_(Tensor& x, Scalar alpha = 1, Scalar scale = 1);
Tensor& selu_(Tensor& x);
Tensor& celu_(Tensor& x, Scalar alpha = 1.0);
Tensor& gelu_(Tensor& x, const std::string& approximate = "none");
Tensor& silu_(Tensor& x);
Tensor& mish_(Tensor& x);
Tensor& hardtanh_(Tensor& x, Scalar min_val = -1, Scalar max_val = 1);
Tensor& hardsigmoid_(Tensor& x);
Tensor& hardswish_(Tensor& x);
Tensor& threshold_(Tensor& x, Scalar threshold, Scalar value);

/// Every unary op by name, for the tests' op table and the documentation.
struct UnaryEntry {
  const char* name;
  const char* called;  // the op's name where it differs from the formula's
  Cast cast;           // what autocast does with its arguments
  bool integers;       // takes integers as they are
  Tensor (*call)(const Tensor&, const Params<Scalar>&);  // the op
};
/// All of them.
std::span<const UnaryEntry> unary_ops();

}  // namespace halftape
