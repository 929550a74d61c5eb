#include "halftape/core/formula/unary.h"

#include "halftape/autograd/ops/binary.h"
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

/// What the rule of `Op` keeps: its input, its output, or nothing.
template <class Op>
Saved save_for(const Tensor& x, const Array& y) {
  if constexpr (Op::saves == Saves::Input)
    return Saved(x);
  else if constexpr (Op::saves == Saves::Output)
    return Saved(y);
  else
    return {};
}

/// Without gradients in integers, a formula on integers means: on the floats they convert to.
template <class Op>
Tensor as_supported(const Tensor& x) {
  if (x.is_floating_point() || (works_on_integers<Op> && x.dtype() != kBool)) return x;
  return x.to(get_default_dtype());
}

}  // namespace

template <class Op>
Tensor unary(const Tensor& in, Params<double> p) {
  const auto [cast] = cast_inputs(Op::cast, Op::name, in);
  const Tensor x = as_supported<Op>(cast);
  Array y = empty_like(x.array());
  backend(x.device()).unary(UnaryOps::index<Op>(), y, x.array(), p);
  if (!records({&x})) return Tensor(std::move(y));
  return record(Op::name, y, {&x},
                [saved = save_for<Op>(x, y), p](Node& self, const Tensor& g) -> Grads {
                  if (GradMode::is_enabled())  // the formula, read with Tensors
                    return {formula_df<Op>(g, saved.defined() ? saved.tensor(self) : g, p)};
                  const Array dx = empty_like(g.array());  // the formula, read with floats
                  const Array& s = saved.defined() ? saved.array(self) : g.array();
                  backend(g.device()).unary_grad(UnaryOps::index<Op>(), dx, g.array(), s, p);
                  return {Tensor(dx)};
                });
}

// Instantiates unary<Op> for the whole list, which is why the header can do with a declaration.
static constexpr auto entries = UnaryOps::table([](auto op) {
  using Op = typename decltype(op)::type;
  return UnaryEntry{Op::name, Op::cast, works_on_integers<Op>, &unary<Op>};
});
std::span<const UnaryEntry> unary_ops() { return entries; }

Tensor gelu(const Tensor& x, const std::string& approximate) {
  HALFTAPE_CHECK(approximate == "none" || approximate == "tanh", "gelu: approximate is \"",
                 approximate, "\", expected \"none\" or \"tanh\"");
  return approximate == "none" ? unary<Gelu>(x) : unary<GeluTanh>(x);
}

Tensor affine(const Tensor& x, Scalar a, Scalar b) {
  const bool fractions = a.is_floating_point() || b.is_floating_point();
  const bool integer = x.defined() && !x.is_floating_point();
  const Tensor in = integer && fractions            ? x.to(get_default_dtype())
                    : integer && x.dtype() == kBool ? x.to(kInt64)
                                                    : x;
  return unary<Affine>(in, {a.to_double(), b.to_double()});
}

Tensor pow(const Tensor& x, Scalar exponent) {
  if (exponent.to_double() == 2) return square(x);
  return unary<PowScalar>(x, {exponent.to_double(), 0});
}

Tensor clamp(const Tensor& x, std::optional<Scalar> min, std::optional<Scalar> max) {
  HALFTAPE_CHECK(min || max, "clamp: at least one of min and max is needed");
  constexpr double inf = std::numeric_limits<double>::infinity();
  return unary<Clamp>(x, {min ? min->to_double() : -inf, max ? max->to_double() : inf});
}

}  // namespace halftape
