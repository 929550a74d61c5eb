// LibTorch's other names of functions.
#pragma once
#include <utility>

#include <halftape/halftape.h>

namespace torch {
using namespace halftape;

#define HALFTAPE_ALIAS(name, op)                                                     \
  template <class... Args>                                                           \
  auto name(Args&&... args)->decltype(::halftape::op(std::forward<Args>(args)...)) { \
    return ::halftape::op(std::forward<Args>(args)...);                              \
  }
HALFTAPE_ALIAS(absolute, abs)
HALFTAPE_ALIAS(arccos, acos)
HALFTAPE_ALIAS(arccosh, acosh)
HALFTAPE_ALIAS(arcsin, asin)
HALFTAPE_ALIAS(arcsinh, asinh)
HALFTAPE_ALIAS(arctan, atan)
HALFTAPE_ALIAS(arctan2, atan2)
HALFTAPE_ALIAS(arctanh, atanh)
HALFTAPE_ALIAS(clip, clamp)
HALFTAPE_ALIAS(divide, div)
HALFTAPE_ALIAS(fix, trunc)
HALFTAPE_ALIAS(greater, gt)
HALFTAPE_ALIAS(greater_equal, ge)
HALFTAPE_ALIAS(less, lt)
HALFTAPE_ALIAS(less_equal, le)
HALFTAPE_ALIAS(multiply, mul)
HALFTAPE_ALIAS(not_equal, ne)
HALFTAPE_ALIAS(subtract, sub)
HALFTAPE_ALIAS(true_divide, div)
#undef HALFTAPE_ALIAS
inline Tensor concatenate(const TensorList& tensors, int64_t dim = 0) {
  return ::halftape::cat(tensors, dim);
}
inline Tensor row_stack(const TensorList& tensors) { return ::halftape::vstack(tensors); }

// Methods in place, as functions.
#define HALFTAPE_IN_PLACE(name)                   \
  template <class... Args>                        \
  Tensor& name(const Tensor& x, Args&&... args) { \
    return x.name(std::forward<Args>(args)...);   \
  }
HALFTAPE_IN_PLACE(abs_)
HALFTAPE_IN_PLACE(clamp_)
HALFTAPE_IN_PLACE(exp_)
HALFTAPE_IN_PLACE(neg_)
HALFTAPE_IN_PLACE(relu_)
HALFTAPE_IN_PLACE(sigmoid_)
HALFTAPE_IN_PLACE(sqrt_)
HALFTAPE_IN_PLACE(tanh_)
HALFTAPE_IN_PLACE(zero_)
#undef HALFTAPE_IN_PLACE

}  // namespace torch
