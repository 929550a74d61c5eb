#include "halftape/core/formula/binary.h"

#include "halftape/autograd/ops/binary.h"
#include "halftape/autograd/ops/create.h"
#include "halftape/autograd/ops/unary.h"
#include "halftape/autograd/ops/view.h"
#include "halftape/autograd/policy.h"
#include "halftape/autograd/record.h"
#include "halftape/core/backend.h"

namespace halftape {

template <>
struct scalar_of<Tensor> {
  using type = double;
};

namespace {

void same_device(const char* op, const Tensor& a, const Tensor& b) {
  HALFTAPE_CHECK(a.device() == b.device(), op, ": tensors on ", a.device(), " and ", b.device(),
                 "; move one with .to(device)");
}

int kind(Dtype d) { return d == kBool ? 0 : halftape::is_floating_point(d) ? 2 : 1; }

/// A number as a tensor beside `like`: it may raise the kind (integer to float), never the
/// precision.
Tensor beside(Scalar s, const Tensor& like) {
  const Dtype d = kind(s.kind()) <= kind(like.dtype()) ? like.dtype()
                  : s.is_floating_point()              ? get_default_dtype()
                                                       : s.kind();
  return Tensor(full({}, s, d, like.device()));
}

template <class Op>
Dtype out_dtype(const Tensor& a, const Tensor& b) {
  if (Op::compares) return kBool;
  const Dtype d = result_type(a, b);
  return needs_floats<Op> && !is_floating_point(d) ? get_default_dtype() : d;
}

/// `a` under a shape that it broadcasts to; `room` is for the view, where one is needed.
const Array& as_large(const Array& a, const Shape& shape, Array& room) {
  return a.shape() == shape ? a : room = a.expand(shape);
}

/// A gradient in the shape and dtype of the input it belongs to: broadcasting undone, promotion
/// undone.
Tensor like_input(const Tensor& g, const Shape& shape, Dtype dtype) {
  return sum_to(g, shape).to(dtype);
}

}  // namespace

Dtype result_type(const Tensor& a, const Tensor& b) {
  // As PyTorch: dimensioned tensors decide; a 0-dim one only counts when its kind (bool < integer <
  // float) is higher.
  const bool scalar_a = a.dim() == 0, scalar_b = b.dim() == 0;
  if (scalar_a == scalar_b) return promote(a.dtype(), b.dtype());
  const Tensor& strong = scalar_a ? b : a;
  const Tensor& weak = scalar_a ? a : b;
  return kind(weak.dtype()) > kind(strong.dtype()) ? promote(strong.dtype(), weak.dtype())
                                                   : strong.dtype();
}

template <class Op>
Tensor binary(const Tensor& a_in, const Tensor& b_in) {
  const auto [a, b] = cast_inputs(Cast::Keep, Op::name, a_in, b_in);
  same_device(Op::name, a, b);
  const Shape shape = broadcast(Op::name, a.sizes(), b.sizes());
  Array y(shape, out_dtype<Op>(a, b), a.device());
  Array a_room, b_room;
  backend(a.device())
      .binary(BinaryOps::index<Op>(), y, as_large(a.array(), shape, a_room),
              as_large(b.array(), shape, b_room));
  if constexpr (Op::compares) {
    return Tensor(std::move(y));
  } else {
    if (!records({&a, &b})) return Tensor(std::move(y));
    // Sums need neither input; a product needs each for the other's gradient; a quotient needs b
    // for both.
    constexpr bool sum = std::is_same_v<Op, Add> || std::is_same_v<Op, Sub>;
    constexpr bool product = std::is_same_v<Op, Mul>, quotient = std::is_same_v<Op, Div>;
    const bool keep_a = !sum && (b.requires_grad() || !(product || quotient));
    const bool keep_b = !sum && (a.requires_grad() || !product);
    return record(Op::name, std::move(y), {&a, &b},
                  [a = Saved::if_wanted(keep_a, a), b = Saved::if_wanted(keep_b, b),
                   a_shape = a.sizes(), b_shape = b.sizes(), a_type = a.dtype(),
                   b_type = b.dtype()](Node& self, const Tensor& g) -> Grads {
                    const Tensor x = a.defined() ? a.tensor(self) : g,
                                 z = b.defined() ? b.tensor(self) : g;
                    Grads d(2);
                    if (self.wants(0)) d[0] = like_input(Op::da(g, x, z), a_shape, a_type);
                    if (self.wants(1)) d[1] = like_input(Op::db(g, x, z), b_shape, b_type);
                    return d;
                  });
  }
}

static constexpr auto entries = BinaryOps::table([](auto op) {
  using Op = typename decltype(op)::type;
  return BinaryEntry{Op::name, Op::compares, &binary<Op>};
});
std::span<const BinaryEntry> binary_ops() { return entries; }

Tensor where(const Tensor& condition, const Tensor& a_in, const Tensor& b_in) {
  const auto [a, b] = cast_inputs(Cast::Keep, "where", a_in, b_in);
  same_device("where", a, b);
  same_device("where", condition, a);
  HALFTAPE_CHECK(condition.dtype() == kBool, "where: the condition is ", condition.dtype(),
                 ", expected bool (compare it with something)");
  const Shape shape =
      broadcast("where", broadcast("where", a.sizes(), b.sizes()), condition.sizes());
  const Array y(shape, result_type(a, b), a.device());
  backend(a.device())
      .where(y, condition.array().expand(shape), a.array().expand(shape), b.array().expand(shape));
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
  return where(condition, beside(a, b), b);
}
Tensor where(const Tensor& condition, const Tensor& a, Scalar b) {
  return where(condition, a, beside(b, a));
}

Tensor add(const Tensor& a, Scalar b) { return affine(a, 1, b); }
Tensor sub(const Tensor& a, Scalar b) {
  return b.is_floating_point() ? affine(a, 1, -b.to_double()) : affine(a, 1, -b.to_int64());
}
Tensor mul(const Tensor& a, Scalar b) {
  if (!b.is_floating_point()) return affine(a, b, 0);
  return affine(a, b, -0.0);  // adding −0 changes no bit, adding +0 would turn −0 into 0
}
Tensor div(const Tensor& a, Scalar b) { return unary<DivScalar>(a, {b.to_double(), 0}); }
Tensor operator-(Scalar a, const Tensor& b) { return affine(b, -1, a); }
Tensor operator/(Scalar a, const Tensor& b) { return unary<ScalarDiv>(b, {a.to_double(), 0}); }

Tensor operator==(const Tensor& a, Scalar b) { return eq(a, beside(b, a)); }
Tensor operator!=(const Tensor& a, Scalar b) { return ne(a, beside(b, a)); }
Tensor operator<(const Tensor& a, Scalar b) { return lt(a, beside(b, a)); }
Tensor operator<=(const Tensor& a, Scalar b) { return le(a, beside(b, a)); }
Tensor operator>(const Tensor& a, Scalar b) { return gt(a, beside(b, a)); }
Tensor operator>=(const Tensor& a, Scalar b) { return ge(a, beside(b, a)); }

}  // namespace halftape
