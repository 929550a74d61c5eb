#include "halftape/autograd/ops/indexing/sort.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "halftape/autograd/ops/creation/create.h"
#include "halftape/autograd/ops/elementwise/binary.h"
#include "halftape/autograd/ops/elementwise/mask.h"
#include "halftape/autograd/ops/elementwise/pointwise.h"
#include "halftape/autograd/ops/elementwise/unary.h"
#include "halftape/autograd/ops/indexing/index.h"
#include "halftape/autograd/ops/layout/dims.h"
#include "halftape/autograd/ops/layout/view.h"
#include "halftape/autograd/ops/reduction/reduce.h"
#include "halftape/autograd/ops/reduction/scan.h"
#include "halftape/autograd/tape/error_scope.h"
#include "halftape/autograd/tape/record.h"
#include "halftape/core/contract/backend.h"

namespace halftape {
namespace {

/// The order along `dim`, or its first `count` places.
Tensor order(const char* op, const Tensor& x, int64_t dim, bool descending,
             std::optional<int64_t> count = {}) {
  check_defined(op, x);
  const int d = wrap_dim(op, dim, static_cast<int>(x.dim()));
  Shape shape = x.sizes();
  if (count && x.dim() > 0) shape[d] = *count;
  const Array y(shape, kInt64, x.device());
  backend(x.device()).argsort(y, x.array(), d, descending);
  return Tensor(y);
}

/// Indices along `dim` (kept), and the values they point to.
std::tuple<Tensor, Tensor> taken(const Tensor& x, int64_t dim, const Tensor& index, bool keepdim) {
  if (x.dim() == 0) return {clone(x), index};
  const Tensor values = gather(x, dim, index);
  if (keepdim) return {values, index};
  return {squeeze(values, dim), squeeze(index, dim)};
}

/// The sorted element at the place that `of(count of numbers, count of elements)` says.
std::tuple<Tensor, Tensor> middle(const char* op, const Tensor& x, int64_t dim, bool keepdim,
                                  auto of) {
  check_defined(op, x);
  const int d = wrap_dim(op, dim, static_cast<int>(x.dim()));
  const Tensor all = order(op, x, d, false);
  if (x.dim() == 0) return {clone(x), all};
  HALFTAPE_CHECK(x.size(d) > 0, op, ": dimension ", d, " of ", x.sizes(),
                 " is empty and has no middle");
  const Tensor plain = x.detach(), numbers = sum(plain == plain, {d}, true);
  return taken(x, d, gather(all, d, of(numbers, x.size(d))), keepdim);
}

/// The median of all elements, which equals share as they do for max().
Tensor median_of_all(const char* op, const Tensor& x,
                     std::tuple<Tensor, Tensor> (*along)(const Tensor&, int64_t, bool)) {
  check_defined(op, x);
  HALFTAPE_CHECK(x.numel() > 0 || x.is_floating_point(), op, ": of ", x.sizes(),
                 ", which has no elements");
  if (x.numel() == 0)
    return record(op, full({}, std::numeric_limits<double>::quiet_NaN(), x.options()).array(), {&x},
                  [](Node&, const Tensor&) { return Grads(1); });
  Tensor value = std::get<0>(along(detail::reshaped(x.detach(), {-1}), 0, false));
  if (!records({&x})) return value;
  return record(
      op, value.array(), {&x},
      [x = Saved(x), y = Saved(value.array())](Node& self, const Tensor& g) -> Grads {
        const Tensor from = x.tensor(self).detach(), middle = y.tensor(self).detach();
        const Tensor hits =
            where(middle == middle, from == middle, from != from).to(compute_dtype(g.dtype()));
        return {(g.to(hits.dtype()) * (hits / sum(hits))).to(g.dtype())};
      });
}

/// a + w·(b − a) for w in [0, 1), also where a or b is infinite.
Tensor between(const Tensor& a, const Tensor& b, const Tensor& w) {
  const Tensor finite = logical_and(isfinite(a), isfinite(b));
  return where(finite, lerp(where(finite, a, 0), where(finite, b, 0), w), where(w == 0, a, a + b));
}

Tensor quantile_of(const char* op, const Tensor& in, const Tensor& q, std::optional<int64_t> dim,
                   bool keepdim, std::string_view interpolation, bool skip_nan) {
  const ErrorScope scope(op, in, q);
  constexpr std::string_view ways[] = {"linear", "lower", "higher", "nearest", "midpoint"};
  HALFTAPE_CHECK(std::find(std::begin(ways), std::end(ways), interpolation) != std::end(ways), op,
                 ": interpolation is \"", interpolation,
                 "\", expected \"linear\", \"lower\", \"higher\", \"nearest\" or \"midpoint\"");
  check_defined(op, in, q);
  check_floating(op, in);
  check_floating(op, q);
  HALFTAPE_CHECK(q.dim() <= 1, op, ": q ", q.sizes(), " must be a number or a list");
  const int d = wrap_dim(op, dim.value_or(0), static_cast<int>(in.dim()));
  const bool listed = dim && in.dim() > 0;
  const Tensor x = listed ? movedim(widened(in), d, -1) : detail::reshaped(widened(in), {-1});
  const int64_t n = x.size(-1);
  HALFTAPE_CHECK(n > 0, op, ": a tensor ", in.sizes(), " has no elements to order");
  const Tensor plain = q.detach();
  HALFTAPE_CHECK(all(logical_and(plain >= 0, plain <= 1)).item<bool>(), op,
                 ": q is not everywhere between 0 and 1");
  const Tensor sorted = std::get<0>(sort(x, -1));
  // Places beyond 2^24 are no float32 numbers.
  const Dtype exact = n <= int64_t{1} << 24 ? x.dtype() : kFloat64;
  const Tensor at = detail::reshaped(q, {-1}).to(x.device()).to(exact);
  const Tensor values = sorted.detach(), numbers = values == values;
  Tensor place;
  if (skip_nan)
    place = at * clamp_min(sum(numbers, {-1}, true) - 1, 0).to(exact);
  else
    place = where(narrow(numbers, -1, n - 1, 1), at * static_cast<double>(n - 1),
                  static_cast<double>(n - 1));
  const auto there = [&](const Tensor& whole) {
    return gather(sorted, -1, whole.detach().to(kInt64));
  };
  Tensor y;
  if (interpolation == "lower") {
    y = there(floor(place));
  } else if (interpolation == "higher") {
    y = there(ceil(place));
  } else if (interpolation == "nearest") {
    y = there(round(place));
  } else {
    Tensor w = (place - floor(place.detach())).to(x.dtype());
    if (interpolation == "midpoint") w = where(w.detach() == 0, w.detach(), 0.5);
    y = between(there(floor(place)), there(ceil(place)), w);
  }
  // (…, Q) to (Q, …), or (…) for a number.
  y = q.dim() == 0 ? squeeze(y, -1) : movedim(y, -1, 0);
  if (keepdim && listed) y = unsqueeze(y, d + q.dim());
  if (keepdim && !listed)
    for (int64_t i = 0; i < in.dim(); ++i) y = unsqueeze(y, -1);
  return y.to(in.dtype());
}

Tensor number_of(const char* op, const Tensor& x, double q) {
  check_defined(op, x);
  return Tensor(full({}, q, kFloat64, x.device()));
}

}  // namespace

Tensor quantile(const Tensor& x, const Tensor& q, std::optional<int64_t> dim, bool keepdim,
                std::string_view interpolation) {
  return quantile_of("quantile", x, q, dim, keepdim, interpolation, false);
}
Tensor quantile(const Tensor& x, double q, std::optional<int64_t> dim, bool keepdim,
                std::string_view interpolation) {
  return quantile(x, number_of("quantile", x, q), dim, keepdim, interpolation);
}
Tensor nanquantile(const Tensor& x, const Tensor& q, std::optional<int64_t> dim, bool keepdim,
                   std::string_view interpolation) {
  return quantile_of("nanquantile", x, q, dim, keepdim, interpolation, true);
}
Tensor nanquantile(const Tensor& x, double q, std::optional<int64_t> dim, bool keepdim,
                   std::string_view interpolation) {
  return nanquantile(x, number_of("nanquantile", x, q), dim, keepdim, interpolation);
}

std::tuple<Tensor, Tensor> sort(const Tensor& x, int64_t dim, bool descending) {
  return taken(x, dim, order("sort", x, dim, descending), true);
}
std::tuple<Tensor, Tensor> sort(const Tensor& x, std::optional<bool>, int64_t dim,
                                bool descending) {
  return sort(x, dim, descending);
}
Tensor argsort(const Tensor& x, int64_t dim, bool descending) {
  return order("argsort", x, dim, descending);
}
Tensor argsort(const Tensor& x, bool, int64_t dim, bool descending) {
  return argsort(x, dim, descending);
}
Tensor msort(const Tensor& x) {
  const ErrorScope scope("msort", x);
  return std::get<0>(sort(x, 0));
}

std::tuple<Tensor, Tensor> topk(const Tensor& x, int64_t k, int64_t dim, bool largest, bool) {
  check_defined("topk", x);
  const int d = wrap_dim("topk", dim, static_cast<int>(x.dim()));
  const int64_t n = x.dim() ? x.size(d) : 1;
  HALFTAPE_CHECK(k >= 0 && k <= n, "topk: k = ", k, " of the ", n, " elements of dimension ", d,
                 " of ", x.sizes());
  return taken(x, d, order("topk", x, d, largest, k), true);
}

std::tuple<Tensor, Tensor> kthvalue(const Tensor& x, int64_t k, int64_t dim, bool keepdim) {
  check_defined("kthvalue", x);
  const int d = wrap_dim("kthvalue", dim, static_cast<int>(x.dim()));
  const int64_t n = x.dim() ? x.size(d) : 1;
  HALFTAPE_CHECK(k >= 1 && k <= n, "kthvalue: k = ", k, " of the ", n, " elements of dimension ", d,
                 " of ", x.sizes(), "; expected 1 to ", n);
  const Tensor first = order("kthvalue", x, d, false, k);
  return taken(x, d, x.dim() ? contiguous(slice(first, d, k - 1, k)) : first, keepdim);
}

std::tuple<Tensor, Tensor> median(const Tensor& x, int64_t dim, bool keepdim) {
  // NaNs stand last: the first of them has the place that numbers leave.
  return middle("median", x, dim, keepdim, [](const Tensor& numbers, int64_t n) {
    return where(numbers == n, (n - 1) / 2, numbers);
  });
}
std::tuple<Tensor, Tensor> nanmedian(const Tensor& x, int64_t dim, bool keepdim) {
  return middle("nanmedian", x, dim, keepdim, [](const Tensor& numbers, int64_t) {
    return ((numbers - 1).to(kFloat64) / 2).to(kInt64);  // towards 0: the first NaN of none but NaN
  });
}

Tensor median(const Tensor& x) { return median_of_all("median", x, &median); }
Tensor nanmedian(const Tensor& x) { return median_of_all("nanmedian", x, &nanmedian); }

namespace {
/// One of each run of equals in a list, which run each element is in, and how long they are.
std::tuple<Tensor, Tensor, Tensor> runs(const Tensor& x, bool lengths) {
  const TensorOptions whole = TensorOptions(kInt64).device(x.device());
  const int64_t n = x.size(0);
  if (n == 0) return {x, zeros({0}, whole), zeros({0}, whole)};
  const Tensor number = arange(n, whole);
  const Tensor first = where(number == 0, true, x != detail::shifted(x, 0, 1, 0));
  const Tensor rank = cumsum(first, 0) - 1;
  const Tensor none = zeros({select(rank, 0, n - 1).item<int64_t>() + 1}, whole);
  const Tensor starts = scatter_add(none, 0, rank, where(first, number, 0));
  return {gather(x, 0, starts), rank,
          lengths ? scatter_add(none, 0, rank, ones({n}, whole)) : Tensor()};
}
}  // namespace

std::tuple<Tensor, Tensor, Tensor> _unique2(const Tensor& in, bool, bool return_inverse,
                                            bool return_counts) {
  const ErrorScope scope("_unique2", in);
  const auto [sorted, places] = sort(detail::reshaped(in.detach(), {-1}), 0);
  const auto [values, rank, counts] = runs(sorted, return_counts);
  Tensor inverse;
  if (return_inverse) inverse = detail::reshaped(gather(rank, 0, argsort(places)), in.sizes());
  return {values, inverse, counts};
}

std::tuple<Tensor, Tensor, Tensor> unique_consecutive(const Tensor& in, bool return_inverse,
                                                      bool return_counts) {
  const ErrorScope scope("unique_consecutive", in);
  const auto [values, rank, counts] =
      runs(detail::reshaped(in.detach(), {in.numel()}), return_counts);
  return {values, return_inverse ? detail::reshaped(rank, in.sizes()) : Tensor(), counts};
}

Tensor histc(const Tensor& in, int64_t bins, Scalar min, Scalar max) {
  const ErrorScope scope("histc", in);
  check_floating("histc", in);
  HALFTAPE_CHECK(bins > 0, "histc: ", bins, " bins; expected at least one");
  const Tensor x = detail::reshaped(in.detach().to(compute_dtype(in.dtype())), {-1});
  double low = min.to_double(), high = max.to_double();
  if (low == high && x.numel() > 0) low = amin(x).item<double>(), high = amax(x).item<double>();
  if (low == high) low -= 1, high += 1;
  HALFTAPE_CHECK(low < high && std::isfinite(low) && std::isfinite(high), "histc: no bins from ",
                 low, " to ", high);
  const Tensor inside = logical_and(x >= low, x <= high);
  const Tensor bin = clamp_max(((x - low) * bins / (high - low)).to(kInt64), bins - 1);
  const Tensor counts = zeros({bins}, TensorOptions(kInt64).device(x.device()));
  return scatter_add(counts, 0, where(inside, bin, 0), inside.to(kInt64)).to(in.dtype());
}

Tensor searchsorted(const Tensor& boundaries, const Tensor& values, bool out_int32, bool right) {
  const ErrorScope scope("searchsorted", boundaries, values);
  HALFTAPE_CHECK(boundaries.dim() > 0, "searchsorted: boundaries are a 0-dim tensor");
  const bool shared = boundaries.dim() == 1;
  HALFTAPE_CHECK(shared || boundaries.dim() == values.dim(), "searchsorted: boundaries ",
                 boundaries.sizes(), " and values ", values.sizes(),
                 "; expected one dimension, or equal leading ones");
  for (int i = 0; !shared && i + 1 < boundaries.dim(); ++i)
    HALFTAPE_CHECK(boundaries.size(i) == values.size(i), "searchsorted: boundaries ",
                   boundaries.sizes(), " and values ", values.sizes(), " differ in dimension ", i);
  const Tensor b = boundaries.detach(),
               v = shared ? detail::reshaped(values.detach(), {-1}) : values.detach();
  // By halves: `passed` boundaries are not beyond the value. So a NaN comes last, as in a sort.
  const int64_t n = b.size(-1);
  Tensor passed = zeros(v.sizes(), TensorOptions(kInt64).device(v.device()));
  for (auto step = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(n))); step > 0;
       step /= 2) {
    const Tensor further = passed + step;
    const Tensor at = gather(b, -1, clamp_max(further - 1, n - 1)),
                 beyond = right ? at > v : at >= v;
    passed = where(logical_or(beyond, further > n), passed, further);
  }
  return detail::reshaped(passed, values.sizes()).to(out_int32 ? kInt32 : kInt64);
}
Tensor bucketize(const Tensor& values, const Tensor& boundaries, bool out_int32, bool right) {
  const ErrorScope scope("bucketize", values, boundaries);
  HALFTAPE_CHECK(boundaries.dim() == 1, "bucketize: boundaries ", boundaries.sizes(),
                 " must have one dimension");
  return searchsorted(boundaries, values, out_int32, right);
}

Tensor bincount(const Tensor& x, const Tensor& weights, int64_t minlength) {
  const ErrorScope scope("bincount", x);
  HALFTAPE_CHECK(x.dim() == 1 && !x.is_floating_point() && x.dtype() != kBool, "bincount: of a ",
                 x.dtype(), " tensor ", x.sizes(), "; expected one dimension of integers");
  HALFTAPE_CHECK(minlength >= 0, "bincount: minlength ", minlength, " is negative");
  HALFTAPE_CHECK(!weights.defined() || weights.sizes() == x.sizes(), "bincount: weights ",
                 weights.defined() ? weights.sizes() : Shape(), " for ", x.sizes(), " numbers");
  const Tensor at = x.to(kInt64);
  int64_t count = minlength;
  if (x.numel() > 0) {
    const int64_t low = min(at).item<int64_t>();
    HALFTAPE_CHECK(low >= 0, "bincount: ", low, " is negative");
    count = std::max(count, checked_add(max(at).item<int64_t>(), 1));
  }
  const Dtype type = !weights.defined()            ? kInt64
                     : weights.dtype() == kFloat32 ? kFloat32
                                                   : kFloat64;
  const Tensor amounts =
      weights.defined() ? weights.detach().to(type) : ones(x.sizes(), x.options().dtype(kInt64));
  return scatter_add(zeros({count}, x.options().dtype(type)), 0, at, amounts);
}

}  // namespace halftape
