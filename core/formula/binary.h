// Element-wise formulas of two arguments. `da`, `db` are the gradients; comparisons have none and
// give bool. `of_floats`: for floating-point numbers alone.
#pragma once
#include "halftape/core/formula/words.h"

namespace halftape {

struct Add {
  static constexpr auto name = "add";
  static constexpr bool compares = false;
  template <class T>
  HALFTAPE_HD static T f(const T& a, const T& b) {
    return a + b;
  }
  template <class T>
  HALFTAPE_HD static T da(const T& g, const T&, const T&) {
    return g;
  }
  template <class T>
  HALFTAPE_HD static T db(const T& g, const T&, const T&) {
    return g;
  }
};
struct Sub {
  static constexpr auto name = "sub";
  static constexpr bool compares = false;
  template <class T>
  HALFTAPE_HD static T f(const T& a, const T& b) {
    return a - b;
  }
  template <class T>
  HALFTAPE_HD static T da(const T& g, const T&, const T&) {
    return g;
  }
  template <class T>
  HALFTAPE_HD static T db(const T& g, const T&, const T&) {
    return -g;
  }
};
struct Mul {
  static constexpr auto name = "mul";
  static constexpr bool compares = false;
  template <class T>
  HALFTAPE_HD static T f(const T& a, const T& b) {
    return a * b;
  }
  template <class T>
  HALFTAPE_HD static T da(const T& g, const T&, const T& b) {
    return g * b;
  }
  template <class T>
  HALFTAPE_HD static T db(const T& g, const T& a, const T&) {
    return g * a;
  }
};
struct Div {
  static constexpr auto name = "div";
  static constexpr bool compares = false;
  static constexpr bool of_floats = true;
  template <class T>
  HALFTAPE_HD static T f(const T& a, const T& b) {
    return a / b;
  }
  template <class T>
  HALFTAPE_HD static T da(const T& g, const T&, const T& b) {
    return g / b;
  }
  template <class T>
  HALFTAPE_HD static T db(const T& g, const T& a, const T& b) {
    return -((g * a / b) / b);
  }
};
struct Maximum {  // NaN of either side wins; equal values share the gradient
  static constexpr auto name = "maximum";
  static constexpr bool compares = false;
  template <class T>
  HALFTAPE_HD static T f(const T& a, const T& b) {
    return where(a != a, a, where(a > b, a, b));
  }
  template <class T>
  HALFTAPE_HD static T da(const T& g, const T& a, const T& b) {
    return where(a == b, K<T>(0.5) * g, where(a > b, g, 0));
  }
  template <class T>
  HALFTAPE_HD static T db(const T& g, const T& a, const T& b) {
    return where(a == b, K<T>(0.5) * g, where(a > b, 0, g));
  }
};
struct Minimum {
  static constexpr auto name = "minimum";
  static constexpr bool compares = false;
  template <class T>
  HALFTAPE_HD static T f(const T& a, const T& b) {
    return where(a != a, a, where(a < b, a, b));
  }
  template <class T>
  HALFTAPE_HD static T da(const T& g, const T& a, const T& b) {
    return where(a == b, K<T>(0.5) * g, where(a < b, g, 0));
  }
  template <class T>
  HALFTAPE_HD static T db(const T& g, const T& a, const T& b) {
    return where(a == b, K<T>(0.5) * g, where(a < b, 0, g));
  }
};
/// −y·ln p − (1 − y)·ln(1 − p), each logarithm at least −100; ∂p: (p − y) / (p(1 − p)) with a
/// divisor of at least 10⁻¹². The bounds are PyTorch's: a saturated p costs 100 and has a finite
/// gradient.
struct BinaryCrossEntropy {
  static constexpr auto name = "binary_cross_entropy";
  static constexpr bool compares = false;
  static constexpr bool of_floats = true;
  template <class T>
  HALFTAPE_HD static T at_least(double low, const T& x) {
    return where(x < K<T>(low), K<T>(low), x);
  }
  template <class T>
  HALFTAPE_HD static T f(const T& p, const T& y) {
    return (y - 1) * at_least(-100, log1p(-p)) - y * at_least(-100, log(p));
  }
  template <class T>
  HALFTAPE_HD static T da(const T& g, const T& p, const T& y) {
    return g * (p - y) / at_least(1e-12, (1 - p) * p);
  }
  template <class T>
  HALFTAPE_HD static T db(const T& g, const T& p, const T&) {
    return g * (at_least(-100, log1p(-p)) - at_least(-100, log(p)));
  }
};

/// Whether integers must become floats before they take part.
template <class Op>
inline constexpr bool needs_floats = requires {
  Op::of_floats;
};

#define HALFTAPE_COMPARISON(Name, text, op)          \
  struct Name {                                      \
    static constexpr auto name = text;               \
    static constexpr bool compares = true;           \
    template <class T>                               \
    HALFTAPE_HD static T f(const T& a, const T& b) { \
      return where(a op b, T(1), T(0));              \
    }                                                \
  };
HALFTAPE_COMPARISON(Eq, "eq", ==)
HALFTAPE_COMPARISON(Ne, "ne", !=)
HALFTAPE_COMPARISON(Lt, "lt", <)
HALFTAPE_COMPARISON(Le, "le", <=)
HALFTAPE_COMPARISON(Gt, "gt", >)
HALFTAPE_COMPARISON(Ge, "ge", >=)
#undef HALFTAPE_COMPARISON

using BinaryOps =
    Ops<Add, Sub, Mul, Div, Maximum, Minimum, BinaryCrossEntropy, Eq, Ne, Lt, Le, Gt, Ge>;

}  // namespace halftape
