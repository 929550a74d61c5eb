#include "halftape/autograd/ops/reduction/statistics.h"

#include <limits>

#include "halftape/autograd/ops/cast_list.h"
#include "halftape/autograd/ops/creation/create.h"
#include "halftape/autograd/ops/elementwise/binary.h"
#include "halftape/autograd/ops/elementwise/unary.h"
#include "halftape/autograd/ops/indexing/index.h"
#include "halftape/autograd/ops/layout/dims.h"
#include "halftape/autograd/ops/layout/view.h"
#include "halftape/autograd/ops/reduction/reduce.h"
#include "halftape/autograd/tape/error_scope.h"
#include "halftape/autograd/tape/record.h"

namespace halftape {
namespace {

/// f(x) where x is not 0, and `at_zero` with the derivative 0 where it is.
Tensor except_zero(const Tensor& x, double at_zero, auto f) {
  const Tensor zero = x == 0;
  return where(zero, at_zero, f(where(zero, 1, x)));
}

Tensor root(const Tensor& x) {
  return except_zero(x, 0, [](const Tensor& t) { return sqrt(t); });
}

/// The variance, with dimensions kept, of a tensor that is wide already.
Tensor wide_var(const Tensor& x, const Dims& dims, std::optional<Scalar> correction) {
  int64_t count = 1;
  for (int64_t d : dims) count = checked_mul(count, x.size(d));
  const double divisor =
      std::max(0.0, static_cast<double>(count) - (correction ? correction->to_double() : 1));
  const Tensor plain = x.detach();
  Tensor y = sum(square(plain - mean(plain, dims, true)), dims, true) / divisor;
  if (!records({&x})) return y;
  return record("var", y.array(), {&x},
                [=, saved = Saved(x)](Node& self, const Tensor& g) -> Grads {
                  const Tensor from = saved.tensor(self);
                  return {g * (2 / divisor) * (from - mean(from, dims, true))};
                });
}

enum class Spread : uint8_t { Variance, Deviation };

Tensor spread(const CastOp& op, Spread kind, const Tensor& in, const Dims& wanted,
              std::optional<Scalar> correction, bool keepdim) {
  const auto [x] = cast_inputs(op, in);
  check_floating(op.name, x);
  const Dims dims = wrap_dims(op.name, wanted, static_cast<int>(x.dim()));
  const Tensor v = wide_var(widened(x), dims, correction);
  const Tensor y = (kind == Spread::Variance ? v : root(v)).to(x.dtype());
  return keepdim ? y : detail::reshaped(y, reduced_shape(x.sizes(), dims, false));
}

/// Σ |x|ᵖ over `dims`, |0|ᵖ without a derivative.
Tensor power_sum(const Tensor& x, double p, const Dims& dims, bool keepdim) {
  if (p == 1) return sum(abs(x), dims, keepdim);
  if (p == 2) return sum(square(x), dims, keepdim);
  const double at_zero = p > 0 ? 0 : std::numeric_limits<double>::infinity();
  return sum(except_zero(abs(x), at_zero, [p](const Tensor& t) { return pow(t, p); }), dims,
             keepdim);
}

Tensor wide_norm(const Tensor& x, double p, const Dims& dims, bool keepdim) {
  if (p == 0) {  // a count: its derivative is 0, not absent
    const Tensor count = sum(x != 0, dims, keepdim, x.dtype());
    return record("norm", count.array(), {&x}, [](Node&, const Tensor&) { return Grads(1); });
  }
  if (p < 0 || std::isinf(p))
    for (int64_t d : wrap_dims("norm", dims, static_cast<int>(x.dim())))
      HALFTAPE_CHECK(x.size(d) > 0, "norm: dimension ", d, " of ", x.sizes(),
                     " is empty and has no norm of order ", p);
  if (std::isinf(p)) return p > 0 ? amax(abs(x), dims, keepdim) : amin(abs(x), dims, keepdim);
  Tensor s = power_sum(x, p, dims, keepdim);
  if (p == 1) return s;
  if (p == 2) return root(s);
  return except_zero(s, p > 0 ? 0 : std::numeric_limits<double>::infinity(),
                     [p](const Tensor& t) { return pow(t, 1 / p); });
}

}  // namespace

Tensor var(const Tensor& x, const Dims& dims, std::optional<Scalar> correction, bool keepdim) {
  return spread(cast_list::var, Spread::Variance, x, dims, correction, keepdim);
}
Tensor std(const Tensor& x, const Dims& dims, std::optional<Scalar> correction, bool keepdim) {
  return spread(cast_list::std, Spread::Deviation, x, dims, correction, keepdim);
}
std::tuple<Tensor, Tensor> var_mean(const Tensor& x, const Dims& dims,
                                    std::optional<Scalar> correction, bool keepdim) {
  const ErrorScope scope("var_mean", x);
  return {var(x, dims, correction, keepdim), mean(x, dims, keepdim)};
}
std::tuple<Tensor, Tensor> std_mean(const Tensor& x, const Dims& dims,
                                    std::optional<Scalar> correction, bool keepdim) {
  const ErrorScope scope("std_mean", x);
  return {std(x, dims, correction, keepdim), mean(x, dims, keepdim)};
}

Tensor linalg_vector_norm(const Tensor& in, Scalar ord, const Dims& dims, bool keepdim,
                          std::optional<Dtype> dtype) {
  const ErrorScope scope("norm", in);
  const auto [cast_in] = cast_inputs(cast_list::norm.unless(dtype), in);
  const Tensor x = cast_in.to(dtype.value_or(cast_in.dtype()));
  check_floating("norm", in);
  check_floating("norm", x);
  return wide_norm(widened(x), ord.to_double(), dims, keepdim).to(x.dtype());
}
Tensor norm(const Tensor& x, Scalar p) { return linalg_vector_norm(x, p); }
Tensor norm(const Tensor& x, std::optional<Scalar> p, const Dims& dims, bool keepdim,
            std::optional<Dtype> dtype) {
  return linalg_vector_norm(x, p.value_or(2), dims, keepdim, dtype);
}
Tensor norm(const Tensor& x, std::optional<Scalar> p, Dtype dtype) {
  return linalg_vector_norm(x, p.value_or(2), {}, false, dtype);
}

Tensor logsumexp(const Tensor& in, const Dims& wanted, bool keepdim) {
  const ErrorScope scope("logsumexp", in);
  const auto [cast_in] = cast_inputs(cast_list::logsumexp, in);
  const Tensor given = cast_in.is_floating_point() ? cast_in : cast_in.to(get_default_dtype());
  const Tensor x = widened(given);
  const Dims dims = wrap_dims("logsumexp", wanted, static_cast<int>(x.dim()));
  const Shape shape = x.sizes(), left = reduced_shape(shape, dims, keepdim);
  const Tensor from = x.detach();
  constexpr double inf = std::numeric_limits<double>::infinity();
  Tensor top = zeros(reduced_shape(shape, dims, true), x.options());
  if (x.numel() > 0) {
    top = amax(from, dims, true);
    top = where(abs(top) == inf, 0, top);  // ∞ − ∞ is NaN, and needs no scaling anyway
  }
  const Tensor y = log(sum(exp(from - top), dims, true)) + top;
  if (!records({&x})) return detail::reshaped(y, left).to(given.dtype());
  const Tensor out =
      record("logsumexp", y.array(), {&x},
             [x = Saved(x), y = Saved(y.array())](Node& self, const Tensor& g) -> Grads {
               // A row of −∞ has no direction to grow in: 0, where e^(−∞ + ∞) would be NaN.
               const Tensor top_y = y.tensor(self);
               return {g * exp(x.tensor(self) - where(top_y == -inf, 0, top_y))};
             });
  return detail::reshaped(out, left).to(given.dtype());
}

Tensor renorm(const Tensor& in, Scalar p, int64_t dim, Scalar maxnorm) {
  const ErrorScope scope("renorm", in);
  const auto inputs = cast_inputs(cast_list::renorm, in);
  const Tensor& x = inputs[0];
  check_floating("renorm", x);
  const double most = maxnorm.to_double();
  HALFTAPE_CHECK(p.to_double() > 0, "renorm: p = ", p.to_double(), " is not positive");
  HALFTAPE_CHECK(most >= 0, "renorm: maxnorm ", most, " is not at least 0");
  HALFTAPE_CHECK(x.dim() >= 2, "renorm: input ", x.sizes(), "; expected two dimensions or more");
  const int d = wrap_dim("renorm", dim, static_cast<int>(x.dim()));
  Dims others;
  for (int i = 0; i < x.dim(); ++i)
    if (i != d) others.push_back(i);
  if (x.numel() == 0) return clone(x);
  // In float64, as a square of a large float32 is infinite, and would make zeros of its row.
  const Tensor wide = x.to(kFloat64), size = wide_norm(wide, p.to_double(), others, true);
  const Tensor above = size > most;
  return (wide * where(above, most / (where(above, size, 1) + 1e-7), 1)).to(x.dtype());
}

Tensor dist(const Tensor& a_in, const Tensor& b_in, Scalar p) {
  const ErrorScope scope("dist", a_in, b_in);
  const auto [a, b] = cast_inputs(cast_list::dist, a_in, b_in);
  const PolicyScope plain(nullptr);
  const Tensor d = widened(a) - widened(b);
  return norm(d, p).to(promote(a.dtype(), b.dtype()));
}

Tensor pairwise_distance(const Tensor& a_in, const Tensor& b_in, double p, double eps,
                         bool keepdim) {
  const ErrorScope scope("pairwise_distance", a_in, b_in);
  const auto [a, b] = cast_inputs(cast_list::pairwise_distance, a_in, b_in);
  HALFTAPE_CHECK(a.dim() > 0 && b.dim() > 0, "pairwise_distance: ", a.sizes(), " and ", b.sizes(),
                 " need a dimension to measure along");
  const Tensor d = widened(a) - widened(b) + eps;
  const Tensor y = norm(d, p, {-1}, keepdim);
  const Dtype dtype = promote(a.dtype(), b.dtype());
  return is_floating_point(dtype) ? y.to(dtype) : y;
}

Tensor cosine_similarity(const Tensor& a_in, const Tensor& b_in, int64_t dim, double eps) {
  const ErrorScope scope("cosine_similarity", a_in, b_in);
  const auto [a, b] = cast_inputs(cast_list::cosine_similarity, a_in, b_in);
  const PolicyScope plain(nullptr);
  const Shape shape = broadcast("cosine_similarity", a.sizes(), b.sizes());
  auto unit = [&](const Tensor& t) {
    const Tensor x = expand(widened(t), shape);
    return x / clamp(norm(x, 2, {dim}, true), eps);
  };
  return sum(unit(a) * unit(b), {dim}).to(promote(a.dtype(), b.dtype()));
}

Tensor cdist(const Tensor& a_in, const Tensor& b_in, double p) {
  const ErrorScope scope("cdist", a_in, b_in);
  const auto [a, b] = cast_inputs(cast_list::cdist, a_in, b_in);
  HALFTAPE_CHECK(p >= 0, "cdist: p = ", p, " is negative");
  HALFTAPE_CHECK(a.dim() >= 2 && b.dim() >= 2 && a.size(-1) == b.size(-1), "cdist: ", a.sizes(),
                 " and ", b.sizes(), "; expected (…, m, k) and (…, n, k)");
  const Tensor d = unsqueeze(widened(a), -2) - unsqueeze(widened(b), -3);
  if (d.size(-1) > 0 || !std::isinf(p)) return norm(d, p, {-1}).to(promote(a.dtype(), b.dtype()));
  return sum(d, {-1}).to(promote(a.dtype(), b.dtype()));  // no coordinates: no distance
}

Tensor pdist(const Tensor& x_in, double p) {
  const ErrorScope scope("pdist", x_in);
  const auto inputs = cast_inputs(cast_list::pdist, x_in);
  const Tensor& x = inputs[0];
  HALFTAPE_CHECK(p >= 0, "pdist: p = ", p, " is negative");
  HALFTAPE_CHECK(x.dim() == 2, "pdist: input ", x.sizes(), "; expected (m, k)");
  check_floating("pdist", x);
  const int64_t m = x.size(0), count = m > 0 ? checked_mul(m, m - 1) / 2 : 0;
  if (x.size(1) == 0) return zeros({count}, x.options());
  const Array first(count, kInt64, Device(kCPU)), second = empty_like(first);
  int64_t *a = first.data<int64_t>(), *b = second.data<int64_t>();
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = i + 1; j < m; ++j) *a++ = i, *b++ = j;
  const auto rows = [wide = widened(x)](const Array& which) {
    return index_select(wide, 0, Tensor(which.to(wide.device())));
  };
  return norm(rows(first) - rows(second), p, {-1}).to(x.dtype());
}

}  // namespace halftape
