// Parts of losses: the dtype to compute in, checks of shapes, and reductions.
#pragma once
#include "halftape/autograd/ops/cast_list.h"
#include "halftape/autograd/ops/loss/loss.h"

namespace halftape {
namespace detail {

/// The dtype of a loss of these inputs; throws unless it is a floating-point one.
Dtype loss_dtype(const char* op, std::initializer_list<const Tensor*> inputs);

/// Throws unless targets are int64 (), (N) or (N, d1, …) for x (C), (N, C) or (N, C, d1, …), and
/// weights (C) or undefined.
void check_classes(const char* op, const Tensor& x, const Tensor& target, const Tensor& weight);
/// cross_entropy() with class numbers, in the compute_dtype() of the logits, which are read as they
/// are. No policy has a say.
Tensor cross_entropy_unrounded(const Tensor& in, const Tensor& target, const Tensor& weight,
                               Reduction reduction, int64_t ignore_index, double label_smoothing);
void same_shape(const char* op, const Tensor& x, const Tensor& y);

/// Throws for BatchMean, which only kl_div has.
Tensor reduced(const char* op, const Tensor& losses, Reduction reduction);

/// f(x, y) of inputs of one shape, cast by the policy, reduced, in their dtype.
Tensor loss_of(const CastOp& op, const Tensor& x_in, const Tensor& y_in, Reduction reduction,
               const auto& f) {
  const ErrorScope scope(op.name, x_in, y_in);
  const auto [x, y] = cast_inputs(op, x_in, y_in);
  same_shape(op.name, x, y);
  const Dtype dtype = loss_dtype(op.name, {&x, &y});
  return reduced(op.name, f(x.to(compute_dtype(dtype)), y.to(compute_dtype(dtype))), reduction)
      .to(dtype);
}

}  // namespace detail
}  // namespace halftape
