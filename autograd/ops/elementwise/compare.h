// Comparisons of whole tensors.
#pragma once
#include "halftape/autograd/tensor.h"

namespace halftape {

/// Same shape, dtype and values? NaN differs from itself.
inline bool equal(const Tensor& a, const Tensor& b) { return a.equal(b); }
/// True if |a − b| ≤ atol + rtol·|b| everywhere. Shapes broadcast; dtypes may differ.
inline bool allclose(const Tensor& a, const Tensor& b, double rtol = 1e-5, double atol = 1e-8,
                     bool equal_nan = false) {
  return a.allclose(b, rtol, atol, equal_nan);
}
/// The same element by element: bool, computed in float64. Equal infinities are close, NaN only
/// with equal_nan.
inline Tensor isclose(const Tensor& a, const Tensor& b, double rtol = 1e-5, double atol = 1e-8,
                      bool equal_nan = false) {
  return a.isclose(b, rtol, atol, equal_nan);
}
inline bool is_same_size(const Tensor& a, const Tensor& b) { return a.is_same_size(b); }
inline bool is_nonzero(const Tensor& a) { return a.is_nonzero(); }
inline bool is_floating_point(const Tensor& a) { return a.is_floating_point(); }

}  // namespace halftape
