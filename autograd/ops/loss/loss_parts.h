// What the losses are made of: halves computed in float32, shapes that must be equal, and what
// becomes of the losses of elements.
#pragma once
#include "halftape/autograd/ops/loss/loss.h"
#include "halftape/autograd/tape/error_scope.h"

namespace halftape {
namespace detail {

/// The dtype that a loss of these has; throws unless it is a floating-point one.
Dtype loss_dtype(const char* op, std::initializer_list<const Tensor*> inputs);

/// int64 targets (), (N) or (N, d1, …) for x (C), (N, C) or (N, C, d1, …), and weights (C) or none.
void check_classes(const char* op, const Tensor& x, const Tensor& target, const Tensor& weight);
void same_shape(const char* op, const Tensor& x, const Tensor& y);

/// BatchMean is kl_div's alone.
Tensor reduced(const char* op, const Tensor& losses, Reduction reduction);

/// f(x, y) of inputs of one shape, reduced, in their dtype.
template <class F>
Tensor loss_of(const char* op, const Tensor& x, const Tensor& y, Reduction reduction, const F& f) {
  same_shape(op, x, y);
  const Dtype dtype = loss_dtype(op, {&x, &y});
  return reduced(op, f(x.to(compute_dtype(dtype)), y.to(compute_dtype(dtype))), reduction)
      .to(dtype);
}

}  // namespace detail
}  // namespace halftape
