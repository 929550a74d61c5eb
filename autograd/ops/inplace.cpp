// Tensor's in-place methods: the bytes change, the version rises, the history goes on.
#include "halftape/autograd/grad_mode.h"
#include "halftape/autograd/indexing.h"
#include "halftape/autograd/ops/binary.h"
#include "halftape/autograd/ops/create.h"
#include "halftape/autograd/ops/index.h"
#include "halftape/autograd/ops/mask.h"
#include "halftape/autograd/ops/matmul.h"
#include "halftape/autograd/ops/scan.h"
#include "halftape/autograd/ops/view.h"
#include "halftape/autograd/policy.h"
#include "halftape/autograd/record.h"
#include "halftape/core/backend.h"

namespace halftape {
namespace {

/// May `x` be written, given that the new value does or does not carry history?
void check_writable(const char* op, const Tensor& x, bool history) {
  HALFTAPE_CHECK(!x.is_inference() || InferenceMode::is_enabled(), op, ": the tensor ", x.sizes(),
                 " was made in InferenceMode and cannot be changed outside; clone() it first");
  const Array& a = x.array();
  for (int i = 0; i < a.dim(); ++i)
    HALFTAPE_CHECK(
        a.strides()[i] != 0 || a.size(i) <= 1, op, ": the tensor ", a.shape(),
        " was expanded: several of its elements are one place in memory; clone() it first");
  if (!GradMode::is_enabled()) return;
  const auto leaf = [](const Tensor& t) { return t.is_leaf() && t.requires_grad(); };
  HALFTAPE_CHECK(!leaf(x) && !(x.impl()->base && leaf(Tensor(x.impl()->base))), op,
                 ": a leaf that requires grad, or a view of it, cannot be changed in place; ",
                 "use NoGradGuard to update a parameter");
  HALFTAPE_CHECK(!x.impl()->is_view || x.impl()->base || !(history || x.requires_grad()), op,
                 ": the view ", x.sizes(), " was made under NoGradGuard: a recorded change of it ",
                 "would not reach its base; make the view while recording");
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
  take_history(x, same);
  return x;
}

/// x ← constants: no gradient reaches what it was before.
Tensor& overwritten(const char* op, Tensor& x) {
  x.array().bump_version();
  take_history(x, x.impl()->base ? Tensor(x.array())
                                 : record(op, x.array(), {&x},
                                          [](Node&, const Tensor&) -> Grads { return {{}}; }));
  return x;
}

Tensor& randomize(const char* op, Tensor& x, Distribution kind, double a, double b) {
  check_writable(op, x, false);
  backend(x.device()).random(x.array(), kind, a, b, random_reserve(x.device(), x.numel()));
  return overwritten(op, x);
}

/// x as a factor whose value the gradient of `other` will need: a copy, since x is about to change.
Tensor factor(const Tensor& x, const Tensor& other) { return records({&other}) ? clone(x) : x; }

Tensor scaled(const Tensor& x, Scalar alpha) { return alpha.to_double() == 1 ? x : mul(x, alpha); }

}  // namespace

void take_history(Tensor& x, const Tensor& value) {
  if (!GradMode::is_enabled()) return;
  if (!x.impl()->base) return x.impl()->set_history(value.impl()->history);
  Tensor base(x.impl()->base);
  if (base.requires_grad() || value.requires_grad())
    base.impl()->set_history(history_of_write(base, x, value));  // x takes its own from there
}

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

Tensor& Tensor::index_put_(const std::vector<indexing::TensorIndex>& indices, const Tensor& values,
                           bool accumulate) {
  HALFTAPE_PLAIN;
  return assign("index_put_", *this, halftape::index_put(*this, indices, values, accumulate));
}
Tensor& Tensor::index_put_(const std::vector<indexing::TensorIndex>& indices, Scalar value,
                           bool accumulate) {
  HALFTAPE_PLAIN;
  return assign("index_put_", *this, halftape::index_put(*this, indices, value, accumulate));
}
Tensor& Tensor::index_put_(std::initializer_list<indexing::TensorIndex> indices,
                           const Tensor& values, bool accumulate) {
  return index_put_(std::vector(indices), values, accumulate);
}
Tensor& Tensor::index_put_(std::initializer_list<indexing::TensorIndex> indices, Scalar value,
                           bool accumulate) {
  return index_put_(std::vector(indices), value, accumulate);
}
Tensor& Tensor::index_add_(int64_t d, const Tensor& i, const Tensor& source, Scalar alpha) {
  HALFTAPE_PLAIN;
  return assign("index_add_", *this, halftape::index_add(*this, d, i, source, alpha));
}
Tensor& Tensor::index_copy_(int64_t d, const Tensor& i, const Tensor& source) {
  HALFTAPE_PLAIN;
  return assign("index_copy_", *this, halftape::index_copy(*this, d, i, source));
}
Tensor& Tensor::index_fill_(int64_t d, const Tensor& i, Scalar value) {
  HALFTAPE_PLAIN;
  return assign("index_fill_", *this, halftape::index_fill(*this, d, i, value));
}
Tensor& Tensor::index_fill_(int64_t d, const Tensor& i, const Tensor& value) {
  HALFTAPE_PLAIN;
  return assign("index_fill_", *this, halftape::index_fill(*this, d, i, value));
}
Tensor& Tensor::scatter_(int64_t d, const Tensor& i, const Tensor& src) {
  HALFTAPE_PLAIN;
  return assign("scatter_", *this, halftape::scatter(*this, d, i, src));
}
Tensor& Tensor::scatter_(int64_t d, const Tensor& i, Scalar value) {
  HALFTAPE_PLAIN;
  return assign("scatter_", *this, halftape::scatter(*this, d, i, value));
}
Tensor& Tensor::scatter_add_(int64_t d, const Tensor& i, const Tensor& src) {
  HALFTAPE_PLAIN;
  return assign("scatter_add_", *this, halftape::scatter_add(*this, d, i, src));
}
Tensor& Tensor::masked_fill_(const Tensor& mask, Scalar value) {
  HALFTAPE_PLAIN;
  return assign("masked_fill_", *this, halftape::masked_fill(*this, mask, value));
}
Tensor& Tensor::masked_fill_(const Tensor& mask, const Tensor& value) {
  HALFTAPE_PLAIN;
  return assign("masked_fill_", *this, halftape::masked_fill(*this, mask, value));
}
Tensor& Tensor::masked_scatter_(const Tensor& mask, const Tensor& source) {
  HALFTAPE_PLAIN;
  return assign("masked_scatter_", *this, halftape::masked_scatter(*this, mask, source));
}
Tensor& Tensor::tril_(int64_t diagonal) {
  HALFTAPE_PLAIN;
  return assign("tril_", *this, halftape::tril(*this, diagonal));
}
Tensor& Tensor::triu_(int64_t diagonal) {
  HALFTAPE_PLAIN;
  return assign("triu_", *this, halftape::triu(*this, diagonal));
}
Tensor& Tensor::addmm_(const Tensor& a, const Tensor& b, Scalar beta, Scalar alpha) {
  HALFTAPE_PLAIN;
  return assign("addmm_", *this, halftape::addmm(*this, a, b, beta, alpha));
}
Tensor& Tensor::addmv_(const Tensor& a, const Tensor& v, Scalar beta, Scalar alpha) {
  HALFTAPE_PLAIN;
  return assign("addmv_", *this, halftape::addmv(*this, a, v, beta, alpha));
}
Tensor& Tensor::addr_(const Tensor& u, const Tensor& v, Scalar beta, Scalar alpha) {
  HALFTAPE_PLAIN;
  return assign("addr_", *this, halftape::addr(*this, u, v, beta, alpha));
}
Tensor& Tensor::baddbmm_(const Tensor& a, const Tensor& b, Scalar beta, Scalar alpha) {
  HALFTAPE_PLAIN;
  return assign("baddbmm_", *this, halftape::baddbmm(*this, a, b, beta, alpha));
}
Tensor& Tensor::addbmm_(const Tensor& a, const Tensor& b, Scalar beta, Scalar alpha) {
  HALFTAPE_PLAIN;
  return assign("addbmm_", *this, halftape::addbmm(*this, a, b, beta, alpha));
}
Tensor& Tensor::cumsum_(int64_t dim, std::optional<Dtype> dtype) {
  HALFTAPE_PLAIN;
  return assign("cumsum_", *this, halftape::cumsum(*this, dim, dtype));
}
Tensor& Tensor::cumprod_(int64_t dim, std::optional<Dtype> dtype) {
  HALFTAPE_PLAIN;
  // A copy, since the gradient needs the value that is about to change.
  return assign("cumprod_", *this,
                halftape::cumprod(records({this}) ? clone() : *this, dim, dtype));
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
  take_history(*this,
               record("copy_", same.array(), {this, &same}, [](Node&, const Tensor& g) -> Grads {
                 return {{}, g};
               }));
  return *this;
}

Tensor& Tensor::fill_(Scalar value) {
  check_writable("fill_", *this, false);
  backend(device()).fill(array(), value);
  return overwritten("fill_", *this);
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
