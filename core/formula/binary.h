// Element-wise formulas of two arguments. `da`, `db` are the gradients; comparisons have none and
// give bool.
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
struct Div {  // integers divide as float32, as in PyTorch
  static constexpr auto name = "div";
  static constexpr bool compares = false;
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

using BinaryOps = Ops<Add, Sub, Mul, Div, Maximum, Minimum, Eq, Ne, Lt, Le, Gt, Ge>;

}  // namespace halftape
