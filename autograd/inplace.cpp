// Tensor's in-place methods: the bytes change, the version rises, the history goes on.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "halftape/autograd/indexing.h"
#include "halftape/autograd/ops/creation/create.h"
#include "halftape/autograd/ops/creation/random.h"
#include "halftape/autograd/ops/elementwise/binary.h"
#include "halftape/autograd/ops/elementwise/mask.h"
#include "halftape/autograd/ops/elementwise/pointwise.h"
#include "halftape/autograd/ops/elementwise/unary.h"
#include "halftape/autograd/ops/indexing/index.h"
#include "halftape/autograd/ops/layout/view.h"
#include "halftape/autograd/ops/product/matmul.h"
#include "halftape/autograd/ops/reduction/scan.h"
#include "halftape/autograd/ops/reduction/statistics.h"
#include "halftape/autograd/tape/error_scope.h"
#include "halftape/autograd/tape/grad_mode.h"
#include "halftape/autograd/tape/policy.h"
#include "halftape/autograd/tape/record.h"
#include "halftape/core/contract/backend.h"
#include "halftape/core/random/draw.h"

namespace halftape {
namespace {

/// to ← from, of one shape and dtype. Where they share memory, `from` is read as it was before.
void assign(const Array& to, const Array& from) {
  const bool overlap = to.numel() > 0 &&
                       !(to.raw() == from.raw() && to.strides() == from.strides()) &&
                       extent(to).meets(extent(from));
  backend(to.device()).copy(to, overlap ? from.clone() : from);
}

void check_changeable(const char* op, const Tensor& x) {
  check_defined(op, x);
  HALFTAPE_CHECK(!x.is_inference() || InferenceMode::is_enabled(), op, ": Inplace update to ",
                 "inference tensor outside InferenceMode is not allowed: clone() the tensor ",
                 x.sizes(), " first");
}

/// In-place methods are const, as LibTorch's: what changes is what the handle points to.
Tensor& same_handle(const Tensor& x) { return const_cast<Tensor&>(x); }  // NOLINT

/// x ← y: same shape and dtype; x takes over y's history.
Tensor& assign(const char* op, const Tensor& x, const Tensor& y) {
  check_writable(op, x, y.requires_grad());
  HALFTAPE_CHECK(y.sizes() == x.sizes(), op, ": the result has shape ", y.sizes(),
                 " and does not fit the tensor ", x.sizes());
  HALFTAPE_CHECK(can_cast(y.dtype(), x.dtype()), op, ": result type ", y.dtype(),
                 " can't be cast to the desired output type ", x.dtype(),
                 "; use the form that is not in place");
  const Tensor same = cast(y, x.dtype());
  assign(x.array(), same.array());
  x.array().bump_version();
  take_history(x, same);
  return same_handle(x);
}

/// The gradient of what was overwritten; none where nobody asks for it.
Tensor no_part(const Node& n, const Tensor& g) { return n.next[0] ? zeros_like(g) : Tensor(); }

/// x ← constants: what it was before gets the gradient 0.
Tensor& overwritten(const char* op, const Tensor& x) {
  x.array().bump_version();
  take_history(x, x.impl()->follows()
                      ? Tensor(x.array())
                      : record(op, x.array(), {&x},
                               [](Node& n, const Tensor& g) -> Grads { return {no_part(n, g)}; }));
  return same_handle(x);
}

Tensor& randomize(const char* op, const Tensor& x, Distribution kind, double a, double b) {
  check_writable(op, x, false);
  if (kind != Distribution::Bernoulli) check_floating(op, x);
  draw(x.array(), kind, a, b);
  return overwritten(op, x);
}

/// x as a factor whose value the gradient of `other` will need: a copy, since x is about to change.
Tensor factor(const Tensor& x, const Tensor& other) { return records({&other}) ? clone(x) : x; }

/// x for an op whose derivative may need it as it was: a copy where the op is recorded.
template <class... T>
Tensor before(const Tensor& x, const T&... others) {
  return records({&x, &others...}) ? clone(x) : x;
}

/// x ← numbers that `next` makes of uniform ones in [0, 1), in float64.
Tensor& randomize(const char* op, const Tensor& x, const auto& next) {
  check_writable(op, x, false);
  const PolicyScope plain(nullptr);  // an autocast region casts none of it
  const Tensor u = rand(x.sizes(), TensorOptions(kFloat64).device(x.device()));
  backend(x.device()).copy(x.array(), Tensor(next(u)).array());
  return overwritten(op, x);
}

}  // namespace

void check_writable(const char* op, const Tensor& x, bool history) {
  check_changeable(op, x);
  HALFTAPE_CHECK(!overlaps_itself(x.sizes(), x.strides()), op, ": of the tensor ", x.sizes(),
                 " with strides ", x.strides(),
                 " several elements are one place in memory, as expanded and unfolded ",
                 "ones are; clone() it first");
  if (!GradMode::is_enabled()) return;
  const Tensor base(x.impl()->base);
  HALFTAPE_CHECK(!x.impl()->is_view || x.impl()->follows() ||
                     !(history || x.requires_grad() || base.requires_grad()),
                 op, ": ", x.impl()->creation(), " and is being modified inplace: the change of ",
                 x.sizes(), " would not reach its base's history; make the view while recording");
  const auto leaf = [](const Tensor& t) { return t.is_leaf() && t.requires_grad(); };
  HALFTAPE_CHECK(
      !leaf(x) && !leaf(base), op,
      ": a leaf Variable that requires grad is being used in an in-place operation, itself or ",
      "a view of it; use NoGradGuard to update a parameter");
  if (base.defined() && (history || base.requires_grad())) check_window(op, base, x);
}

void take_history(const Tensor& x, const Tensor& value) {
  if (!GradMode::is_enabled()) return;
  if (!x.impl()->follows()) return x.impl()->set_history(value.impl()->history);
  Tensor base(x.impl()->base);
  if (base.requires_grad() || value.requires_grad())
    base.impl()->set_history(history_of_write(base, x, value));
  // x takes its history from the base at once, as detach_() may free the base from its own.
  if (x.impl()->outdated()) x.impl()->renew();
}

// In-place operations run in the dtypes they are given: no policy applies to them.
#define HALFTAPE_PLAIN const PolicyScope plain(nullptr)

#define HALFTAPE_IN_PLACE(name, parameters, value) \
  Tensor& Tensor::name parameters const {          \
    HALFTAPE_PLAIN;                                \
    return assign(#name, *this, halftape::value);  \
  }
#define HALFTAPE_IN_PLACE_UNARY(name) HALFTAPE_IN_PLACE(name##_, (), name(before(*this)))
#define HALFTAPE_IN_PLACE_OF_TENSOR(name) \
  HALFTAPE_IN_PLACE(name##_, (const Tensor& o), name(before(*this, o), o))
#define HALFTAPE_IN_PLACE_OF_EITHER(name) \
  HALFTAPE_IN_PLACE_OF_TENSOR(name)       \
  HALFTAPE_IN_PLACE(name##_, (Scalar o), name(before(*this), o))
HALFTAPE_UNARY_METHODS(HALFTAPE_IN_PLACE_UNARY)
HALFTAPE_TENSOR_METHODS(HALFTAPE_IN_PLACE_OF_TENSOR)
HALFTAPE_BINARY_METHODS(HALFTAPE_IN_PLACE_OF_EITHER)
HALFTAPE_IN_PLACE(add_, (const Tensor& o, Scalar alpha), add(*this, o, alpha))
HALFTAPE_IN_PLACE(add_, (Scalar o, Scalar alpha), add(*this, o, alpha))
HALFTAPE_IN_PLACE(sub_, (const Tensor& o, Scalar alpha), sub(*this, o, alpha))
HALFTAPE_IN_PLACE(sub_, (Scalar o, Scalar alpha), sub(*this, o, alpha))
HALFTAPE_IN_PLACE(mul_, (const Tensor& o), mul(factor(*this, o), o))
HALFTAPE_IN_PLACE(mul_, (Scalar o), mul(*this, o))
HALFTAPE_IN_PLACE(div_, (const Tensor& o, std::optional<std::string_view> mode),
                  div(mode ? before(*this, o) : factor(*this, o), o, mode))
HALFTAPE_IN_PLACE(div_, (Scalar o, std::optional<std::string_view> mode),
                  div(mode ? before(*this) : *this, o, mode))
HALFTAPE_IN_PLACE(addcmul_, (const Tensor& a, const Tensor& b, Scalar value),
                  addcmul(*this, a, b, value))
HALFTAPE_IN_PLACE(addcdiv_, (const Tensor& a, const Tensor& b, Scalar value),
                  addcdiv(*this, a, b, value))
HALFTAPE_IN_PLACE(lerp_, (const Tensor& end, Scalar weight), lerp(*this, end, weight))
HALFTAPE_IN_PLACE(lerp_, (const Tensor& end, const Tensor& weight),
                  lerp(before(*this, end, weight), end, weight))
HALFTAPE_IN_PLACE(clamp_, (std::optional<Scalar> min, std::optional<Scalar> max),
                  clamp(before(*this), min, max))
HALFTAPE_IN_PLACE(clamp_, (const std::optional<Tensor>& min, const std::optional<Tensor>& max),
                  clamp(before(*this, min ? *min : *this, max ? *max : *this), min, max))
HALFTAPE_IN_PLACE(logit_, (std::optional<double> eps), logit(before(*this), eps))
HALFTAPE_IN_PLACE(nan_to_num_,
                  (std::optional<double> nan, std::optional<double> posinf,
                   std::optional<double> neginf),
                  nan_to_num(*this, nan, posinf, neginf))
HALFTAPE_IN_PLACE(index_put_,
                  (const std::vector<indexing::TensorIndex>& indices, const Tensor& values,
                   bool accumulate),
                  index_put(*this, indices, values, accumulate))
HALFTAPE_IN_PLACE(index_put_,
                  (const std::vector<indexing::TensorIndex>& indices, Scalar value,
                   bool accumulate),
                  index_put(*this, indices, value, accumulate))
HALFTAPE_IN_PLACE(index_add_, (int64_t d, const Tensor& i, const Tensor& source, Scalar alpha),
                  index_add(*this, d, i, source, alpha))
HALFTAPE_IN_PLACE(index_copy_, (int64_t d, const Tensor& i, const Tensor& source),
                  index_copy(*this, d, i, source))
HALFTAPE_IN_PLACE(index_fill_, (int64_t d, const Tensor& i, Scalar value),
                  index_fill(*this, d, i, value))
HALFTAPE_IN_PLACE(index_fill_, (int64_t d, const Tensor& i, const Tensor& value),
                  index_fill(*this, d, i, value))
HALFTAPE_IN_PLACE(scatter_, (int64_t d, const Tensor& i, const Tensor& src),
                  scatter(*this, d, i, src))
HALFTAPE_IN_PLACE(scatter_, (int64_t d, const Tensor& i, Scalar value), scatter(*this, d, i, value))
HALFTAPE_IN_PLACE(scatter_, (int64_t d, const Tensor& i, const Tensor& src, std::string_view how),
                  scatter(before(*this, src), d, i, src, how))
HALFTAPE_IN_PLACE(scatter_, (int64_t d, const Tensor& i, Scalar value, std::string_view how),
                  scatter(before(*this), d, i, value, how))
HALFTAPE_IN_PLACE(scatter_reduce_,
                  (int64_t d, const Tensor& i, const Tensor& src, std::string_view how,
                   bool include_self),
                  scatter_reduce(before(*this, src), d, i, src, how, include_self))
HALFTAPE_IN_PLACE(scatter_add_, (int64_t d, const Tensor& i, const Tensor& src),
                  scatter_add(*this, d, i, src))
HALFTAPE_IN_PLACE(masked_fill_, (const Tensor& mask, Scalar value), masked_fill(*this, mask, value))
HALFTAPE_IN_PLACE(masked_fill_, (const Tensor& mask, const Tensor& value),
                  masked_fill(*this, mask, value))
HALFTAPE_IN_PLACE(masked_scatter_, (const Tensor& mask, const Tensor& source),
                  masked_scatter(*this, mask, source))
HALFTAPE_IN_PLACE(renorm_, (Scalar p, int64_t d, Scalar maxnorm),
                  renorm(before(*this), p, d, maxnorm))
HALFTAPE_IN_PLACE(tril_, (int64_t diagonal), tril(*this, diagonal))
HALFTAPE_IN_PLACE(triu_, (int64_t diagonal), triu(*this, diagonal))
#define HALFTAPE_WITH_SUM(name)                                                             \
  HALFTAPE_IN_PLACE(name##_, (const Tensor& a, const Tensor& b, Scalar beta, Scalar alpha), \
                    name(*this, a, b, beta, alpha))
HALFTAPE_SUM_METHODS(HALFTAPE_WITH_SUM)
#undef HALFTAPE_WITH_SUM
HALFTAPE_IN_PLACE(cumsum_, (int64_t dim, std::optional<Dtype> dtype), cumsum(*this, dim, dtype))
HALFTAPE_IN_PLACE(cumprod_, (int64_t dim, std::optional<Dtype> dtype),
                  cumprod(before(*this), dim, dtype))
#undef HALFTAPE_IN_PLACE_UNARY
#undef HALFTAPE_IN_PLACE_OF_TENSOR
#undef HALFTAPE_IN_PLACE_OF_EITHER
#undef HALFTAPE_IN_PLACE

// Activations in place are functions, as in LibTorch.
#define HALFTAPE_ACTIVATION(name, parameters, value) \
  Tensor& name parameters {                          \
    HALFTAPE_PLAIN;                                  \
    return assign(#name, x, value);                  \
  }
HALFTAPE_ACTIVATION(relu_, (Tensor & x), relu(before(x)))
HALFTAPE_ACTIVATION(relu6_, (Tensor & x), relu6(before(x)))
HALFTAPE_ACTIVATION(leaky_relu_, (Tensor & x, Scalar slope), leaky_relu(before(x), slope))
HALFTAPE_ACTIVATION(elu_, (Tensor & x, Scalar alpha, Scalar scale), elu(before(x), alpha, scale))
HALFTAPE_ACTIVATION(selu_, (Tensor & x), selu(before(x)))
HALFTAPE_ACTIVATION(celu_, (Tensor & x, Scalar alpha), celu(before(x), alpha))
HALFTAPE_ACTIVATION(gelu_, (Tensor & x, const std::string& approximate),
                    gelu(before(x), approximate))
HALFTAPE_ACTIVATION(silu_, (Tensor & x), silu(before(x)))
HALFTAPE_ACTIVATION(mish_, (Tensor & x), mish(before(x)))
HALFTAPE_ACTIVATION(hardtanh_, (Tensor & x, Scalar min_val, Scalar max_val),
                    hardtanh(before(x), min_val, max_val))
HALFTAPE_ACTIVATION(hardsigmoid_, (Tensor & x), hardsigmoid(before(x)))
HALFTAPE_ACTIVATION(hardswish_, (Tensor & x), hardswish(before(x)))
HALFTAPE_ACTIVATION(threshold_, (Tensor & x, Scalar limit, Scalar value),
                    threshold(before(x), limit, value))
#undef HALFTAPE_ACTIVATION

#undef HALFTAPE_PLAIN

Tensor& Tensor::copy_(const Tensor& source) const {
  check_defined("copy_", *this, source);
  HALFTAPE_CHECK(broadcasts_to(source.sizes(), sizes()), "copy_: source ", source.sizes(),
                 " does not broadcast to ", sizes());
  const Tensor here = source.device() == device() ? source : source.to(device());
  const Tensor wide = here.sizes() == sizes() ? here : halftape::expand(here, sizes());
  const Tensor same = cast(wide, dtype());
  check_writable("copy_", *this, same.requires_grad());
  assign(array(), same.array());
  array().bump_version();
  // The gradient goes to the source; a node of its own, since `same` may be a leaf.
  take_history(*this,
               record("copy_", same.array(), {this, &same}, [](Node& n, const Tensor& g) -> Grads {
                 return {no_part(n, g), g};
               }));
  return same_handle(*this);
}

Tensor& Tensor::fill_(Scalar value) const {
  check_writable("fill_", *this, false);
  detail::check_fits("fill_", value, dtype());
  backend(device()).fill(array(), value);
  return overwritten("fill_", *this);
}
Tensor& Tensor::uniform_(double from, double to) const {
  check_defined("uniform_", *this);
  HALFTAPE_CHECK(from <= to, "uniform_: the range from ", from, " to ", to, " is none");
  const double most = traits(dtype()).largest;
  HALFTAPE_CHECK(!is_floating_point() || (from >= -most && to <= most && to - from <= most),
                 "uniform_: the range from ", from, " to ", to, ", or its width, is beyond the ",
                 "largest number of ", dtype(), ", ", most);
  return randomize("uniform_", *this, Distribution::Uniform, from, to);
}
Tensor& Tensor::normal_(double mean, double std) const {
  HALFTAPE_CHECK(std >= 0, "normal_: the deviation ", std, " is not at least 0");
  return randomize("normal_", *this, Distribution::Normal, mean, std);
}
Tensor& Tensor::random_(int64_t from, std::optional<int64_t> to) const {
  check_defined("random_", *this);
  const int64_t end = to.value_or(detail::whole_numbers(dtype()) + 1);
  detail::check_integers("random_", from, end, dtype());
  check_writable("random_", *this, false);
  draw_integers(array(), from, end, !to && from == 0);
  return overwritten("random_", *this);
}
Tensor& Tensor::bernoulli_(double p) const {
  HALFTAPE_CHECK(p >= 0 && p <= 1, "bernoulli_: probability ", p, " is not between 0 and 1");
  return randomize("bernoulli_", *this, Distribution::Bernoulli, p, 0);
}
Tensor& Tensor::exponential_(double lambd) const {
  HALFTAPE_CHECK(lambd > 0, "exponential_: the rate ", lambd, " is not positive");
  check_floating("exponential_", *this);
  return randomize("exponential_", *this,
                   [=](const Tensor& u) { return -halftape::log1p(-u) / lambd; });
}
Tensor& Tensor::log_normal_(double mean, double std) const {
  HALFTAPE_CHECK(std > 0, "log_normal_: the standard deviation ", std, " is not positive");
  check_writable("log_normal_", *this, false);
  check_floating("log_normal_", *this);
  const TensorOptions wide = TensorOptions(kFloat64).device(device());
  backend(device()).copy(array(),
                         halftape::exp(halftape::normal(mean, std, sizes(), wide)).array());
  return overwritten("log_normal_", *this);
}
Tensor& Tensor::cauchy_(double median, double sigma) const {
  HALFTAPE_CHECK(sigma > 0, "cauchy_: sigma ", sigma, " is not positive");
  check_floating("cauchy_", *this);
  return randomize("cauchy_", *this, [=](const Tensor& u) {
    return median + sigma * halftape::tan(std::numbers::pi * (u - 0.5));
  });
}
Tensor& Tensor::geometric_(double p) const {
  HALFTAPE_CHECK(p > 0 && p < 1, "geometric_: the probability ", p, " is not between 0 and 1");
  const double rate = std::log1p(-p);
  return randomize("geometric_", *this, [=](const Tensor& u) {
    return (u.clamp_min(0x1p-54).log() / rate).ceil().clamp_min(1);
  });
}

namespace {

/// x ← view(), a view of x.
Tensor& laid_out(const char* op, const Tensor& x, const auto& view) {
  check_changeable(op, x);
  const bool leaf = x.is_leaf();
  HALFTAPE_CHECK(!(x.requires_grad() && leaf == GradMode::is_enabled()), op,
                 leaf ? ": a leaf Variable that requires grad is being used in an in-place "
                        "operation; use NoGradGuard to change a parameter"
                      : ": the gradient of what was recorded could not follow under NoGradGuard");
  const Tensor base(x.impl()->follows() ? x.impl()->base : Ref<detail::TensorImpl>());
  if (!leaf && base.requires_grad()) check_window(op, base, x);
  const Tensor y = view();
  x.array().bump_version();
  if (x.impl()->accumulator) {
    x.set_data(y.detach());
    return same_handle(x);
  }
  x.impl()->set_value(y.array());
  if (!leaf && base.defined()) {
    x.impl()->renew();  // it remains a view of its base
  } else if (!leaf) {
    const uint32_t writes = x.impl()->rewritten;
    x.impl()->set_history(y.impl()->history);
    x.impl()->rewritten = writes;  // its views keep their histories
  }
  return same_handle(x);
}

}  // namespace

#define HALFTAPE_LAID_OUT(name, parameters, view)          \
  Tensor& Tensor::name parameters const {                  \
    return laid_out(#name, *this, [&] { return (view); }); \
  }
HALFTAPE_LAID_OUT(transpose_, (int64_t a, int64_t b), transpose(a, b))
HALFTAPE_LAID_OUT(t_, (), t())
HALFTAPE_LAID_OUT(squeeze_, (), squeeze())
HALFTAPE_LAID_OUT(squeeze_, (int64_t dim), squeeze(dim))
HALFTAPE_LAID_OUT(unsqueeze_, (int64_t dim), unsqueeze(dim))
#undef HALFTAPE_LAID_OUT

Tensor& Tensor::resize_(const Shape& shape) const {
  check_changeable("resize_", *this);
  HALFTAPE_CHECK(!requires_grad(), "resize_: cannot resize variables that require grad, as ",
                 sizes(), " does; use reshape()");
  if (shape == sizes()) return same_handle(*this);
  const Array& x = array();
  const auto item = static_cast<int64_t>(element_size());
  const int64_t there = static_cast<int64_t>(x.buffer()->size()) / item;
  const int64_t wanted = checked_add(x.offset(), halftape::numel(shape));
  HALFTAPE_CHECK(wanted <= there || (!impl_->is_view && x.unique()), "resize_: ", shape,
                 " needs more bytes than ", sizes(), " has, and other tensors that share these ",
                 "would not follow; clone() it first");
  Array bytes(x.buffer(), {there}, {1}, 0, dtype());
  if (wanted > there) {
    const Array more({wanted}, dtype(), device());
    backend(device()).copy(more.slice(0, 0, there), bytes);
    bytes = more;
  }
  bytes = bytes.as_strided(shape, contiguous_strides(shape), x.offset());
  bytes.bump_version();
  impl_->set_value(std::move(bytes));
  return same_handle(*this);
}

}  // namespace halftape
