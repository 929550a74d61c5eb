#include "halftape/autograd/ops/creation/dropout.h"

#include <cmath>

#include "halftape/autograd/ops/cast_list.h"
#include "halftape/autograd/ops/creation/create.h"
#include "halftape/autograd/ops/elementwise/binary.h"
#include "halftape/autograd/tape/error_scope.h"
#include "halftape/autograd/tape/record.h"
#include "halftape/core/capture/capture.h"
#include "halftape/core/random/draw.h"

namespace halftape {
namespace {

/// f(x, shape of the draw) where x is to lose elements, else x. by_feature: one draw for each
/// feature, of shape (N, C, 1, …).
Tensor dropped(const char* op, const Tensor& x, double p, bool training, bool by_feature,
               Tensor (*f)(const Tensor& x, const Shape& shape, double p)) {
  const ErrorScope scope(op, x);
  HALFTAPE_CHECK(p >= 0 && p <= 1, op, ": probability ", p, " is not between 0 and 1");
  check_floating(op, x);
  if (!training || p == 0) return x;
  HALFTAPE_CHECK(!by_feature || x.dim() >= 2, op,
                 ": features need an input of 2 dimensions or more, (N, C, …), and it is ",
                 x.sizes());
  Shape shape = x.sizes();
  for (int d = 2; by_feature && d < shape.size(); ++d) shape[d] = 1;
  return p == 1 ? x * zeros_like(x) : f(x, shape, p);
}

/// 1 with probability 1 − p, otherwise 0.
Tensor kept(const Tensor& x, const Shape& shape, double p, Dtype dtype) {
  const Array drawn(shape, dtype, x.device());
  draw(drawn, Distribution::Bernoulli, 1 - p);
  return Tensor(drawn);
}

/// By numbers that backward draws once more: a GPU draws faster than it reads a mask. `live`: what
/// the key leads to in a Graph.
Tensor drawn_again(const Tensor& x, double p, const RandomKey& key, const Array& live) {
  const Array y(x.sizes(), x.dtype(), x.device());
  backend(x.device()).run(DropoutTask{y, x.array().to_contiguous(), p, key, live});
  return record("dropout", y, {&x}, [p, key, live](Node&, const Tensor& g) -> Grads {
    return {drawn_again(g, p, key, live)};
  });
}

Tensor zeroed(const Tensor& x, const Shape& shape, double p) {
  if (!x.device().is_cpu() && shape == x.sizes())
    return drawn_again(x, p, random_reserve(x.device(), x.numel()),
                       Capture::random_start_on(x.device()));
  return x * kept(x, shape, p, x.dtype()) / (1 - p);
}

Tensor saturated(const Tensor& x, const Shape& shape, double p) {
  constexpr double kLow = -1.7580993408473766;  // −scale·alpha of SELU
  const double a = 1 / std::sqrt((1 - p) * (1 + p * kLow * kLow)), b = -a * p * kLow;
  const Dtype wide = compute_dtype(x.dtype());
  const Tensor keep = kept(x, shape, p, wide);
  const Tensor y = a * (x.to(wide) * keep + kLow * (1 - keep)) + b;
  return y.to(x.dtype());
}

}  // namespace

Tensor dropout(const Tensor& in, double p, bool training) {
  const auto [x] = cast_inputs(cast_list::dropout, in);
  return dropped("dropout", x, p, training, false, &zeroed);
}
Tensor feature_dropout(const Tensor& x, double p, bool training) {
  return dropped("feature_dropout", x, p, training, true, &zeroed);
}
Tensor alpha_dropout(const Tensor& x, double p, bool training) {
  return dropped("alpha_dropout", x, p, training, false, &saturated);
}
Tensor feature_alpha_dropout(const Tensor& x, double p, bool training) {
  return dropped("feature_alpha_dropout", x, p, training, true, &saturated);
}

}  // namespace halftape
