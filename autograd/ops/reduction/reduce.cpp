#include "halftape/core/formula/reduce.h"

#include "halftape/autograd/ops/cast_list.h"
#include "halftape/autograd/ops/creation/create.h"
#include "halftape/autograd/ops/elementwise/binary.h"
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

/// A reduced tensor seen with its reduced dimensions as 1, so that it broadcasts against the input.
Tensor keep_dims(const Tensor& y, const Shape& in, const Dims& dims) {
  return detail::reshaped(y, reduced_shape(in, dims, true));
}

template <class Op>
Array reduce(const Tensor& x, const Dims& dims, bool keepdim, Dtype dtype) {
  Array y(reduced_shape(x.sizes(), dims, false), dtype, x.device());
  backend(x.device()).reduce(ReduceOps::index<Op>(), y, x.array(), dims);
  return keepdim ? y.reshape(reduced_shape(x.sizes(), dims, true)) : y;
}

template <class Op>
Tensor extremum(const CastOp& op, const Tensor& in, const Dims& wanted, bool keepdim) {
  const auto [x] = cast_inputs(op, in);
  const Dims dims = wrap_dims(op.name, wanted, static_cast<int>(x.dim()));
  for (int64_t d : dims)
    HALFTAPE_CHECK(x.size(d) > 0, op.name, ": dimension ", d, " of ", x.sizes(),
                   " is empty and has no such value");
  const Array y = reduce<Op>(x, dims, keepdim, x.dtype());
  if (!records({&x})) return Tensor(y);
  return record(op.name, y, {&x},
                [in = Saved(x), y = Saved(y), dims](Node& self, const Tensor& g) -> Grads {
                  const Tensor from = in.tensor(self);
                  const Shape& shape = from.sizes();
                  const Tensor best = keep_dims(y.tensor(self).detach(), shape, dims);
                  const Tensor hits =
                      where(best == best, from == best, from != from).to(compute_dtype(g.dtype()));
                  const Tensor share = hits / keep_dims(sum(hits, dims), shape, dims);
                  return {(keep_dims(g, shape, dims) * share).to(g.dtype())};
                });
}

using ArgKernel = void (Backend::*)(const Array& y, const Array& x, int dim);

Tensor arg_extremum(const char* op, ArgKernel kernel, const Tensor& x, std::optional<int64_t> dim,
                    bool keepdim) {
  check_defined(op, x);
  const int rank = static_cast<int>(x.dim());
  const bool along = dim && rank > 0;
  const int d = dim ? wrap_dim(op, *dim, rank) : 0;
  const Tensor in = along ? x.detach() : detail::reshaped(x.detach(), {-1});
  HALFTAPE_CHECK(in.size(d) > 0, op, ": dimension ", d, " of ", x.sizes(),
                 " is empty and has no such value");
  const Array y(reduced_shape(in.sizes(), {d}, false), kInt64, x.device());
  (backend(x.device()).*kernel)(y, in.array(), d);
  if (!keepdim) return Tensor(y);
  return detail::reshaped(Tensor(y),
                          along ? reduced_shape(x.sizes(), {d}, true) : Dims::filled(rank, 1));
}

/// Values and indices along one dimension; the gradient goes where the indices point.
std::tuple<Tensor, Tensor> extremum_along(const CastOp& op, ArgKernel kernel, const Tensor& in,
                                          int64_t dim, bool keepdim) {
  const auto [x] = cast_inputs(op, in);
  const Tensor index = arg_extremum(op.name, kernel, x, dim, true);
  if (x.dim() == 0) return {clone(x), index};
  const int d = wrap_dim(op.name, dim, static_cast<int>(x.dim()));
  const Tensor values = gather(x, d, index);
  if (keepdim) return {values, index};
  return {squeeze(values, d), squeeze(index, d)};
}

}  // namespace

Tensor sum(const Tensor& in, const Dims& wanted, bool keepdim, std::optional<Dtype> dtype) {
  const auto [cast_in] = cast_inputs(cast_list::sum.unless(dtype), in);
  const Dims dims = wrap_dims(formula::Sum::name, wanted, static_cast<int>(cast_in.dim()));
  const Dtype out = dtype.value_or(sum_dtype(cast_in.dtype()));
  // Whole numbers are summed as such: 1.5 + 1.5 in int64 is 2.
  const Tensor x = is_floating_point(out) ? cast_in : cast_in.to(out);
  return record(formula::Sum::name, reduce<formula::Sum>(x, dims, keepdim, out), {&x},
                [from = x.sizes(), type = x.dtype(), dims](Node&, const Tensor& g) -> Grads {
                  return {expand(keep_dims(g, from, dims), from).to(type)};
                });
}

Tensor nansum(const Tensor& x, const Dims& dims, bool keepdim, std::optional<Dtype> dtype) {
  const ErrorScope scope("nansum", x);
  return sum(x.is_floating_point() ? where(x == x, x, 0) : x, dims, keepdim,
             dtype.value_or(sum_dtype(x.dtype())));
}

Tensor mean(const Tensor& in, const Dims& wanted, bool keepdim, std::optional<Dtype> dtype) {
  const ErrorScope scope("mean", in);
  const auto [cast_in] = cast_inputs(cast_list::mean.unless(dtype), in);
  const Tensor x = cast_in.to(dtype.value_or(cast_in.dtype()));
  HALFTAPE_CHECK(x.is_floating_point(), "mean: of a tensor of ", x.dtype(),
                 "; convert it with .to(kFloat32), or pass dtype=kFloat32");
  int64_t count = 1;
  for (int64_t d : wrap_dims("mean", wanted, static_cast<int>(x.dim())))
    count = checked_mul(count, x.size(d));
  // A sum of halves may leave half's range where the mean does not.
  return (sum(x, wanted, keepdim, compute_dtype(x.dtype())) / count).to(x.dtype());
}

Tensor nanmean(const Tensor& in, const Dims& dims, bool keepdim, std::optional<Dtype> dtype) {
  const ErrorScope scope("nanmean", in);
  const Tensor x = in.to(dtype.value_or(in.dtype()));
  HALFTAPE_CHECK(x.is_floating_point(), "nanmean: of a tensor of ", x.dtype(),
                 "; convert it with .to(kFloat32), or pass dtype=kFloat32");
  const Dtype type = compute_dtype(x.dtype());
  return (nansum(x, dims, keepdim, type) / sum(x == x, dims, keepdim, type)).to(x.dtype());
}

Tensor prod(const Tensor& in, int64_t dim, bool keepdim, std::optional<Dtype> dtype) {
  const auto [cast_in] = cast_inputs(cast_list::prod.unless(dtype), in);
  const int d = wrap_dim(formula::Prod::name, dim, static_cast<int>(cast_in.dim()));
  const Tensor x = cast_in.to(dtype.value_or(sum_dtype(cast_in.dtype())));
  if (x.dim() == 0) return clone(x);
  const Array y = reduce<formula::Prod>(x, {d}, keepdim, x.dtype());
  if (!records({&x})) return Tensor(y);
  return record(formula::Prod::name, y, {&x},
                [d, saved = Saved(x)](Node& self, const Tensor& g) -> Grads {
                  // The product of all before times that of all after. In float64, whose range
                  // holds partial products that the result does not.
                  const Tensor from = saved.tensor(self).to(kFloat64);
                  const Tensor before = detail::shifted(detail::cumprod(from, d, false), d, 1, 1),
                               after = detail::shifted(detail::cumprod(from, d, true), d, -1, 1);
                  return {(keep_dims(g, from.sizes(), {d}) * (before * after)).to(g.dtype())};
                });
}
Tensor prod(const Tensor& x, std::optional<Dtype> dtype) {
  check_defined("prod", x);
  return prod(detail::reshaped(x, {-1}), 0, false, dtype);
}

Tensor amax(const Tensor& x, const Dims& dims, bool keepdim) {
  return extremum<formula::Max>(cast_list::amax, x, dims, keepdim);
}
Tensor amin(const Tensor& x, const Dims& dims, bool keepdim) {
  return extremum<formula::Min>(cast_list::amin, x, dims, keepdim);
}
std::tuple<Tensor, Tensor> aminmax(const Tensor& x, std::optional<int64_t> dim, bool keepdim) {
  const Dims dims = dim ? Dims{*dim} : Dims{};
  return {extremum<formula::Min>(cast_list::aminmax, x, dims, keepdim),
          extremum<formula::Max>(cast_list::aminmax, x, dims, keepdim)};
}

Tensor argmax(const Tensor& x, std::optional<int64_t> dim, bool keepdim) {
  return arg_extremum("argmax", &Backend::argmax, x, dim, keepdim);
}
Tensor argmin(const Tensor& x, std::optional<int64_t> dim, bool keepdim) {
  return arg_extremum("argmin", &Backend::argmin, x, dim, keepdim);
}

Tensor max(const Tensor& x) { return extremum<formula::Max>(cast_list::max, x, {}, false); }
Tensor min(const Tensor& x) { return extremum<formula::Min>(cast_list::min, x, {}, false); }
std::tuple<Tensor, Tensor> max(const Tensor& x, int64_t dim, bool keepdim) {
  return extremum_along(cast_list::max, &Backend::argmax, x, dim, keepdim);
}
std::tuple<Tensor, Tensor> min(const Tensor& x, int64_t dim, bool keepdim) {
  return extremum_along(cast_list::min, &Backend::argmin, x, dim, keepdim);
}
Tensor max(const Tensor& a, const Tensor& b) {
  const ErrorScope scope("max", a, b);
  return maximum(a, b);
}
Tensor min(const Tensor& a, const Tensor& b) {
  const ErrorScope scope("min", a, b);
  return minimum(a, b);
}

Tensor any(const Tensor& x, const Dims& dims, bool keepdim) {
  const ErrorScope scope("any", x);
  return sum(x != 0, dims, keepdim) != 0;
}
Tensor all(const Tensor& x, const Dims& dims, bool keepdim) {
  const ErrorScope scope("all", x);
  return sum(x == 0, dims, keepdim) == 0;
}
Tensor count_nonzero(const Tensor& x, const Dims& dims) {
  const ErrorScope scope("count_nonzero", x);
  return sum(x != 0, dims);
}

}  // namespace halftape
