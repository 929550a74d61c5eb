// Tensor's in-place methods: the bytes change, the version rises, the history goes on.
#include "halftape/autograd/grad_mode.h"
#include "halftape/autograd/ops/binary.h"
#include "halftape/autograd/ops/create.h"
#include "halftape/autograd/ops/view.h"
#include "halftape/autograd/policy.h"
#include "halftape/autograd/record.h"
#include "halftape/core/backend.h"

namespace halftape {
namespace {

/// May `x` be written, given that the new value does or does not carry history?
void check_writable(const char* op, const Tensor& x, bool history) {
  const Array& a = x.array();
  for (int i = 0; i < a.dim(); ++i)
    HALFTAPE_CHECK(
        a.strides()[i] != 0 || a.size(i) <= 1, op, ": the tensor ", a.shape(),
        " was expanded: several of its elements are one place in memory; clone() it first");
  if (!GradMode::is_enabled()) return;
  HALFTAPE_CHECK(!(x.is_leaf() && x.requires_grad()), op,
                 ": a leaf that requires grad cannot be changed in place; ",
                 "use NoGradGuard to update a parameter");
  HALFTAPE_CHECK(!(x.impl()->is_view && (history || x.requires_grad())), op,
                 ": in-place operations on views are not recorded; apply it to the base tensor, or "
                 "use the out-of-place form");
}

/// x ← y: same shape and dtype; x takes over y's history.
Tensor& assign(const char* op, Tensor& x, const Tensor& y) {
  check_writable(op, x, y.requires_grad());
  HALFTAPE_CHECK(y.sizes() == x.sizes(), op, ": the result has shape ", y.sizes(),
                 " and does not fit the tensor ", x.sizes());
  HALFTAPE_CHECK(is_floating_point(x.dtype()) || !is_floating_point(y.dtype()), op, ": a ",
                 y.dtype(), " result does not fit the ", x.dtype(), " tensor");
  const Tensor same = cast(y, x.dtype());
  backend(x.device()).copy(x.array(), same.array());
  x.array().bump_version();
  if (GradMode::is_enabled()) x.impl()->history = same.impl()->history;
  return x;
}

/// x ← value that carries no history; what came before is forgotten.
Tensor& overwritten(Tensor& x) {
  x.array().bump_version();
  if (GradMode::is_enabled()) x.impl()->history = {};
  return x;
}

Tensor& randomize(const char* op, Tensor& x, Distribution kind, double a, double b) {
  check_writable(op, x, false);
  backend(x.device()).random(x.array(), kind, a, b, random_reserve(x.device(), x.numel()));
  return overwritten(x);
}

/// x as a factor whose value the gradient of `other` will need: a copy, since x is about to change.
Tensor factor(const Tensor& x, const Tensor& other) { return records({&other}) ? clone(x) : x; }

Tensor scaled(const Tensor& x, Scalar alpha) { return alpha.to_double() == 1 ? x : mul(x, alpha); }

}  // namespace

// In-place operations run in the dtypes they are given: no policy applies to them.
#define HALFTAPE_PLAIN const PolicyScope plain(nullptr)

Tensor& Tensor::add_(const Tensor& o, Scalar alpha) {
  HALFTAPE_PLAIN;
  return assign("add_", *this, halftape::add(*this, scaled(o, alpha)));
}
Tensor& Tensor::sub_(const Tensor& o, Scalar alpha) {
  HALFTAPE_PLAIN;
  return assign("sub_", *this, halftape::sub(*this, scaled(o, alpha)));
}
Tensor& Tensor::mul_(const Tensor& o) {
  HALFTAPE_PLAIN;
  return assign("mul_", *this, halftape::mul(factor(*this, o), o));
}
Tensor& Tensor::div_(const Tensor& o) {
  HALFTAPE_PLAIN;
  return assign("div_", *this, halftape::div(factor(*this, o), o));
}
Tensor& Tensor::add_(Scalar o) {
  HALFTAPE_PLAIN;
  return assign("add_", *this, halftape::add(*this, o));
}
Tensor& Tensor::sub_(Scalar o) {
  HALFTAPE_PLAIN;
  return assign("sub_", *this, halftape::sub(*this, o));
}
Tensor& Tensor::mul_(Scalar o) {
  HALFTAPE_PLAIN;
  return assign("mul_", *this, halftape::mul(*this, o));
}
Tensor& Tensor::div_(Scalar o) {
  HALFTAPE_PLAIN;
  return assign("div_", *this, halftape::div(*this, o));
}
#undef HALFTAPE_PLAIN

Tensor& Tensor::copy_(const Tensor& source) {
  HALFTAPE_CHECK(broadcasts_to(source.sizes(), sizes()), "copy_: source ", source.sizes(),
                 " does not broadcast to ", sizes());
  const Tensor here = source.device() == device() ? source : source.to(device());
  const Tensor wide = here.sizes() == sizes() ? here : halftape::expand(here, sizes());
  const Tensor same = cast(wide, dtype());
  check_writable("copy_", *this, same.requires_grad());
  backend(device()).copy(array(), same.array());
  array().bump_version();
  // The gradient goes to the source alone; a node of its own, since `same` may be a leaf.
  if (GradMode::is_enabled()) {
    const Tensor tie =
        record("copy_", same.array(), {&same}, [](Node&, const Tensor& g) -> Grads { return {g}; });
    impl_->history = tie.impl()->history;
  }
  return *this;
}

Tensor& Tensor::fill_(Scalar value) {
  check_writable("fill_", *this, false);
  backend(device()).fill(array(), value);
  return overwritten(*this);
}
Tensor& Tensor::uniform_(double from, double to) {
  return randomize("uniform_", *this, Distribution::Uniform, from, to);
}
Tensor& Tensor::normal_(double mean, double std) {
  return randomize("normal_", *this, Distribution::Normal, mean, std);
}
Tensor& Tensor::bernoulli_(double p) {
  HALFTAPE_CHECK(p >= 0 && p <= 1, "bernoulli_: probability ", p, " is not between 0 and 1");
  return randomize("bernoulli_", *this, Distribution::Bernoulli, p, 0);
}

}  // namespace halftape
