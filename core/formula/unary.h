// Element-wise formulas of one argument. `f` is the value; `df(g, saved)` is the gradient g times
// the derivative. f is read with T = float, double or Chunk; df with those and, when the backward
// pass is itself recorded, with Tensor. Constants are exact in the wider type where it matters, so
// that T = double is a reference.
#pragma once
#include "halftape/core/formula/words.h"

namespace halftape {

struct Neg {  // y = −x
  static constexpr auto name = "neg";
  static constexpr Cast cast = Cast::Keep;
  static constexpr Saves saves = Saves::Nothing;
  static constexpr bool integers = true;
  template <class T>
  HALFTAPE_HD static T f(const T& x) {
    return -x;
  }
  template <class T>
  HALFTAPE_HD static T df(const T& g, const T&) {
    return -g;
  }
};
struct Abs {  // y = |x|,  y' = sign(x), 0 at 0
  static constexpr auto name = "abs";
  static constexpr Cast cast = Cast::Keep;
  static constexpr Saves saves = Saves::Input;
  static constexpr bool integers = true;
  template <class T>
  HALFTAPE_HD static T f(const T& x) {
    return abs(x);
  }
  template <class T>
  HALFTAPE_HD static T df(const T& g, const T& x) {
    return where(x > 0, g, where(x < 0, -g, 0));
  }
};
struct Sign {  // −1, 0 or 1; NaN stays NaN
  static constexpr auto name = "sign";
  static constexpr Cast cast = Cast::Keep;
  static constexpr Saves saves = Saves::Nothing;
  static constexpr bool integers = true;
  template <class T>
  HALFTAPE_HD static T f(const T& x) {
    return where(x > 0, T(1), where(x < 0, T(-1), x));
  }
  template <class T>
  HALFTAPE_HD static T df(const T& g, const T&) {
    return 0 * g;
  }
};
struct Square {  // y = x²,  y' = 2x
  static constexpr auto name = "square";
  static constexpr Cast cast = Cast::Float32;  // as pow
  static constexpr Saves saves = Saves::Input;
  static constexpr bool integers = true;
  template <class T>
  HALFTAPE_HD static T f(const T& x) {
    return x * x;
  }
  template <class T>
  HALFTAPE_HD static T df(const T& g, const T& x) {
    return 2 * (g * x);
  }
};
struct Exp {  // y = eˣ,  y' = y
  static constexpr auto name = "exp";
  static constexpr Cast cast = Cast::Float32;
  static constexpr Saves saves = Saves::Output;
  template <class T>
  HALFTAPE_HD static T f(const T& x) {
    return exp(x);
  }
  template <class T>
  HALFTAPE_HD static T df(const T& g, const T& y) {
    return g * y;
  }
};
struct Log {  // y = ln x,  y' = 1/x
  static constexpr auto name = "log";
  static constexpr Cast cast = Cast::Float32;
  static constexpr Saves saves = Saves::Input;
  template <class T>
  HALFTAPE_HD static T f(const T& x) {
    return log(x);
  }
  template <class T>
  HALFTAPE_HD static T df(const T& g, const T& x) {
    return g / x;
  }
};
struct Log1p {  // y = ln(1 + x),  y' = 1/(1 + x)
  static constexpr auto name = "log1p";
  static constexpr Cast cast = Cast::Float32;
  static constexpr Saves saves = Saves::Input;
  template <class T>
  HALFTAPE_HD static T f(const T& x) {
    return log1p(x);
  }
  template <class T>
  HALFTAPE_HD static T df(const T& g, const T& x) {
    return g / (1 + x);
  }
};
struct Sqrt {  // y = √x,  y' = 1/(2y); infinite at 0
  static constexpr auto name = "sqrt";
  static constexpr Cast cast = Cast::Keep;
  static constexpr Saves saves = Saves::Output;
  template <class T>
  HALFTAPE_HD static T f(const T& x) {
    return sqrt(x);
  }
  template <class T>
  HALFTAPE_HD static T df(const T& g, const T& y) {
    return g / (2 * y);
  }
};
struct Rsqrt {  // y = 1/√x,  y' = −y³/2
  static constexpr auto name = "rsqrt";
  static constexpr Cast cast = Cast::Float32;
  static constexpr Saves saves = Saves::Output;
  template <class T>
  HALFTAPE_HD static T f(const T& x) {
    return 1 / sqrt(x);
  }
  template <class T>
  HALFTAPE_HD static T df(const T& g, const T& y) {
    return K<T>(-0.5) * (g * (y * y * y));
  }
};
struct Reciprocal {  // y = 1/x,  y' = −y²
  static constexpr auto name = "reciprocal";
  static constexpr Cast cast = Cast::Float32;
  static constexpr Saves saves = Saves::Output;
  template <class T>
  HALFTAPE_HD static T f(const T& x) {
    return 1 / x;
  }
  template <class T>
  HALFTAPE_HD static T df(const T& g, const T& y) {
    return -(g * (y * y));
  }
};
struct Tanh {  // y = tanh(x),  y' = 1 − y²
  static constexpr auto name = "tanh";
  static constexpr Cast cast = Cast::Keep;
  static constexpr Saves saves = Saves::Output;
  template <class T>
  HALFTAPE_HD static T f(const T& x) {
    return tanh(x);
  }
  template <class T>
  HALFTAPE_HD static T df(const T& g, const T& y) {
    return g * (1 - y * y);
  }
};
struct Sigmoid {  // y = 1/(1 + e⁻ˣ),  y' = y(1 − y)
  static constexpr auto name = "sigmoid";
  static constexpr Cast cast = Cast::Keep;
  static constexpr Saves saves = Saves::Output;
  template <class T>
  HALFTAPE_HD static T f(const T& x) {
    return sigmoid(x);
  }
  template <class T>
  HALFTAPE_HD static T df(const T& g, const T& y) {
    return g * (y * (1 - y));
  }
};
struct Relu {  // y = max(x, 0); NaN passes, y'(0) = 0
  static constexpr auto name = "relu";
  static constexpr Cast cast = Cast::Keep;
  static constexpr Saves saves = Saves::Output;
  static constexpr bool integers = true;
  template <class T>
  HALFTAPE_HD static T f(const T& x) {
    return where(x <= 0, T(0), x);
  }
  template <class T>
  HALFTAPE_HD static T df(const T& g, const T& y) {
    return where(y <= 0, 0, g);
  }
};
struct Gelu {  // y = x·Φ(x), Φ the normal distribution.  Hendrycks & Gimpel 2016, arXiv:1606.08415
  static constexpr auto name = "gelu";
  static constexpr Cast cast = Cast::Keep;
  static constexpr Saves saves = Saves::Input;
  // erfc keeps the digits of the left tail that 1 + erf would cancel; the clamp keeps −inf·0 from
  // being NaN.
  template <class T>
  HALFTAPE_HD static T f(const T& x) {
    const T m = where(x < -1000, -1000, x);
    return (K<T>(0.5) * m) * erfc(K<T>(-0.70710678118654752440) * m);
  }
  template <class T>
  HALFTAPE_HD static T df(const T& g, const T& x) {
    const T m = where(x < -1000, -1000, where(x > 1000, 1000, x));
    const T cdf = K<T>(0.5) * erfc(K<T>(-0.70710678118654752440) * m);
    const T pdf = K<T>(0.39894228040143267794) * exp(K<T>(-0.5) * (m * m));
    return g * (cdf + m * pdf);
  }
};
struct GeluTanh {  // y = x/2·(1 + tanh(√(2/π)(x + 0.044715x³))) = x·σ(2u); the same source
  static constexpr auto name = "gelu_tanh";
  static constexpr Cast cast = Cast::Keep;
  static constexpr Saves saves = Saves::Input;
  static constexpr double k = 0.79788456080286535588, c = 0.044715;
  template <class T>
  HALFTAPE_HD static T f(const T& x) {
    const T m = where(x < -1000, -1000, x);
    return m * sigmoid(K<T>(2 * k) * (m * (1 + K<T>(c) * (m * m))));
  }
  template <class T>
  HALFTAPE_HD static T df(const T& g, const T& x) {
    const T m = where(x < -1000, -1000, where(x > 1000, 1000, x));
    const T v = K<T>(2 * k) * (m * (1 + K<T>(c) * (m * m)));
    const T s = sigmoid(v), rest = sigmoid(-v);  // 1 − s, which subtraction would leave no digits
    return g * (s + K<T>(2 * k) * (m * (s * rest) * (1 + K<T>(3 * c) * (m * m))));
  }
};
struct Silu {  // y = x·σ(x),  y' = σ(1 + x(1 − σ))
  static constexpr auto name = "silu";
  static constexpr Cast cast = Cast::Keep;
  static constexpr Saves saves = Saves::Input;
  template <class T>
  HALFTAPE_HD static T f(const T& x) {
    const T m = where(x < -10000, -10000, x);
    return m * sigmoid(m);
  }
  template <class T>
  HALFTAPE_HD static T df(const T& g, const T& x) {
    const T m = where(x < -10000, -10000, where(x > 10000, 10000, x));
    const T s = sigmoid(m);
    return g * (s * (1 + m * (1 - s)));
  }
};
struct Softplus {  // y = ln(1 + eˣ) = max(x, 0) + ln(1 + e^−|x|),  y' = σ(x)
  static constexpr auto name = "softplus";
  static constexpr Cast cast = Cast::Float32;
  static constexpr Saves saves = Saves::Input;
  template <class T>
  HALFTAPE_HD static T f(const T& x) {
    return where(x <= 0, T(0), x) + log1p(exp(-abs(x)));
  }
  template <class T>
  HALFTAPE_HD static T df(const T& g, const T& x) {
    return g * sigmoid(x);
  }
};
struct Erf {  // y' = 2/√π·e^−x²
  static constexpr auto name = "erf";
  static constexpr Cast cast = Cast::Keep;
  static constexpr Saves saves = Saves::Input;
  template <class T>
  HALFTAPE_HD static T f(const T& x) {
    return erf(x);
  }
  template <class T>
  HALFTAPE_HD static T df(const T& g, const T& x) {
    return K<T>(1.12837916709551257390) * (g * exp(-(x * x)));
  }
};
struct Erfc {  // 1 − erf(x), accurate in the right tail
  static constexpr auto name = "erfc";
  static constexpr Cast cast = Cast::Keep;
  static constexpr Saves saves = Saves::Input;
  template <class T>
  HALFTAPE_HD static T f(const T& x) {
    return erfc(x);
  }
  template <class T>
  HALFTAPE_HD static T df(const T& g, const T& x) {
    return K<T>(-1.12837916709551257390) * (g * exp(-(x * x)));
  }
};
struct Affine {  // y = a·x + b
  static constexpr auto name = "affine";
  static constexpr Cast cast = Cast::Keep;
  static constexpr Saves saves = Saves::Nothing;
  static constexpr bool integers = true;
  template <class T, class S>
  HALFTAPE_HD static T f(const T& x, const Params<S>& p) {
    return p.a * x + p.b;
  }
  template <class T, class S>
  HALFTAPE_HD static T df(const T& g, const T&, const Params<S>& p) {
    return p.a * g;
  }
};
struct DivScalar {  // y = x/a; not x·(1/a), which would round twice
  static constexpr auto name = "div_scalar";
  static constexpr Cast cast = Cast::Keep;
  static constexpr Saves saves = Saves::Nothing;
  template <class T, class S>
  HALFTAPE_HD static T f(const T& x, const Params<S>& p) {
    return x / p.a;
  }
  template <class T, class S>
  HALFTAPE_HD static T df(const T& g, const T&, const Params<S>& p) {
    return g / p.a;
  }
};
struct ScalarDiv {  // y = a/x,  y' = −a/x²
  static constexpr auto name = "scalar_div";
  static constexpr Cast cast = Cast::Keep;
  static constexpr Saves saves = Saves::Input;
  template <class T, class S>
  HALFTAPE_HD static T f(const T& x, const Params<S>& p) {
    return p.a / x;
  }
  template <class T, class S>
  HALFTAPE_HD static T df(const T& g, const T& x, const Params<S>& p) {
    return -((p.a * g / x) / x);
  }
};
struct PowScalar {  // y = xᵃ, 1 where a = 0, for NaN too;  y' = a·xᵃ⁻¹, 0 where a = 0
  static constexpr auto name = "pow_scalar";
  static constexpr Cast cast = Cast::Float32;
  static constexpr Saves saves = Saves::Input;
  template <class T, class S>
  HALFTAPE_HD static T f(const T& x, const Params<S>& p) {
    if (p.a == S(0)) return T(1);
    return pow(x, p.a);
  }
  template <class T, class S>
  HALFTAPE_HD static T df(const T& g, const T& x, const Params<S>& p) {
    if (p.a == S(0)) return 0 * g;
    return p.a * (g * pow(x, S(p.a - 1)));
  }
};
struct Clamp {  // y = min(max(x, a), b); NaN passes; the gradient passes where a ≤ x ≤ b
  static constexpr auto name = "clamp";
  static constexpr Cast cast = Cast::Keep;
  static constexpr Saves saves = Saves::Input;
  static constexpr bool integers = true;
  template <class T, class S>
  HALFTAPE_HD static T f(const T& x, const Params<S>& p) {
    return where(x > p.b, T(p.b), where(x < p.a, T(p.a), x));
  }
  template <class T, class S>
  HALFTAPE_HD static T df(const T& g, const T& x, const Params<S>& p) {
    return where(x > p.b, 0, where(x < p.a, 0, g));
  }
};

using UnaryOps =
    Ops<Neg, Abs, Sign, Square, Exp, Log, Log1p, Sqrt, Rsqrt, Reciprocal, Tanh, Sigmoid, Relu, Gelu,
        GeluTanh, Silu, Softplus, Erf, Erfc, Affine, DivScalar, ScalarDiv, PowScalar, Clamp>;

/// Does the formula make sense on integers (and keep their dtype)?
template <class Op>
inline constexpr bool works_on_integers = requires {
  Op::integers;
};

}  // namespace halftape
