#include "halftape/autograd/ops/creation/dropout.h"

#include <cmath>

#include "halftape/autograd/ops/cast_list.h"
#include "halftape/autograd/ops/creation/create.h"
#include "halftape/autograd/ops/elementwise/binary.h"
#include "halftape/autograd/tape/error_scope.h"
#include "halftape/core/random/draw.h"

namespace halftape {
namespace {

/// True if elements are to be dropped.
bool drops(const char* op, const Tensor& x, double p, bool training) {
  HALFTAPE_CHECK(p >= 0 && p <= 1, op, ": probability ", p, " is not between 0 and 1");
  check_floating(op, x);
  return training && p > 0;
}

/// One number for each feature: (N, C, 1, …).
Shape features(const char* op, const Tensor& x) {
  HALFTAPE_CHECK(x.dim() >= 2, op, ": features need an input of 2 dimensions or more, (N, C, …), ",
                 "and it is ", x.sizes());
  Shape shape = x.sizes();
  for (int d = 2; d < shape.size(); ++d) shape[d] = 1;
  return shape;
}

/// 1 with probability 1 − p, otherwise 0.
Tensor kept(const Tensor& x, const Shape& shape, double p, Dtype dtype) {
  const Array drawn(shape, dtype, x.device());
  draw(drawn, Distribution::Bernoulli, 1 - p);
  return Tensor(drawn);
}

Tensor zeroed(const Tensor& x, const Shape& shape, double p) {
  if (p == 1) return x * zeros_like(x);
  return x * kept(x, shape, p, x.dtype()) / (1 - p);
}

Tensor saturated(const Tensor& x, const Shape& shape, double p) {
  if (p == 1) return x * zeros_like(x);
  constexpr double kLow = -1.7580993408473766;  // −scale·alpha of SELU
  const double a = 1 / std::sqrt((1 - p) * (1 + p * kLow * kLow)), b = -a * p * kLow;
  const Dtype wide = compute_dtype(x.dtype());
  const Tensor keep = kept(x, shape, p, wide);
  const Tensor y = a * (x.to(wide) * keep + kLow * (1 - keep)) + b;
  return y.to(x.dtype());
}

}  // namespace

Tensor dropout(const Tensor& in, double p, bool training) {
  const ErrorScope scope("dropout", in);
  const auto [x] = cast_inputs(cast_list::dropout, in);
  return drops("dropout", x, p, training) ? zeroed(x, x.sizes(), p) : x;
}

Tensor feature_dropout(const Tensor& x, double p, bool training) {
  const ErrorScope scope("feature_dropout", x);
  return drops("feature_dropout", x, p, training) ? zeroed(x, features("feature_dropout", x), p)
                                                  : x;
}

Tensor alpha_dropout(const Tensor& x, double p, bool training) {
  const ErrorScope scope("alpha_dropout", x);
  return drops("alpha_dropout", x, p, training) ? saturated(x, x.sizes(), p) : x;
}

Tensor feature_alpha_dropout(const Tensor& x, double p, bool training) {
  const ErrorScope scope("feature_alpha_dropout", x);
  return drops("feature_alpha_dropout", x, p, training)
             ? saturated(x, features("feature_alpha_dropout", x), p)
             : x;
}

}  // namespace halftape
