// What a formula says of itself, and lists of formulas from which tables of kernels are made.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "halftape/core/host_device.h"

#if defined(__FAST_MATH__) || (defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__)
#error "fast-math lets the compiler remove the checks for inf and NaN"
#endif

namespace halftape {

/// An op's numerical nature, stated with the op. What it means for dtypes is decided by amp.
enum class Cast : uint8_t {
  Keep,     // runs in the dtypes it is given
  Lower,    // throughput-hungry and safe in half: matmul, linear
  Float32,  // range- or precision-hungry: exp, log, pow, sums, losses
  Widest,   // needs equal dtypes: as Lower, or float32 if an input has another
  Refuse,   // unsafe in half with no cure but another op
};

/// A formula's name for users, where several formulas make one op: x.pow(2) runs `square`.
template <class Op>
constexpr const char* called() {
  if constexpr (requires { Op::called; })
    return Op::called;
  else
    return Op::name;
}

/// The argument of df() beside the gradient.
enum class Saves : uint8_t { Nothing, Input, Output };

/// The scalar behind a reading of a formula: float for float and for a Chunk of floats, double for
/// Tensor.
template <class T>
struct scalar_of {
  using type = T;
};
template <class T>
using scalar_t = typename scalar_of<T>::type;
/// A constant in the precision of the reading; a bare `0.5 * x` would turn a float reading into
/// double.
template <class T>
HALFTAPE_HD constexpr scalar_t<T> K(double value) {
  return static_cast<scalar_t<T>>(value);
}

/// Two numbers that some formulas take: `a·x + b`, `x^a`, `clamp(x, a, b)`. A backend is given them
/// as Scalars, exact for every dtype, and hands the formula those of its reading.
template <class S>
struct Params {
  S a{}, b{};
};

/// Index of a formula in its list: how a backend is told which kernel to run.
using OpId = int;

/// A list of formulas. Adding an op is one more name in a list; every table follows.
template <class... Op>
struct Ops {
  static constexpr size_t size = sizeof...(Op);
  template <class T>
  static constexpr OpId index() {
    OpId at = 0, found = -1;
    ((std::is_same_v<T, Op> ? (found = at, ++at) : ++at), ...);
    return found;
  }
  /// An array of f(tag<Op>) for every op; a tag argument, because nvcc warns about template
  /// lambdas.
  template <class F>
  static constexpr auto table(F f) {
    return std::array{f(std::type_identity<Op>{})...};
  }
  template <class F>
  static constexpr void each(F f) {
    (f(std::type_identity<Op>{}), ...);
  }
};

/// The formulas of several lists, in this order.
template <class... A, class... B, class... C>
Ops<A..., B..., C...> joined(Ops<A...>, Ops<B...>, Ops<C...>);

namespace formula {

/// Defaults of a formula of one argument.
struct UnaryFormula {
  static constexpr Cast cast = Cast::Keep;
  static constexpr Saves saves = Saves::Input;
  static constexpr bool integers = false;  // makes sense on integers, and keeps their dtype
};

/// Defaults of a formula of two arguments.
struct BinaryFormula {
  static constexpr Cast cast = Cast::Keep;
  static constexpr bool compares = false;     // gives bool and has no derivative
  static constexpr bool of_floats = false;    // integers become floats first
  static constexpr bool of_integers = false;  // for integers and bool only
  static constexpr bool numbers = false;      // not for bool
  static constexpr bool divides = false;      // an integer b must not be 0
};

}  // namespace formula

/// Formulas with and without parameters are called alike.
template <class Op, class T, class S>
HALFTAPE_HD T formula_f(const T& x, const Params<S>& p) {
  if constexpr (requires { Op::f(x, p); })
    return Op::f(x, p);
  else
    return Op::f(x);
}
template <class Op, class T, class S>
HALFTAPE_HD T formula_df(const T& g, const T& saved, const Params<S>& p) {
  if constexpr (requires { Op::df(g, saved, p); })
    return Op::df(g, saved, p);
  else
    return Op::df(g, saved);
}

}  // namespace halftape
