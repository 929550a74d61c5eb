// Element-wise formulas of one argument: arithmetic and roundings here, others in elementary.h and
// activation.h; each file ends with the list of its formulas. A name in a list makes the kernels on
// all devices, the derivatives and the entry in every table. `f` is the value; `df(g, saved)` is
// the gradient g times the derivative. f is read with float, double or Chunk; df with those and,
// when the backward pass is itself recorded, with Tensor. Where a function names the type, T, it
// has constants (K<T>). They are exact in the wider type where it matters, so that double is a
// reference.
#pragma once
#include "halftape/core/formula/activation.h"
#include "halftape/core/formula/elementary.h"

namespace halftape::formula {

struct Neg : UnaryFormula {  // y = −x
  static constexpr auto name = "neg";
  static constexpr Saves saves = Saves::Nothing;
  static constexpr bool integers = true;
  HALFTAPE_HD static auto f(const auto& x) { return -x; }
  HALFTAPE_HD static auto df(const auto& g, const auto&) { return -g; }
};
struct Abs : UnaryFormula {  // y = |x|,  y' = sign(x), 0 at 0
  static constexpr auto name = "abs";
  static constexpr bool integers = true;
  HALFTAPE_HD static auto f(const auto& x) { return abs(x); }
  HALFTAPE_HD static auto df(const auto& g, const auto& x) {
    return where(x > 0, g, where(x < 0, -g, 0));
  }
};
/// A step function: its derivative is 0.
struct Rounding : UnaryFormula {
  static constexpr Saves saves = Saves::Nothing;
  static constexpr bool integers = true;
  HALFTAPE_HD static auto df(const auto& g, const auto&) { return zeros_like(g); }
};
struct Sign : Rounding {  // −1, 0 or 1; NaN stays NaN
  static constexpr auto name = "sign";
  HALFTAPE_HD static auto f(const auto& x) { return where(x > 0, 1, where(x < 0, -1, x)); }
};
struct Square : UnaryFormula {  // y = x²,  y' = 2x
  static constexpr auto name = "square", called = "pow";
  static constexpr Cast cast = Cast::Float32;  // as pow
  static constexpr bool integers = true;
  HALFTAPE_HD static auto f(const auto& x) { return x * x; }
  HALFTAPE_HD static auto df(const auto& g, const auto& x) { return 2 * (g * x); }
};
struct Sqrt : UnaryFormula {  // y = √x,  y' = 1/(2y); infinite at 0
  static constexpr auto name = "sqrt";
  static constexpr Saves saves = Saves::Output;
  HALFTAPE_HD static auto f(const auto& x) { return sqrt(x); }
  template <class T>
  HALFTAPE_HD static T df(const T& g, const T& y) {
    return K<T>(0.5) * g / y;
  }
};
struct Rsqrt : UnaryFormula {  // y = 1/√x,  y' = −y³/2
  static constexpr auto name = "rsqrt";
  static constexpr Cast cast = Cast::Float32;
  static constexpr Saves saves = Saves::Output;
  HALFTAPE_HD static auto f(const auto& x) { return 1 / sqrt(x); }
  template <class T>
  HALFTAPE_HD static T df(const T& g, const T& y) {
    return g * ((K<T>(-0.5) * y) * (y * y));
  }
};
struct Reciprocal : UnaryFormula {  // y = 1/x,  y' = −y²
  static constexpr auto name = "reciprocal";
  static constexpr Cast cast = Cast::Float32;
  static constexpr Saves saves = Saves::Output;
  HALFTAPE_HD static auto f(const auto& x) { return 1 / x; }
  HALFTAPE_HD static auto df(const auto& g, const auto& y) { return -(g * (y * y)); }
};
struct Floor : Rounding {  // down;  y' = 0
  static constexpr auto name = "floor";
  HALFTAPE_HD static auto f(const auto& x) { return floor(x); }
};
struct Ceil : Rounding {  // up;  y' = 0
  static constexpr auto name = "ceil";
  HALFTAPE_HD static auto f(const auto& x) { return ceil(x); }
};
struct Trunc : Rounding {  // towards 0;  y' = 0
  static constexpr auto name = "trunc";
  HALFTAPE_HD static auto f(const auto& x) { return trunc(x); }
};
struct Round : Rounding {  // to the nearest whole number, halves to the even one
  static constexpr auto name = "round";
  HALFTAPE_HD static auto f(const auto& x) { return round(x); }
};
struct Frac : UnaryFormula {  // y = x − trunc x,  y' = 1
  static constexpr auto name = "frac";
  static constexpr Saves saves = Saves::Nothing;
  HALFTAPE_HD static auto f(const auto& x) { return x - trunc(x); }
  HALFTAPE_HD static auto df(const auto& g, const auto&) { return g; }
};
struct Affine : UnaryFormula {  // y = a·x + b
  static constexpr auto name = "affine";
  static constexpr Saves saves = Saves::Nothing;
  static constexpr bool integers = true;
  HALFTAPE_HD static auto f(const auto& x, const auto& p) { return p.a * x + p.b; }
  HALFTAPE_HD static auto df(const auto& g, const auto&, const auto& p) { return p.a * g; }
};
struct DivScalar : UnaryFormula {  // y = x/a; not x·(1/a), which would round twice
  static constexpr auto name = "div_scalar", called = "div";
  static constexpr Saves saves = Saves::Nothing;
  HALFTAPE_HD static auto f(const auto& x, const auto& p) { return x / p.a; }
  HALFTAPE_HD static auto df(const auto& g, const auto&, const auto& p) { return g / p.a; }
};
struct ScalarDiv : UnaryFormula {  // y = a/x,  y' = −a/x²
  static constexpr auto name = "scalar_div", called = "reciprocal";
  static constexpr Cast cast = Cast::Float32;  // as reciprocal
  HALFTAPE_HD static auto f(const auto& x, const auto& p) { return p.a / x; }
  HALFTAPE_HD static auto df(const auto& g, const auto& x, const auto& p) {
    return -((p.a * g / x) / x);
  }
};
struct PowScalar
    : UnaryFormula {  // y = xᵃ, 1 where a = 0, for NaN too;  y' = a·xᵃ⁻¹, 0 where a = 0
  static constexpr auto name = "pow_scalar", called = "pow";
  static constexpr Cast cast = Cast::Float32;
  static constexpr bool integers = true;
  template <class T, class S>
  HALFTAPE_HD static T f(const T& x, const Params<S>& p) {
    if (p.a == S(0)) return T(1);
    return pow(x, p.a);
  }
  template <class T, class S>
  HALFTAPE_HD static T df(const T& g, const T& x, const Params<S>& p) {
    if (p.a == S(0)) return zeros_like(g);
    return p.a * (g * pow(x, S(p.a - 1)));
  }
};
struct ScalarPow : UnaryFormula {  // y = aˣ,  y' = y·ln a; where a = 0: 0, but −∞ for x < 0
  static constexpr auto name = "scalar_pow", called = "pow";
  static constexpr Cast cast = Cast::Float32;
  static constexpr Saves saves = Saves::Output;
  HALFTAPE_HD static auto f(const auto& x, const auto& p) { return pow(p.a, x); }
  template <class T, class S>
  HALFTAPE_HD static T df(const T& g, const T& y, const Params<S>& p) {
    if (p.a == S(0)) return where(y > 1, -(g * y), 0);
    return g * (y * log(p.a));
  }
};
struct Clamp
    : UnaryFormula {  // y = min(max(x, a), b); NaN passes; the gradient passes where a < x < b
  static constexpr auto name = "clamp";
  static constexpr bool integers = true;
  HALFTAPE_HD static auto f(const auto& x, const auto& p) {
    return where(x > p.b, p.b, where(x < p.a, p.a, x));
  }
  HALFTAPE_HD static auto df(const auto& g, const auto& x, const auto& p) {
    return where(x >= p.b, 0, where(x <= p.a, 0, g));
  }
};

using Arithmetic = Ops<Neg, Abs, Sign, Square, Sqrt, Rsqrt, Reciprocal, Floor, Ceil, Trunc, Round,
                       Frac, Affine, DivScalar, ScalarDiv, PowScalar, ScalarPow, Clamp>;

}  // namespace halftape::formula

namespace halftape {

using UnaryOps =
    decltype(joined(formula::Arithmetic{}, formula::Elementary{}, formula::Activations{}));

}  // namespace halftape
