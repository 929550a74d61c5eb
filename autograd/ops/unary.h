// Element-wise functions of one tensor. Each is a formula of core/formula/unary.h; its derivative
// stands there. Shape of x; dtype of x, except that integers become the default float dtype where
// the formula needs one.
#pragma once
#include <span>

#include "halftape/autograd/tensor.h"
#include "halftape/core/formula/ops.h"

namespace halftape {

struct Neg;
struct Abs;
struct Sign;
struct Square;
struct Exp;
struct Log;
struct Log1p;
struct Sqrt;
struct Rsqrt;
struct Reciprocal;
struct Tanh;
struct Sigmoid;
struct Relu;
struct Gelu;
struct GeluTanh;
struct Silu;
struct Softplus;
struct Erf;
struct Erfc;
struct Affine;
struct DivScalar;
struct ScalarDiv;
struct PowScalar;
struct Clamp;

/// Any formula of UnaryOps applied to a tensor, recorded.
template <class Op>
Tensor unary(const Tensor& x, Params<double> p = {});

inline Tensor neg(const Tensor& x) { return unary<Neg>(x); }
/// |x|; the derivative at 0 is 0.
inline Tensor abs(const Tensor& x) { return unary<Abs>(x); }
/// −1, 0 or 1.
inline Tensor sign(const Tensor& x) { return unary<Sign>(x); }
inline Tensor square(const Tensor& x) { return unary<Square>(x); }
inline Tensor exp(const Tensor& x) { return unary<Exp>(x); }
/// ln x.
inline Tensor log(const Tensor& x) { return unary<Log>(x); }
/// ln(1 + x), accurate near 0.
inline Tensor log1p(const Tensor& x) { return unary<Log1p>(x); }
inline Tensor sqrt(const Tensor& x) { return unary<Sqrt>(x); }
/// 1/√x.
inline Tensor rsqrt(const Tensor& x) { return unary<Rsqrt>(x); }
/// 1/x.
inline Tensor reciprocal(const Tensor& x) { return unary<Reciprocal>(x); }
inline Tensor tanh(const Tensor& x) { return unary<Tanh>(x); }
/// 1/(1 + e⁻ˣ).
inline Tensor sigmoid(const Tensor& x) { return unary<Sigmoid>(x); }
/// max(x, 0); NaN stays NaN, the derivative at 0 is 0.
inline Tensor relu(const Tensor& x) { return unary<Relu>(x); }
/// x·Φ(x); `approximate` "none" (exact) or "tanh". Hendrycks & Gimpel 2016, arXiv:1606.08415.
Tensor gelu(const Tensor& x, const std::string& approximate = "none");
/// x·sigmoid(x).
inline Tensor silu(const Tensor& x) { return unary<Silu>(x); }
/// ln(1 + eˣ).
inline Tensor softplus(const Tensor& x) { return unary<Softplus>(x); }
inline Tensor erf(const Tensor& x) { return unary<Erf>(x); }
/// 1 − erf(x), accurate for large x.
inline Tensor erfc(const Tensor& x) { return unary<Erfc>(x); }
/// a·x + b, one rounding. Integer a and b keep an integer dtype.
Tensor affine(const Tensor& x, Scalar a, Scalar b);
/// xᵃ.
Tensor pow(const Tensor& x, Scalar exponent);
/// min(max(x, min), max); a bound that is left out does not bind.
Tensor clamp(const Tensor& x, std::optional<Scalar> min, std::optional<Scalar> max = {});

/// Every unary op by name: what the op table of the tests, and documentation, walk over.
struct UnaryEntry {
  const char* name;
  Cast cast;
  bool integers;
  Tensor (*call)(const Tensor&, Params<double>);
};
std::span<const UnaryEntry> unary_ops();

}  // namespace halftape
