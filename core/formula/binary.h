// Element-wise formulas of two arguments. `da`, `db` are the gradients; comparisons have none and
// give bool. What else a formula may say: `of_floats`: integers become floats first; `of_integers`:
// for integers and bool alone; `numbers`: not for bool; `divides`: an integer b must not be 0;
// `cast`: its category under autocast, Keep when it says nothing.
#pragma once
#include "halftape/core/formula/predicate.h"

namespace halftape::formula {

struct Add : BinaryFormula {
  static constexpr auto name = "add";
  HALFTAPE_HD static auto f(const auto& a, const auto& b) { return a + b; }
  HALFTAPE_HD static auto da(const auto& g, const auto&, const auto&) { return g; }
  HALFTAPE_HD static auto db(const auto& g, const auto&, const auto&) { return g; }
};
struct Sub : BinaryFormula {
  static constexpr auto name = "sub";
  HALFTAPE_HD static auto f(const auto& a, const auto& b) { return a - b; }
  HALFTAPE_HD static auto da(const auto& g, const auto&, const auto&) { return g; }
  HALFTAPE_HD static auto db(const auto& g, const auto&, const auto&) { return -g; }
};
struct Mul : BinaryFormula {
  static constexpr auto name = "mul";
  HALFTAPE_HD static auto f(const auto& a, const auto& b) { return a * b; }
  HALFTAPE_HD static auto da(const auto& g, const auto&, const auto& b) { return g * b; }
  HALFTAPE_HD static auto db(const auto& g, const auto& a, const auto&) { return g * a; }
};
struct Div : BinaryFormula {
  static constexpr auto name = "div";
  static constexpr bool of_floats = true;
  HALFTAPE_HD static auto f(const auto& a, const auto& b) { return a / b; }
  HALFTAPE_HD static auto da(const auto& g, const auto&, const auto& b) { return g / b; }
  HALFTAPE_HD static auto db(const auto& g, const auto& a, const auto& b) {
    return -((g * a / b) / b);
  }
};
struct Larger {
  HALFTAPE_HD static auto wins(const auto& a, const auto& b) { return a > b; }
};
struct Smaller {
  HALFTAPE_HD static auto wins(const auto& a, const auto& b) { return a < b; }
};
/// NaN of either side wins; equal values share the gradient.
template <class Order>
struct Extremum : BinaryFormula {
  HALFTAPE_HD static auto f(const auto& a, const auto& b) {
    return where(a != a, a, where(Order::wins(a, b), a, b));
  }
  template <class T>
  HALFTAPE_HD static T da(const T& g, const T& a, const T& b) {
    return where(a == b, K<T>(0.5) * g, where(a != a, g, where(Order::wins(a, b), g, 0)));
  }
  template <class T>
  HALFTAPE_HD static T db(const T& g, const T& a, const T& b) {
    return where(a == b, K<T>(0.5) * g, where(a != a, 0, where(Order::wins(a, b), 0, g)));
  }
};
/// NaN only where both are.
template <class Order>
struct NumberExtremum : BinaryFormula {
  HALFTAPE_HD static auto f(const auto& a, const auto& b) {
    return where(a != a, b, where(b != b, a, where(Order::wins(a, b), a, b)));
  }
  HALFTAPE_HD static auto da(const auto& g, const auto& a, const auto& b) {
    return where(b != b, g, where(a != a, 0, Extremum<Order>::da(g, a, b)));
  }
  HALFTAPE_HD static auto db(const auto& g, const auto& a, const auto& b) {
    return where(b != b, 0, where(a != a, g, Extremum<Order>::db(g, a, b)));
  }
};
struct Maximum : Extremum<Larger> {
  static constexpr auto name = "maximum";
};
struct Minimum : Extremum<Smaller> {
  static constexpr auto name = "minimum";
};
struct Fmax : NumberExtremum<Larger> {
  static constexpr auto name = "fmax";
};
struct Fmin : NumberExtremum<Smaller> {
  static constexpr auto name = "fmin";
};
struct Pow
    : BinaryFormula {  // aᵇ;  ∂a: b·aᵇ⁻¹, 0 where b = 0;  ∂b: aᵇ·ln a, 0 where a = 0 and b ≥ 0
  static constexpr auto name = "pow";
  static constexpr Cast cast = Cast::Float32;
  static constexpr bool numbers = true;
  HALFTAPE_HD static auto f(const auto& a, const auto& b) { return pow(a, b); }
  HALFTAPE_HD static auto da(const auto& g, const auto& a, const auto& b) {
    // At b = 0 both factors are kept finite: a further derivative, by b, is 1/a there.
    const auto m = where(b == 0, 1, b), at_zero = b / where(a * a > 0, a, 1);
    return g * where(b == 0, at_zero, b * pow(a, m - 1));
  }
  HALFTAPE_HD static auto db(const auto& g, const auto& a, const auto& b) {
    const auto m = where(a == 0, where(b >= 0, 1, a), a);
    return g * (pow(m, b) * log(m));
  }
};
struct Atan2 : BinaryFormula {  // the angle of the point (b, a);  ∂a: b/(a² + b²),  ∂b: −a/(a² +
                                // b²); 0 at the
  // origin
  static constexpr auto name = "atan2";
  static constexpr Cast cast = Cast::Widest;
  static constexpr bool of_floats = true;
  HALFTAPE_HD static auto f(const auto& a, const auto& b) { return atan2(a, b); }
  HALFTAPE_HD static auto da(const auto& g, const auto& a, const auto& b) {
    const auto r = hypot(a, b), h = where(r == 0, 1, r);  // its square could overflow
    return g * (b / h) / h;
  }
  HALFTAPE_HD static auto db(const auto& g, const auto& a, const auto& b) {
    const auto r = hypot(a, b), h = where(r == 0, 1, r);
    return -(g * (a / h) / h);
  }
};
struct Hypot : BinaryFormula {  // √(a² + b²) without overflow
  static constexpr auto name = "hypot";
  static constexpr bool of_floats = true;
  HALFTAPE_HD static auto f(const auto& a, const auto& b) { return hypot(a, b); }
  HALFTAPE_HD static auto da(const auto& g, const auto& a, const auto& b) {
    return g * (a / hypot(a, b));
  }
  HALFTAPE_HD static auto db(const auto& g, const auto& a, const auto& b) {
    return g * (b / hypot(a, b));
  }
};
struct Xlogy : BinaryFormula {  // a·ln b, 0 where a = 0 unless b is NaN
  static constexpr auto name = "xlogy";
  static constexpr bool of_floats = true;
  HALFTAPE_HD static auto f(const auto& a, const auto& b) {
    return where(b != b, b, where(a == 0, 0, a * log(b)));
  }
  HALFTAPE_HD static auto da(const auto& g, const auto& a, const auto& b) {
    const auto m = where(a == 0, where(b <= 0, 1, b), b);
    return g * log(m);
  }
  HALFTAPE_HD static auto db(const auto& g, const auto& a, const auto& b) { return g * a / b; }
};
struct Copysign : BinaryFormula {  // |a| with the sign of b, of −0 too;  ∂a: ±1, 0 where a = 0
  static constexpr auto name = "copysign";
  static constexpr bool of_floats = true;
  HALFTAPE_HD static auto f(const auto& a, const auto& b) { return copysign(a, b); }
  HALFTAPE_HD static auto da(const auto& g, const auto& a, const auto& b) {
    return where(a == 0, 0, where(copysign(a, b) == a, g, -g));
  }
  HALFTAPE_HD static auto db(const auto& g, const auto&, const auto&) { return zeros_like(g); }
};
struct Fmod : BinaryFormula {  // a − b·trunc(a/b), exactly: what division towards zero leaves, with
                               // the sign of a
  static constexpr auto name = "fmod";
  static constexpr bool numbers = true;
  static constexpr bool divides = true;
  HALFTAPE_HD static auto f(const auto& a, const auto& b) { return fmod(a, b); }
  HALFTAPE_HD static auto da(const auto& g, const auto&, const auto&) { return g; }
  HALFTAPE_HD static auto db(const auto& g, const auto& a, const auto& b) {
    return -(g * round((a - fmod(a, b)) / b));
  }
};
struct Remainder : BinaryFormula {  // a − b·floor(a/b): the same with the sign of b, as Python's %
  static constexpr auto name = "remainder";
  static constexpr bool numbers = true;
  static constexpr bool divides = true;
  template <class T>
  HALFTAPE_HD static T f(const T& a, const T& b) {
    const T r = fmod(a, b);
    if constexpr (std::is_integral_v<T>)
      return r != 0 && (r < 0) != (b < 0) ? r + b : r;
    else
      return where(r == 0, r, where(copysign(T(1), r) == copysign(T(1), b), r, r + b));
  }
  HALFTAPE_HD static auto da(const auto& g, const auto&, const auto&) { return g; }
  HALFTAPE_HD static auto db(const auto& g, const auto& a, const auto& b) {
    return -(g * round((a - remainder(a, b)) / b));
  }
};
/// The whole number at or below a/b, from the exact remainder: a/b itself may round up to the next.
/// Its derivatives are 0.
struct FloorDivide : BinaryFormula {
  static constexpr auto name = "floor_divide";
  static constexpr bool numbers = true;
  static constexpr bool divides = true;
  template <class T>
  HALFTAPE_HD static T f(const T& a, const T& b) {
    const T r = fmod(a, b);
    if constexpr (std::is_integral_v<T>) {
      return quotient(a, b) - (r != 0 && (r < 0) != (b < 0) ? 1 : 0);
    } else {
      const T q = (a - r) / b;
      const T floor =
          round(where(r == 0, q, where(copysign(T(1), r) == copysign(T(1), b), q, q - 1)));
      return where(b == 0, a / b, where(floor == 0, copysign(T(0), a / b), floor));
    }
  }
  HALFTAPE_HD static auto da(const auto& g, const auto&, const auto&) { return zeros_like(g); }
  HALFTAPE_HD static auto db(const auto& g, const auto&, const auto&) { return zeros_like(g); }
};
struct TruncDivide : BinaryFormula {  // a/b without its fraction; derivatives 0
  static constexpr auto name = "trunc_divide";
  static constexpr bool numbers = true;
  static constexpr bool divides = true;
  template <class T>
  HALFTAPE_HD static T f(const T& a, const T& b) {
    if constexpr (std::is_integral_v<T>)
      return quotient(a, b);
    else
      return trunc(a / b);
  }
  HALFTAPE_HD static auto da(const auto& g, const auto&, const auto&) { return zeros_like(g); }
  HALFTAPE_HD static auto db(const auto& g, const auto&, const auto&) { return zeros_like(g); }
};
struct Prelu : BinaryFormula {  // a, b·a where a ≤ 0.  He et al. 2015, arXiv:1502.01852
  static constexpr auto name = "prelu";
  static constexpr Cast cast = Cast::Lower;
  HALFTAPE_HD static auto f(const auto& a, const auto& b) { return where(a > 0, a, b * a); }
  HALFTAPE_HD static auto da(const auto& g, const auto& a, const auto& b) {
    return where(a > 0, g, g * b);
  }
  HALFTAPE_HD static auto db(const auto& g, const auto& a, const auto&) {
    return where(a > 0, 0, g * a);
  }
};
/// −y·ln p − (1 − y)·ln(1 − p), each logarithm at least −100; ∂p: (p − y) / (p(1 − p)) with a
/// divisor of at least 10⁻¹². The bounds are PyTorch's: a saturated p costs 100 and has a finite
/// gradient.
struct BinaryCrossEntropy : BinaryFormula {
  static constexpr auto name = "binary_cross_entropy";
  static constexpr bool of_floats = true;
  template <class T>
  HALFTAPE_HD static T at_least(double low, const T& x) {
    return where(x < K<T>(low), K<T>(low), x);
  }
  HALFTAPE_HD static auto f(const auto& p, const auto& y) {
    return (y - 1) * at_least(-100, log1p(-p)) - y * at_least(-100, log(p));
  }
  HALFTAPE_HD static auto da(const auto& g, const auto& p, const auto& y) {
    return g * (p - y) / at_least(1e-12, (1 - p) * p);
  }
  HALFTAPE_HD static auto db(const auto& g, const auto& p, const auto&) {
    return g * (at_least(-100, log1p(-p)) - at_least(-100, log(p)));
  }
};

using Binary =
    Ops<Add, Sub, Mul, Div, Maximum, Minimum, Fmax, Fmin, Pow, Atan2, Hypot, Xlogy, Copysign, Fmod,
        Remainder, FloorDivide, TruncDivide, Prelu, BinaryCrossEntropy, Eq, Ne, Lt, Le, Gt, Ge,
        LogicalAnd, LogicalOr, LogicalXor, BitwiseAnd, BitwiseOr, BitwiseXor>;

}  // namespace halftape::formula

namespace halftape {

using BinaryOps = formula::Binary;

}  // namespace halftape
