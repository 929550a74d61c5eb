#include "halftape/autograd/ops/reduction/scan.h"

#include <limits>

#include "halftape/autograd/ops/cast_list.h"
#include "halftape/autograd/ops/creation/create.h"
#include "halftape/autograd/ops/elementwise/binary.h"
#include "halftape/autograd/ops/elementwise/unary.h"
#include "halftape/autograd/ops/indexing/index.h"
#include "halftape/autograd/ops/layout/dims.h"
#include "halftape/autograd/ops/layout/shape.h"
#include "halftape/autograd/tape/error_scope.h"
#include "halftape/autograd/tape/record.h"
#include "halftape/core/contract/backend.h"
#include "halftape/core/formula/reduce.h"

namespace halftape {
namespace {

template <class Op>
Array scan(const Tensor& x, int dim, bool reverse) {
  Array y = empty_like(x.array(), x.dtype());
  backend(x.device()).scan(ReduceOps::index<Op>(), y, x.array(), dim, reverse);
  return y;
}

/// r[i] = b[i] + a[i]·r[i + s], s = ±1, in log n steps of the whole dimension: pairs (a, b)
/// compose.
Tensor recurrence(Tensor a, Tensor b, int dim, int64_t s) {
  for (int64_t reach = 1; reach < b.size(dim); reach *= 2) {
    b = b + a * detail::shifted(b, dim, -s * reach, 0);
    a = a * detail::shifted(a, dim, -s * reach, 0);
  }
  return b;
}

/// The start that running sums and products share: casts, dtypes, and a dimension for a number.
Tensor accumulated(const CastOp& op, const Tensor& in, int64_t dim, std::optional<Dtype> dtype,
                   auto along) {
  const auto [cast_in] = cast_inputs(op.unless(dtype), in);
  const int d = wrap_dim(op.name, dim, static_cast<int>(cast_in.dim()));
  const Tensor x =
      cast_in.to(dtype.value_or(cast_in.is_floating_point() ? cast_in.dtype() : kInt64));
  return x.dim() == 0 ? squeeze(along(unsqueeze(x, 0), 0), 0) : along(x, d);
}

template <class Op>
std::tuple<Tensor, Tensor> cumulative_extremum(const char* op, const Tensor& x, int64_t dim) {
  check_defined(op, x);
  const int d = wrap_dim(op, dim, static_cast<int>(x.dim()));
  if (x.dim() == 0) return {clone(x), zeros({}, TensorOptions(kInt64).device(x.device()))};
  const Tensor plain = x.detach(), best(scan<Op>(plain, d, false));
  // A new best stands where the element is what the best is; or is NaN, of which the last one
  // counts.
  const Tensor marked = where(plain == plain, plain == best, true);
  const Tensor place =
      detail::along(arange(x.size(d)).to(x.device()), static_cast<int>(x.dim()), d);
  const Tensor index(scan<formula::Max>(where(marked, place, 0), d, false));
  return {gather(x, d, index), index};
}

}  // namespace

namespace detail {

Tensor cumsum(const Tensor& x, int dim, bool reverse) {
  return record("cumsum", scan<formula::Sum>(x, dim, reverse), {&x},
                [=](Node&, const Tensor& g) -> Grads { return {cumsum(g, dim, !reverse)}; });
}

Tensor cumprod(const Tensor& x, int dim, bool reverse) {
  const Array y = scan<formula::Prod>(x, dim, reverse);
  if (!records({&x})) return Tensor(y);
  return record("cumprod", y, {&x}, [=, saved = Saved(x)](Node& self, const Tensor& g) -> Grads {
    // ∂/∂x[i] = (product before i) · r[i], where r[i] = g[i] + x[i + 1]·r[i + 1]. In float64,
    // whose range holds partial products that the result does not.
    const int64_t s = reverse ? -1 : 1;
    const Tensor wide = saved.tensor(self).to(kFloat64);
    const Tensor before = shifted(cumprod(wide, dim, reverse), dim, s, 1);
    const Tensor after = recurrence(shifted(wide, dim, -s, 0), g.to(kFloat64), dim, s);
    return {(before * after).to(g.dtype())};
  });
}

Tensor shifted(const Tensor& x, int dim, int64_t steps, Scalar value) {
  const int64_t n = x.size(dim), k = std::min(n, std::abs(steps));
  const Array y = full(x.sizes(), value, x.dtype(), x.device());
  const bool up = steps > 0;
  backend(x.device())
      .copy(y.slice(dim, up ? k : 0, up ? n : n - k),
            x.array().slice(dim, up ? 0 : k, up ? n - k : n));
  return record("shifted", y, {&x},
                [=](Node&, const Tensor& g) -> Grads { return {shifted(g, dim, -steps, 0)}; });
}

}  // namespace detail

Tensor cumsum(const Tensor& x, int64_t dim, std::optional<Dtype> dtype) {
  return accumulated(cast_list::cumsum, x, dim, dtype,
                     [](const Tensor& t, int d) { return detail::cumsum(t, d, false); });
}
Tensor cumprod(const Tensor& x, int64_t dim, std::optional<Dtype> dtype) {
  return accumulated(cast_list::cumprod, x, dim, dtype,
                     [](const Tensor& t, int d) { return detail::cumprod(t, d, false); });
}
std::tuple<Tensor, Tensor> cummax(const Tensor& x, int64_t dim) {
  return cumulative_extremum<formula::Max>("cummax", x, dim);
}
std::tuple<Tensor, Tensor> cummin(const Tensor& x, int64_t dim) {
  return cumulative_extremum<formula::Min>("cummin", x, dim);
}

namespace {
/// ln(eᵃ + eᵇ), from the larger one on.
Tensor log_add(const Tensor& a, const Tensor& b) {
  constexpr double inf = std::numeric_limits<double>::infinity();
  const Tensor top = maximum(a, b).detach(), nothing = top == -inf;
  const Tensor from = where(abs(top) == inf, 0, top);  // ∞ − ∞ is NaN, and needs no scaling anyway
  const Tensor sum = where(nothing, 1, exp(a - from) + exp(b - from));
  return where(nothing, -inf, log(sum) + from);
}
}  // namespace

Tensor logcumsumexp(const Tensor& in, int64_t dim) {
  const ErrorScope scope("logcumsumexp", in);
  const PolicyScope plain(nullptr);
  const int d = wrap_dim("logcumsumexp", dim, static_cast<int>(in.dim()));
  const Tensor x = in.is_floating_point() ? in : in.to(get_default_dtype());
  if (x.dim() == 0) return clone(x);
  // Sums of 1, 2, 4, … neighbours. Halves in float32, so that they round once.
  Tensor y = is_narrow(x.dtype()) ? widened(x) : clone(x);
  for (int64_t reach = 1; reach < x.size(d); reach *= 2)
    y = log_add(y, detail::shifted(y, d, reach, -std::numeric_limits<double>::infinity()));
  return y.to(x.dtype());
}

Tensor diff(const Tensor& x, int64_t n, int64_t dim, const std::optional<Tensor>& prepend,
            const std::optional<Tensor>& append) {
  const ErrorScope scope("diff", x);
  HALFTAPE_CHECK(n >= 0, "diff: order ", n, " is negative");
  HALFTAPE_CHECK(x.dim() > 0, "diff: a 0-dim tensor has no dimension to take differences along");
  const int d = wrap_dim("diff", dim, static_cast<int>(x.dim()));
  Tensor y = x;
  if (prepend) y = cat({*prepend, y}, d);
  if (append) y = cat({y, *append}, d);
  const int64_t times = std::min(n, y.size(d));
  for (int64_t i = 0; i < times; ++i) {
    const int64_t count = y.size(d);
    const Tensor right = slice(y, d, 1, count),
                 left = slice(y, d, 0, std::max<int64_t>(count - 1, 0));
    y = y.dtype() == kBool ? right != left : right - left;
  }
  return y.is_same(x) ? clone(x) : y;
}

}  // namespace halftape
