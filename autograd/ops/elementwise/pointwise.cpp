#include "halftape/autograd/ops/elementwise/pointwise.h"

#include "halftape/autograd/ops/cast_list.h"
#include "halftape/autograd/ops/elementwise/binary.h"
#include "halftape/autograd/ops/elementwise/unary.h"
#include "halftape/autograd/ops/layout/view.h"
#include "halftape/autograd/tape/error_scope.h"

namespace halftape {
namespace {

/// f of the inputs in the dtype to which they promote, or in float32 if that is a half, which then
/// is the result's dtype.
template <class F, class... T>
Tensor rounded_once(F f, const T&... inputs) {
  const Dtype d = result_type({&inputs...});
  const Tensor y = f(inputs.to(compute_dtype(d))...);
  return is_narrow(d) ? y.to(d) : y;
}

template <class... T>
void check_floating(const char* op, const T&... inputs) {
  const Dtype d = result_type({&inputs...});
  HALFTAPE_CHECK(is_floating_point(d), op, ": tensors of ", d, "; convert them with .to(kFloat32)");
}

Tensor times(const Tensor& x, Scalar value) { return value.to_double() == 1 ? x : mul(x, value); }

}  // namespace

// From the nearer end, so that each is met exactly.
Tensor lerp(const Tensor& a, const Tensor& b, Scalar weight) {
  const ErrorScope scope("lerp", a, b);
  check_floating("lerp", a, b);
  const double w = weight.to_double();
  return rounded_once(
      [w](const Tensor& x, const Tensor& y) {
        return std::abs(w) < 0.5 ? x + w * (y - x) : y - (1 - w) * (y - x);
      },
      a, b);
}
Tensor lerp(const Tensor& a, const Tensor& b, const Tensor& weight) {
  const ErrorScope scope("lerp", a, b, weight);
  check_floating("lerp", a, b, weight);
  return rounded_once(
      [](const Tensor& x, const Tensor& y, const Tensor& w) {
        const Tensor d = y - x;
        return where(abs(w.detach()) < 0.5, x + w * d, y - (1 - w) * d);
      },
      a, b, weight);
}

Tensor addcmul(const Tensor& x_in, const Tensor& a_in, const Tensor& b_in, Scalar value) {
  const ErrorScope scope("addcmul", x_in, a_in, b_in);
  const auto [x, a, b] = cast_inputs(cast_list::addcmul, x_in, a_in, b_in);
  return rounded_once([value](const Tensor& s, const Tensor& p,
                              const Tensor& q) { return s + times(p, value) * q; },
                      x, a, b);
}
Tensor addcdiv(const Tensor& x_in, const Tensor& a_in, const Tensor& b_in, Scalar value) {
  const ErrorScope scope("addcdiv", x_in, a_in, b_in);
  const auto [x, a, b] = cast_inputs(cast_list::addcdiv, x_in, a_in, b_in);
  HALFTAPE_CHECK(a.is_floating_point() || b.is_floating_point(), "addcdiv: ", a.dtype(),
                 " divided by ", b.dtype(), "; convert one with .to(kFloat32)");
  return rounded_once([value](const Tensor& s, const Tensor& p,
                              const Tensor& q) { return s + times(p, value) / q; },
                      x, a, b);
}

Tensor glu(const Tensor& x, int64_t dim) {
  const ErrorScope scope("glu", x);
  check_floating("glu", x);
  HALFTAPE_CHECK(x.dim() > 0, "glu: a 0-dim tensor has no halves");
  const int d = wrap_dim("glu", dim, static_cast<int>(x.dim()));
  const int64_t half = x.size(d) / 2;
  HALFTAPE_CHECK(x.size(d) == 2 * half, "glu: dimension ", d, " of ", x.sizes(), " is odd");
  return rounded_once(
      [=](const Tensor& t) { return slice(t, d, 0, half) * sigmoid(slice(t, d, half, 2 * half)); },
      x);
}

Tensor nan_to_num(const Tensor& x, std::optional<double> nan, std::optional<double> posinf,
                  std::optional<double> neginf) {
  const ErrorScope scope("nan_to_num", x);
  if (!x.is_floating_point()) return x.clone();
  const double largest = traits(x.dtype()).largest;
  const Tensor low = where(isneginf(x), neginf.value_or(-largest), x);
  const Tensor finite = where(isposinf(x), posinf.value_or(largest), low);
  return where(isnan(x), nan.value_or(0), finite);
}

Tensor heaviside(const Tensor& x_in, const Tensor& values) {
  const ErrorScope scope("heaviside", x_in, values);
  const Tensor x = x_in.detach();
  if (x.dtype() == kBool) return where(x, x, values);
  return where(x == 0, values, where(x > 0, 1, where(x < 0, 0, x)));
}

}  // namespace halftape
