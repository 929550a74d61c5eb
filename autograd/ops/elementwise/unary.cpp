#include "halftape/core/formula/unary.h"

#include <algorithm>

#include "halftape/autograd/ops/creation/create.h"
#include "halftape/autograd/ops/elementwise/binary.h"
#include "halftape/autograd/ops/elementwise/unary.h"
#include "halftape/autograd/ops/layout/view.h"
#include "halftape/autograd/tape/error_scope.h"
#include "halftape/autograd/tape/policy.h"
#include "halftape/autograd/tape/record.h"
#include "halftape/core/contract/backend.h"

namespace halftape {

namespace {

/// What the tape needs of a formula.
struct UnaryRule {
  const char* name;
  Saves saves;
  Tensor (*df)(const Tensor& g, const Tensor& saved, const Params<double>& p);
};
constexpr auto unary_rules = UnaryOps::table([](auto op) {
  using Op = typename decltype(op)::type;
  return UnaryRule{Op::name, Op::saves,
                   [](const Tensor& g, const Tensor& saved, const Params<double>& p) -> Tensor {
                     return formula_df<Op>(g, saved, p);
                   }};
});

/// x as `Op` can take it: integers become floats, unless the formula has a meaning for integers.
template <class Op>
Tensor as_supported(const Tensor& x) {
  if (x.is_floating_point()) return x;
  if (!Op::integers) return x.to(get_default_dtype());
  return x.dtype() == kBool ? x.to(kInt64) : x;
}

/// x to compute with these numbers: fractions turn integers into floats.
Tensor beside_numbers(const Tensor& x, std::initializer_list<Scalar> numbers) {
  const bool fractions = std::any_of(numbers.begin(), numbers.end(),
                                     [](const Scalar& s) { return s.is_floating_point(); });
  return fractions && !x.is_floating_point() ? x.to(get_default_dtype()) : x;
}

}  // namespace

template <class Op>
Tensor unary(const Tensor& in, const Params<Scalar>& p) {
  static constexpr CastOp kOp{called<Op>(), Op::cast};
  check_given(Op::name, in, 0);  // policies may call it otherwise
  const auto [cast] = cast_inputs(kOp, in);
  if constexpr (std::is_same_v<Op, formula::Sign>)
    if (cast.dtype() == kBool) return cast.clone();  // true stands for 1
  const Tensor x = as_supported<Op>(cast);
  Array y = empty_like(x.array());
  backend(x.device()).unary(UnaryOps::index<Op>(), y, x.array(), p);
  return detail::recorded_unary(UnaryOps::index<Op>(), x, std::move(y), p);
}

Tensor detail::recorded_unary(OpId op, const Tensor& x, Array y, const Params<Scalar>& p) {
  if (!records({&x})) return Tensor(std::move(y));
  const UnaryRule& rule = unary_rules[static_cast<size_t>(op)];
  const Params<double> q{p.a.to_double(), p.b.to_double()};
  Saved saved;
  if (rule.saves == Saves::Input) saved = Saved(x);
  if (rule.saves == Saves::Output) saved = Saved(y);
  return record(rule.name, y, {&x},
                [saved = std::move(saved), q, op](Node& self, const Tensor& g) -> Grads {
                  if (GradMode::is_enabled())  // the formula, read with Tensors
                    return {unary_rules[static_cast<size_t>(op)].df(
                        g, saved.defined() ? saved.tensor(self) : g, q)};
                  const Array dx = empty_like(g.array());  // the formula, read with floats
                  const Array& s = saved.defined() ? saved.array(self) : g.array();
                  backend(g.device()).unary_grad(op, dx, g.array(), s, q);
                  Grads d(1);  // braces would copy it
                  d[0] = Tensor(dx);
                  return d;
                });
}

// Instantiates unary<Op> for the whole list: the header declares the template only.
static constexpr auto unary_entries = UnaryOps::table([](auto op) {
  using Op = typename decltype(op)::type;
  return UnaryEntry{Op::name, called<Op>(), Op::cast, Op::integers, &unary<Op>};
});
std::span<const UnaryEntry> unary_ops() { return unary_entries; }

Tensor neg(const Tensor& x) {
  check_defined("neg", x);
  HALFTAPE_CHECK(x.dtype() != kBool, "neg: not for bool; to invert a mask use ~ or logical_not()");
  return unary<formula::Neg>(x);
}
Tensor sgn(const Tensor& x) {
  check_defined("sgn", x);
  return unary<formula::Sign>(x);
}
Tensor positive(const Tensor& x) {
  check_defined("positive", x);
  HALFTAPE_CHECK(x.dtype() != kBool, "positive: not for bool");
  return x;
}

Tensor affine(const Tensor& x, Scalar a, Scalar b) {
  check_defined("affine", x);
  return unary<formula::Affine>(beside_numbers(x, {a, b}), {a, b});
}
Tensor deg2rad(const Tensor& x) {
  check_defined("deg2rad", x);
  return affine(x, 0.017453292519943295769, -0.0);
}
Tensor rad2deg(const Tensor& x) {
  check_defined("rad2deg", x);
  return affine(x, 57.295779513082320877, -0.0);
}

Tensor pow(const Tensor& x, Scalar exponent) {
  check_defined("pow", x);
  HALFTAPE_CHECK(x.is_floating_point() || exponent.is_floating_point() || exponent.to_int64() >= 0,
                 "pow: ", x.dtype(), " to the negative integer power ", exponent.to_int64(),
                 "; convert the tensor with .to(kFloat32)");
  const Tensor in = beside_numbers(x, {exponent});
  if (exponent.to_double() == 2) return square(in);
  return unary<formula::PowScalar>(in, {exponent, 0});
}

namespace {
/// Throws if an integer dtype has no number within the bounds. Other bounds may lie outside of it.
void check_bounds(const char* op, Dtype dtype, std::optional<Scalar> min,
                  std::optional<Scalar> max) {
  if (is_floating_point(dtype)) return;
  if (min && min->to_int64() > 0) detail::check_fits(op, *min, dtype);
  if (!max || max->to_int64() >= 0) return;
  HALFTAPE_CHECK(dtype != kUInt8, op, ": max ", max->to_int64(), " is below all numbers of uint8");
  detail::check_fits(op, *max, dtype);
}

/// A bound as the dtype holds it, so that a number may lie at it.
Scalar bound_in(Dtype dtype, Scalar bound) {
  if (!is_narrow(dtype)) return bound;
  return visit(dtype, [&]<class T>(Type<T>) -> Scalar {
    return static_cast<double>(static_cast<T>(bound.to_double()));
  });
}
}  // namespace

Tensor clamp(const Tensor& x, std::optional<Scalar> min, std::optional<Scalar> max) {
  check_defined("clamp", x);
  HALFTAPE_CHECK(min || max, "clamp: at least one of min and max is needed");
  constexpr double inf = std::numeric_limits<double>::infinity(),
                   nan = std::numeric_limits<double>::quiet_NaN();
  const Tensor in = beside_numbers(x, {min.value_or(0), max.value_or(0)});
  for (const auto& bound : {min, max})
    if (bound && std::isnan(bound->to_double())) return affine(in, 0, *bound);
  check_bounds("clamp", in.dtype(), min, max);
  // A bound that is left out is NaN, beyond which no number lies, and at which none does.
  const bool real = in.is_floating_point();
  const Scalar high = max.value_or(real ? nan : inf), low = min.value_or(real ? nan : -inf);
  // Where the bounds cross, the upper one wins.
  const bool crossed = low.is_floating_point() || high.is_floating_point()
                           ? low.to_double() > high.to_double()
                           : low.to_int64() > high.to_int64();
  return unary<formula::Clamp>(
      in, {bound_in(in.dtype(), crossed ? high : low), bound_in(in.dtype(), high)});
}

Tensor logit(const Tensor& x, std::optional<double> eps) {
  check_defined("logit", x);
  if (!eps) return unary<formula::Logit>(x);
  HALFTAPE_CHECK(*eps >= 0 && *eps <= 0.5, "logit: eps ", *eps, " is not between 0 and 1/2");
  // In float32: 1 − eps would be 1 in half.
  const bool narrow = is_narrow(x.dtype());
  const Tensor in = narrow ? widened(x) : beside_numbers(x, {*eps});
  const Tensor above = where(in < *eps, *eps, in);  // not clamp(): at eps itself there is a slope
  const Tensor y = unary<formula::Logit>(where(above > 1 - *eps, 1 - *eps, above));
  return narrow ? y.to(x.dtype()) : y;
}

Tensor relu6(const Tensor& x) {
  check_defined("relu6", x);
  return hardtanh(x, 0, 6);
}
Tensor leaky_relu(const Tensor& x, Scalar slope) {
  return unary<formula::LeakyRelu>(x, {slope, 0});
}
Tensor elu(const Tensor& x, Scalar alpha, Scalar scale, Scalar input_scale) {
  check_defined("elu", x);
  if (input_scale.to_double() == 1) return unary<formula::Elu>(x, {alpha, scale});
  const Tensor in = widened(x);
  const Tensor below = expm1(where(in > 0, 0, in) * input_scale.to_double());
  const Tensor y = where(in > 0, in * scale, below * (alpha.to_double() * scale.to_double()));
  return is_narrow(x.dtype()) ? y.to(x.dtype()) : y;
}
Tensor selu(const Tensor& x) {
  check_defined("selu", x);
  return unary<formula::Elu>(x, {1.6732632423543772848, 1.0507009873554804934});
}
Tensor celu(const Tensor& x, Scalar alpha) {
  HALFTAPE_CHECK(alpha.to_double() != 0, "celu: alpha must not be 0");
  return unary<formula::Celu>(x, {alpha, 0});
}
Tensor gelu(const Tensor& x, const std::string& approximate) {
  check_defined("gelu", x);
  HALFTAPE_CHECK(approximate == "none" || approximate == "tanh", "gelu: approximate is \"",
                 approximate, "\", expected \"none\" or \"tanh\"");
  return approximate == "none" ? unary<formula::Gelu>(x) : unary<formula::GeluTanh>(x);
}
Tensor softplus(const Tensor& x, Scalar beta, Scalar threshold) {
  HALFTAPE_CHECK(beta.to_double() != 0, "softplus: beta must not be 0");
  return unary<formula::Softplus>(x, {beta, threshold});
}
Tensor hardtanh(const Tensor& x, Scalar min_val, Scalar max_val) {
  check_defined("hardtanh", x);
  HALFTAPE_CHECK(min_val.to_double() <= max_val.to_double(), "hardtanh: min_val ",
                 min_val.to_double(), " is above max_val ", max_val.to_double());
  const Tensor in = beside_numbers(x, {min_val, max_val});
  check_bounds("hardtanh", in.dtype(), min_val, max_val);
  return unary<formula::Clamp>(in, {bound_in(in.dtype(), min_val), bound_in(in.dtype(), max_val)});
}
Tensor softshrink(const Tensor& x, Scalar lambd) {
  HALFTAPE_CHECK(lambd.to_double() >= 0, "softshrink: lambd ", lambd.to_double(), " is negative");
  return unary<formula::Softshrink>(x, {lambd, 0});
}
Tensor hardshrink(const Tensor& x, Scalar lambd) {
  return unary<formula::Hardshrink>(x, {lambd, 0});
}
Tensor threshold(const Tensor& x, Scalar threshold, Scalar value) {
  check_defined("threshold", x);
  const Tensor in = beside_numbers(x, {threshold, value});
  if (!in.is_floating_point()) detail::check_fits("threshold", value, in.dtype());
  return unary<formula::Threshold>(in, {threshold, value});
}

}  // namespace halftape
