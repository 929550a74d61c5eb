#include "halftape/core/formula/binary.h"

#include "halftape/autograd/ops/cast_list.h"
#include "halftape/autograd/ops/creation/create.h"
#include "halftape/autograd/ops/elementwise/binary.h"
#include "halftape/autograd/ops/elementwise/unary.h"
#include "halftape/autograd/ops/layout/dims.h"
#include "halftape/autograd/ops/layout/view.h"
#include "halftape/autograd/tape/error_scope.h"
#include "halftape/autograd/tape/record.h"
#include "halftape/core/contract/backend.h"

namespace halftape {

namespace {

void same_device(const char* op, const Tensor& a, const Tensor& b) {
  HALFTAPE_CHECK(a.device() == b.device(), op, ": tensors on ", a.device(), " and ", b.device(),
                 "; move one with .to(device)");
}

int kind(Dtype d) { return d == kBool ? 0 : halftape::is_floating_point(d) ? 2 : 1; }

/// A number as a tensor to compute with `like`: it may raise the kind (integer to float), never the
/// precision.
Tensor beside(Scalar s, const Tensor& like) {
  const Dtype d = kind(s.kind()) <= kind(like.dtype()) ? like.dtype()
                  : s.is_floating_point()              ? get_default_dtype()
                                                       : s.kind();
  return Tensor(full({}, s, d, like.device()));
}

/// Whether a whole number is none of the integers of `like`, and would be taken for another.
bool is_beyond(Scalar s, const Tensor& like) {
  if (kind(s.kind()) != 1 || kind(like.dtype()) != 1) return false;
  return visit(like.dtype(), [&](auto t) {
    using T = typename decltype(t)::type;
    if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>)
      return !std::in_range<T>(s.to_int64());
    else
      return false;
  });
}
Tensor beside_checked(const char* op, Scalar s, const Tensor& like) {
  HALFTAPE_CHECK(!is_beyond(s, like), op, ": ", s.to_int64(), " is no number of ", like.dtype(),
                 "; convert the tensor with .to(kInt64)");
  return beside(s, like);
}

void check_sub(Dtype a, Dtype b) {
  HALFTAPE_CHECK(a != kBool && b != kBool,
                 "sub: not for bool; to invert a mask use ~ or logical_not()");
}

template <class Op>
Dtype out_dtype(const Tensor& a, const Tensor& b) {
  const Dtype d = result_type(a, b);
  if (std::is_same_v<Op, formula::Sub>) check_sub(a.dtype(), b.dtype());
  if (Op::numbers) HALFTAPE_CHECK(d != kBool, Op::name, ": not for bool");
  if (Op::of_integers)
    HALFTAPE_CHECK(!is_floating_point(d), Op::name, ": tensors of ", a.dtype(), " and ", b.dtype(),
                   "; only integers and bool have bits");
  if (Op::compares) return kBool;
  return Op::of_floats && !is_floating_point(d) ? get_default_dtype() : d;
}

/// `a` under a shape that it broadcasts to; `room` is for the view, where one is needed.
const Array& as_large(const Array& a, const Shape& shape, Array& room) {
  return a.shape() == shape ? a : room = a.expand(shape);
}

/// A gradient in the shape and dtype of its input: undoes broadcasting and promotion.
Tensor like_input(Tensor g, const Shape& shape, Dtype dtype) {
  if (g.sizes() != shape) g = sum_to(g, shape);
  if (g.dtype() != dtype) g = g.to(dtype);
  return g;
}

/// What the tape needs of a formula: sums need neither input, as quotients without their fraction,
/// whose derivatives are 0; a product needs each for the other's gradient; a quotient b for both.
struct BinaryRule {
  const char* name;
  bool neither, product, quotient;
  Tensor (*da)(const Tensor& g, const Tensor& a, const Tensor& b);
  Tensor (*db)(const Tensor& g, const Tensor& a, const Tensor& b);
};
template <class Op, class... Others>
constexpr bool is_any = (std::is_same_v<Op, Others> || ...);
template <class Op>
constexpr BinaryRule binary_rule = {
    Op::name,
    is_any<Op, formula::Add, formula::Sub, formula::FloorDivide, formula::TruncDivide>,
    is_any<Op, formula::Mul>,
    is_any<Op, formula::Div>,
    [](const Tensor& g, const Tensor& u, const Tensor& v) -> Tensor { return Op::da(g, u, v); },
    [](const Tensor& g, const Tensor& u, const Tensor& v) -> Tensor { return Op::db(g, u, v); }};

template <class Kept>
Tensor recorded_binary(const BinaryRule& rule, const Tensor& a, const Tensor& b, Array&& y) {
  const bool keep_a = !rule.neither && (b.requires_grad() || !(rule.product || rule.quotient));
  const bool keep_b = !rule.neither && (a.requires_grad() || !rule.product);
  return record(rule.name, std::move(y), {&a, &b},
                [&rule, kept_a = Kept::if_wanted(keep_a, a), kept_b = Kept::if_wanted(keep_b, b),
                 a_shape = a.sizes(), b_shape = b.sizes(), a_type = a.dtype(),
                 b_type = b.dtype()](Node& self, const Tensor& g_in) -> Grads {
                  Tensor g = g_in, u, v;
                  if (kept_a.defined()) u = kept_a.tensor(self);
                  if (kept_b.defined()) v = kept_b.tensor(self);
                  if (!rule.neither && !rule.product)  // of several steps: rounds once
                    for (Tensor* t : {&g, &u, &v})
                      if (t->defined() && is_narrow(t->dtype())) *t = widened(*t);
                  Grads d(2);
                  if (self.wants(0)) d[0] = like_input(rule.da(g, u, v), a_shape, a_type);
                  if (self.wants(1)) d[1] = like_input(rule.db(g, u, v), b_shape, b_type);
                  return d;
                });
}

}  // namespace

Dtype result_type(std::initializer_list<const Tensor*> inputs) {
  // As PyTorch: dimensioned tensors decide; a 0-dim one only counts when its kind (bool < integer <
  // float) is higher.
  std::optional<Dtype> strong, weak;
  for (const Tensor* t : inputs) {
    std::optional<Dtype>& d = t->dim() == 0 ? weak : strong;
    d = d ? promote(*d, t->dtype()) : t->dtype();
  }
  if (!strong || !weak) return strong ? *strong : *weak;
  return kind(*weak) > kind(*strong) ? promote(*strong, *weak) : *strong;
}

bool can_cast(Dtype from, Dtype to) { return kind(from) <= kind(to); }

template <class Op>
Tensor binary(const Tensor& a_in, const Tensor& b_in) {
  static constexpr CastOp kOp{called<Op>(), Op::cast};
  const auto [a, b] = cast_inputs(kOp, a_in, b_in);
  same_device(Op::name, a, b);
  const Shape shape = broadcast(Op::name, a.sizes(), b.sizes());
  if constexpr (Op::compares) {  // floats in the dtype that others would compute in
    const Dtype d = result_type({&a, &b});
    if (a.dtype() != b.dtype() && is_floating_point(a.dtype()) && is_floating_point(b.dtype()) &&
        d != promote(a.dtype(), b.dtype()))
      return binary<Op>(Tensor(a.array().to(d)), Tensor(b.array().to(d)));
  }
  Array y(shape, out_dtype<Op>(a, b), a.device());
  Array a_room, b_room;
  backend(a.device())
      .binary(BinaryOps::index<Op>(), y, as_large(a.array(), shape, a_room),
              as_large(b.array(), shape, b_room));
  if constexpr (Op::compares || Op::of_integers) {
    return Tensor(std::move(y));
  } else {
    if (!records({&a, &b})) return Tensor(std::move(y));
    using Kept = std::conditional_t<binary_rule<Op>.neither, NeverSaved, Saved>;
    return recorded_binary<Kept>(binary_rule<Op>, a, b, std::move(y));
  }
}

static constexpr auto binary_entries = BinaryOps::table([](auto op) {
  using Op = typename decltype(op)::type;
  return BinaryEntry{Op::name, called<Op>(), Op::compares, Op::cast, &binary<Op>};
});
std::span<const BinaryEntry> binary_ops() { return binary_entries; }

Tensor where(const Tensor& condition, const Tensor& a_in, const Tensor& b_in) {
  check_defined("where", condition, a_in, b_in);
  const auto [a, b] = cast_inputs(cast_list::where, a_in, b_in);
  same_device("where", a, b);
  same_device("where", condition, a);
  HALFTAPE_CHECK(condition.dtype() == kBool, "where: the condition is ", condition.dtype(),
                 ", expected bool (compare it with something)");
  const Shape shape =
      broadcast("where", broadcast("where", a.sizes(), b.sizes()), condition.sizes());
  const Array y(shape, result_type(a, b), a.device());
  backend(a.device())
      .where(y, condition.array().expand(shape), a.array().expand(shape), b.array().expand(shape));
  if (!records({&a, &b})) return Tensor(y);
  return record("where", y, {&a, &b},
                [c = Saved(condition), a_shape = a.sizes(), b_shape = b.sizes(), a_type = a.dtype(),
                 b_type = b.dtype()](Node& self, const Tensor& g) -> Grads {
                  const Tensor taken = c.tensor(self);
                  Grads d(2);
                  if (self.wants(0)) d[0] = like_input(where(taken, g, 0), a_shape, a_type);
                  if (self.wants(1)) d[1] = like_input(where(taken, 0, g), b_shape, b_type);
                  return d;
                });
}
Tensor where(const Tensor& condition, Scalar a, const Tensor& b) {
  return where(condition, beside_checked("where", a, b), b);
}
Tensor where(const Tensor& condition, const Tensor& a, Scalar b) {
  return where(condition, a, beside_checked("where", b, a));
}

Tensor where(const Tensor& condition, Scalar a, Scalar b) {
  const Dtype d = a.is_floating_point() || b.is_floating_point() ? get_default_dtype()
                                                                 : promote(a.kind(), b.kind());
  return where(condition, full({}, a, TensorOptions(d).device(condition.device())),
               full({}, b, TensorOptions(d).device(condition.device())));
}

namespace {

/// a + alpha·b or a − alpha·b, computed in the dtype to which both promote, and rounded once.
Tensor with_alpha(const char* op, Tensor (*sum)(const Tensor&, const Tensor&), const Tensor& a,
                  const Tensor& b, Scalar alpha) {
  if (!alpha.is_floating_point() && alpha.to_int64() == 1) return sum(a, b);
  const Dtype d = result_type(a, b);
  HALFTAPE_CHECK(is_floating_point(d) || !alpha.is_floating_point(), op, ": alpha is ",
                 alpha.to_double(), ", but the tensors are ", d, ", which need a whole one");
  if (alpha.to_double() == 1) return sum(a, b);
  const Dtype wide = compute_dtype(d);
  const Tensor y = sum(a.to(wide), mul(b.to(wide), alpha));
  return is_narrow(d) ? y.to(d) : y;
}

bool bools(const Tensor& a, Scalar b) { return a.dtype() == kBool && b.kind() == kBool; }

/// Of two numbers beside x.
Scalar product(const Tensor& x, Scalar a, Scalar b) {
  if (!b.is_floating_point() && b.to_int64() == 1) return a;  // which may be a bool
  if (x.is_floating_point() || a.is_floating_point() || b.is_floating_point())
    return a.to_double() * b.to_double();
  return static_cast<int64_t>(static_cast<uint64_t>(a.to_int64()) *
                              static_cast<uint64_t>(b.to_int64()));
}

}  // namespace

Tensor add(const Tensor& a, Scalar b) {
  check_defined("add", a);
  return bools(a, b) ? add(a, beside(b, a)) : affine(a, 1, b);
}
Tensor sub(const Tensor& a, Scalar b) {
  check_defined("sub", a);
  check_sub(a.dtype(), b.kind());
  return affine(a, 1, product(a, b, -1));
}
Tensor mul(const Tensor& a, Scalar b) {
  check_defined("mul", a);
  if (bools(a, b)) return mul(a, beside(b, a));
  if (!a.is_floating_point() && !b.is_floating_point()) return affine(a, b, 0);
  return affine(a, b, -0.0);  // adding −0 changes no bit, adding +0 would turn −0 into 0
}
Tensor div(const Tensor& a, Scalar b) {
  check_defined("div", a);
  return unary<formula::DivScalar>(a, {b, 0});
}
Tensor operator/(Scalar a, const Tensor& b) {
  check_defined("div", b);
  return unary<formula::ScalarDiv>(b, {a, 0});
}

Tensor add(const Tensor& a, const Tensor& b, Scalar alpha) {
  check_defined("add", a, b);
  return with_alpha("add", add, a, b, alpha);
}
Tensor sub(const Tensor& a, const Tensor& b, Scalar alpha) {
  check_defined("sub", a, b);
  return with_alpha("sub", sub, a, b, alpha);
}
Tensor add(const Tensor& a, Scalar b, Scalar alpha) {
  check_defined("add", a);
  return add(a, product(a, b, alpha));
}
Tensor sub(const Tensor& a, Scalar b, Scalar alpha) {
  check_defined("sub", a);
  return sub(a, product(a, b, alpha));
}
Tensor rsub(const Tensor& a, const Tensor& b, Scalar alpha) {
  const ErrorScope scope("rsub", a, b);
  return sub(b, a, alpha);
}
Tensor rsub(const Tensor& a, Scalar b, Scalar alpha) {
  const ErrorScope scope("rsub", a);
  check_sub(a.dtype(), b.kind());
  return affine(a, product(a, alpha, -1), b);
}

Tensor div(const Tensor& a, const Tensor& b, std::optional<std::string_view> rounding_mode) {
  const ErrorScope scope("div", a, b);
  if (!rounding_mode) return div(a, b);
  HALFTAPE_CHECK(rounding_mode == "trunc" || rounding_mode == "floor", "div: rounding_mode is \"",
                 *rounding_mode, "\", expected \"trunc\" or \"floor\"");
  return rounding_mode == "trunc" ? binary<formula::TruncDivide>(a, b)
                                  : binary<formula::FloorDivide>(a, b);
}
Tensor div(const Tensor& a, Scalar b, std::optional<std::string_view> rounding_mode) {
  return rounding_mode ? div(a, beside_checked("div", b, a), rounding_mode) : div(a, b);
}

Tensor pow(Scalar a, const Tensor& b) {
  check_defined("pow", b);
  if (a.is_floating_point() || b.is_floating_point()) return unary<formula::ScalarPow>(b, {a, 0});
  return pow(beside(a, b), b);
}
Tensor remainder(Scalar a, const Tensor& b) {
  check_defined("remainder", b);
  return remainder(beside_checked("remainder", a, b), b);
}
Tensor xlogy(Scalar a, const Tensor& b) {
  check_defined("xlogy", b);
  return xlogy(beside(a.to_double(), b), b);
}

Tensor clamp_min(const Tensor& x, const Tensor& min) {
  const ErrorScope scope("clamp_min", x, min);
  return maximum(x, min);
}
Tensor clamp_max(const Tensor& x, const Tensor& max) {
  const ErrorScope scope("clamp_max", x, max);
  return minimum(x, max);
}
Tensor clamp(const Tensor& x, const std::optional<Tensor>& min, const std::optional<Tensor>& max) {
  const ErrorScope scope("clamp", x);
  HALFTAPE_CHECK(min || max, "clamp: at least one of min and max is needed");
  const Tensor y = min ? clamp_min(x, *min) : x;
  return max ? clamp_max(y, *max) : y;
}

Tensor prelu(const Tensor& x, const Tensor& weight) {
  const ErrorScope scope("prelu", x, weight);
  if (weight.numel() == 1) return binary<formula::Prelu>(x, detail::reshaped(weight, {}));
  HALFTAPE_CHECK(x.dim() >= 2 && weight.dim() == 1 && weight.size(0) == x.size(1), "prelu: weight ",
                 weight.sizes(), " for ", x.sizes(),
                 "; expected one element, or (C) for an input (N, C, …)");
  Shape channels = Dims::filled(static_cast<int>(x.dim() - 1), 1);
  channels[0] = weight.size(0);
  return binary<formula::Prelu>(x, detail::reshaped(weight, channels));
}

#define HALFTAPE_WITH_NUMBER(function, number) \
  Tensor function(const Tensor& a, Scalar b) { \
    check_defined(#function, a);               \
    return function(a, number);                \
  }
HALFTAPE_WITH_NUMBER(floor_divide, beside_checked("floor_divide", b, a))
HALFTAPE_WITH_NUMBER(fmod, beside_checked("fmod", b, a))
HALFTAPE_WITH_NUMBER(remainder, beside_checked("remainder", b, a))
HALFTAPE_WITH_NUMBER(xlogy, beside(b.to_double(), a))  // floating-point numbers in any case
HALFTAPE_WITH_NUMBER(copysign, beside(b.to_double(), a))
HALFTAPE_WITH_NUMBER(bitwise_and, beside(b, a))
HALFTAPE_WITH_NUMBER(bitwise_or, beside(b, a))
HALFTAPE_WITH_NUMBER(bitwise_xor, beside(b, a))
#undef HALFTAPE_WITH_NUMBER

#define HALFTAPE_COMPARED_WITH_NUMBER(function)            \
  Tensor function(const Tensor& a, Scalar b) {             \
    check_defined(#function, a);                           \
    if (is_beyond(b, a)) return function(a.to(kInt64), b); \
    return function(a, beside(b, a));                      \
  }
HALFTAPE_COMPARED_WITH_NUMBER(eq)
HALFTAPE_COMPARED_WITH_NUMBER(ne)
HALFTAPE_COMPARED_WITH_NUMBER(lt)
HALFTAPE_COMPARED_WITH_NUMBER(le)
HALFTAPE_COMPARED_WITH_NUMBER(gt)
HALFTAPE_COMPARED_WITH_NUMBER(ge)
#undef HALFTAPE_COMPARED_WITH_NUMBER

Tensor logical_not(const Tensor& x) {
  const ErrorScope scope("logical_not", x);
  return eq(x, 0);
}
Tensor bitwise_not(const Tensor& x) {
  const ErrorScope scope("bitwise_not", x);
  HALFTAPE_CHECK(!x.is_floating_point(), "bitwise_not: a tensor of ", x.dtype(),
                 "; only integers and bool have bits");
  return x.dtype() == kBool ? logical_not(x) : affine(x, -1, -1);
}

constexpr double kInf = std::numeric_limits<double>::infinity();
Tensor isnan(const Tensor& x) {
  const ErrorScope scope("isnan", x);
  return ne(x, x);
}
Tensor isinf(const Tensor& x) {
  const ErrorScope scope("isinf", x);
  return eq(abs(x.detach()), kInf);
}
Tensor isfinite(const Tensor& x) {
  const ErrorScope scope("isfinite", x);
  return lt(abs(x.detach()), kInf);
}
Tensor isposinf(const Tensor& x) {
  const ErrorScope scope("isposinf", x);
  return eq(x, kInf);
}
Tensor isneginf(const Tensor& x) {
  const ErrorScope scope("isneginf", x);
  return eq(x, -kInf);
}

}  // namespace halftape
