// A matrix product, and what happens to its sums before they are rounded.
#pragma once
#include "halftape/core/array.h"

namespace halftape {

/// How the sum v of a product, in float (double), becomes an element of d.
enum class Epilogue : uint8_t {
  None,   // d = v
  Relu,   // d = v unless v ≤ 0, else 0; NaN stays.  aux, if defined ← that condition, as a mask
  Gelu,   // d = formula::GeluTanh of v.  aux, if defined ← v, rounded
  DRelu,  // d = v where the mask in aux, written by Relu, has a bit, else 0
  DGelu,  // d = v times the derivative of GeluTanh at aux, written by Gelu
};

/// d = epilogue(v), v = alpha·a·b + beta·d (+ bias along the last dimension).
/// d (…, m, n), a (…, m, k), b (…, k, n), bias (n); the leading dimensions are equal. A transposed
/// operand has transposed strides. a and b have equal dtypes; d may be wider. bias has any floating
/// dtype.
///
/// aux of Gelu has d's shape and dtype. aux of Relu is a contiguous mask of bytes (…, m,
/// relu_mask_bytes(n)): column j is bit j % 8 of byte j / 8, and bits beyond the last column mean
/// nothing. A v above 0 that rounds to 0 in d may have its bit set or not.
///
/// bias_grad, if defined, has any floating dtype, and d is of rank 2. After DRelu and DGelu, whose
/// d is a gradient, bias_grad ← Σᵢ d[i, :] (n), summed before or after rounding to d. After None,
/// where a is a gradient and d that of the weight, bias_grad ← Σₖ a[:, k] (m). With an epilogue or
/// bias_grad all dtypes are floating.
struct Gemm {
  Array d, a, b;
  const Array* bias = nullptr;
  double alpha = 1, beta = 0;
  Epilogue epilogue = Epilogue::None;
  Array aux = {};
  Array bias_grad = {};
};

/// The bytes of one row of a mask: whole words of 128 bits, as cuBLASLt requires.
constexpr int64_t relu_mask_bytes(int64_t n) { return (n + 127) / 128 * 16; }

}  // namespace halftape
