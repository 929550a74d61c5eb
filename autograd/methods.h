// Methods of Tensor by their form: x.name(…) is name(x, …), and x.name_(…) the same in place.
// One list, from which they are declared (autograd/tensor.h), defined (autograd/methods.cpp,
// autograd/inplace.cpp) and tested. Documentation stands with the functions.
#pragma once

// clang-format off

/// Of x alone.
#define HALFTAPE_UNARY_METHODS(M)                                                            \
  M(abs) M(acos) M(acosh) M(asin) M(asinh) M(atan) M(atanh) M(bitwise_not) M(ceil) M(cos)    \
  M(cosh) M(deg2rad) M(erf) M(erfc) M(erfinv) M(exp) M(exp2) M(expm1) M(floor) M(frac)       \
  M(log) M(log10) M(log1p) M(log2) M(logical_not) M(neg) M(rad2deg) M(reciprocal) M(relu)    \
  M(round) M(rsqrt) M(sgn) M(sigmoid) M(sign) M(sin) M(sinc) M(sinh) M(sqrt) M(square)       \
  M(tan) M(tanh) M(trunc)

/// Of x and a tensor or a number.
#define HALFTAPE_BINARY_METHODS(M)                                                           \
  M(bitwise_and) M(bitwise_or) M(bitwise_xor) M(clamp_max) M(clamp_min) M(copysign) M(eq)    \
  M(floor_divide) M(fmod) M(ge) M(gt) M(le) M(lt) M(ne) M(pow) M(remainder) M(xlogy)

/// Of x and a tensor.
#define HALFTAPE_TENSOR_METHODS(M) \
  M(atan2) M(heaviside) M(hypot) M(logical_and) M(logical_or) M(logical_xor)

/// Of x alone, or x and a tensor, without a form in place.
#define HALFTAPE_PURE_UNARY_METHODS(M) \
  M(isfinite) M(isinf) M(isnan) M(isneginf) M(isposinf) M(positive)
#define HALFTAPE_PURE_BINARY_METHODS(M) M(fmax) M(fmin) M(maximum) M(minimum) M(prelu)

/// Products of x and a tensor, not element by element.
#define HALFTAPE_PRODUCT_METHODS(M) \
  M(bmm) M(dot) M(inner) M(kron) M(matmul) M(mm) M(mv) M(outer) M(vdot)
/// beta·x + alpha·product of two tensors.
#define HALFTAPE_SUM_METHODS(M) M(addmm) M(addmv) M(addr) M(baddbmm) M(addbmm)

// clang-format on
