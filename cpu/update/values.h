// Reading and writing the single numbers that updates depend on: scales, steps, findings.
#pragma once
#include "halftape/core/array.h"

namespace halftape::cpu {

/// The element of an array of one, read directly: kernels do not go through the backend.
inline double value(const Array& one) {
  return visit(one.dtype(), [&](auto t) {
    return convert<double>(*static_cast<typename decltype(t)::type*>(one.raw()));
  });
}

inline void set(const Array& one, Scalar value) {
  visit(one.dtype(), [&](auto t) {
    using T = typename decltype(t)::type;
    *static_cast<T*>(one.raw()) = value.as_element<T>();
  });
}

/// x − x is 0 for finite x and NaN otherwise.
template <class S>
bool is_finite(S x) {
  return x - x == S(0);
}

}  // namespace halftape::cpu
