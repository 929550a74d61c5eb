// Tensor's methods: those that are functions of autograd/ops under another spelling, and those that
// convert, move and compare.
#include <cmath>

#include "halftape/autograd/indexing.h"
#include "halftape/autograd/ops/creation/create.h"
#include "halftape/autograd/ops/creation/random.h"
#include "halftape/autograd/ops/elementwise/binary.h"
#include "halftape/autograd/ops/elementwise/mask.h"
#include "halftape/autograd/ops/elementwise/pointwise.h"
#include "halftape/autograd/ops/elementwise/unary.h"
#include "halftape/autograd/ops/indexing/index.h"
#include "halftape/autograd/ops/indexing/sort.h"
#include "halftape/autograd/ops/layout/shape.h"
#include "halftape/autograd/ops/layout/view.h"
#include "halftape/autograd/ops/product/einsum.h"
#include "halftape/autograd/ops/product/matmul.h"
#include "halftape/autograd/ops/reduction/reduce.h"
#include "halftape/autograd/ops/reduction/scan.h"
#include "halftape/autograd/ops/reduction/softmax.h"
#include "halftape/autograd/ops/reduction/statistics.h"
#include "halftape/autograd/tape/error_scope.h"
#include "halftape/autograd/tape/record.h"

namespace halftape {

namespace ht = halftape;  // inside a method the plain name would be the method

using Pair = std::tuple<Tensor, Tensor>;
using MaybeDtype = std::optional<Dtype>;

// x.name(…) is name(x, …).
#define HALFTAPE_METHOD(result, name, parameters, ...) \
  result Tensor::name parameters const { return ht::name(*this __VA_OPT__(, ) __VA_ARGS__); }

HALFTAPE_METHOD(Tensor, clone, ())
HALFTAPE_METHOD(Tensor, contiguous, (MemoryFormat format), format)
HALFTAPE_METHOD(Tensor, view, (const Shape& shape), shape)
HALFTAPE_METHOD(Tensor, view, (Dtype dtype), dtype)
HALFTAPE_METHOD(Tensor, reshape, (const Shape& shape), shape)
HALFTAPE_METHOD(Tensor, flatten, (int64_t a, int64_t b), a, b)
HALFTAPE_METHOD(Tensor, unflatten, (int64_t d, const Shape& sizes), d, sizes)
HALFTAPE_METHOD(Tensor, squeeze, ())
HALFTAPE_METHOD(Tensor, squeeze, (int64_t d), d)
HALFTAPE_METHOD(Tensor, squeeze, (const Dims& dims), dims)
HALFTAPE_METHOD(Tensor, unsqueeze, (int64_t d), d)
HALFTAPE_METHOD(Tensor, transpose, (int64_t a, int64_t b), a, b)
Tensor Tensor::t() const {
  HALFTAPE_CHECK(dim() <= 2, "t: expected at most 2 dimensions, got ", sizes());
  return dim() == 2 ? ht::transpose(*this, 0, 1) : ht::reshape(*this, sizes());
}
HALFTAPE_METHOD(Tensor, permute, (const Dims& order), order)
HALFTAPE_METHOD(Tensor, movedim, (int64_t source, int64_t destination), source, destination)
HALFTAPE_METHOD(Tensor, movedim, (const Dims& source, const Dims& destination), source, destination)
HALFTAPE_METHOD(Tensor, expand, (const Shape& shape), shape)
Tensor Tensor::sum_to_size(const Shape& shape) const {
  const ErrorScope scope("sum_to_size", *this);
  HALFTAPE_CHECK(broadcasts_to(shape, sizes()), "sum_to_size: ", shape,
                 " does not broadcast to the tensor's ", sizes());
  return ht::sum_to(*this, shape);
}
HALFTAPE_METHOD(Tensor, as_strided,
                (const Shape& size, const Strides& stride, std::optional<int64_t> storage_offset),
                size, stride, storage_offset)
HALFTAPE_METHOD(Tensor, as_strided_scatter,
                (const Tensor& window, const Shape& size, const Strides& stride,
                 std::optional<int64_t> storage_offset),
                window, size, stride, storage_offset)
HALFTAPE_METHOD(Tensor, slice,
                (int64_t d, std::optional<int64_t> start, std::optional<int64_t> end, int64_t step),
                d, start, end, step)
HALFTAPE_METHOD(Tensor, narrow, (int64_t d, int64_t start, int64_t length), d, start, length)
HALFTAPE_METHOD(Tensor, select, (int64_t d, int64_t index), d, index)
HALFTAPE_METHOD(Tensor, index_select, (int64_t d, const Tensor& index), d, index)
HALFTAPE_METHOD(Tensor, unfold, (int64_t d, int64_t size, int64_t step), d, size, step)
HALFTAPE_METHOD(Tensor, diagonal, (int64_t offset, int64_t dim1, int64_t dim2), offset, dim1, dim2)
HALFTAPE_METHOD(Tensor, diag_embed, (int64_t offset, int64_t dim1, int64_t dim2), offset, dim1,
                dim2)
HALFTAPE_METHOD(Tensor, diag, (int64_t diagonal), diagonal)
HALFTAPE_METHOD(Tensor, tril, (int64_t diagonal), diagonal)
HALFTAPE_METHOD(Tensor, triu, (int64_t diagonal), diagonal)
HALFTAPE_METHOD(TensorList, split, (int64_t size, int64_t d), size, d)
HALFTAPE_METHOD(TensorList, split, (const std::vector<int64_t>& sizes, int64_t d), sizes, d)
HALFTAPE_METHOD(TensorList, split_with_sizes, (const std::vector<int64_t>& sizes, int64_t d), sizes,
                d)
HALFTAPE_METHOD(TensorList, chunk, (int64_t chunks, int64_t d), chunks, d)
HALFTAPE_METHOD(TensorList, tensor_split, (int64_t sections, int64_t d), sections, d)
HALFTAPE_METHOD(TensorList, tensor_split, (const std::vector<int64_t>& indices, int64_t d), indices,
                d)
HALFTAPE_METHOD(TensorList, unbind, (int64_t d), d)
HALFTAPE_METHOD(Tensor, repeat, (const Shape& repeats), repeats)
HALFTAPE_METHOD(Tensor, tile, (const Shape& repeats), repeats)
HALFTAPE_METHOD(Tensor, repeat_interleave, (int64_t repeats, std::optional<int64_t> d), repeats, d)
HALFTAPE_METHOD(Tensor, repeat_interleave, (const Tensor& repeats, std::optional<int64_t> d),
                repeats, d)
HALFTAPE_METHOD(Tensor, flip, (const Dims& dims), dims)
HALFTAPE_METHOD(Tensor, fliplr, ())
HALFTAPE_METHOD(Tensor, flipud, ())
HALFTAPE_METHOD(Tensor, roll, (const Dims& shifts, const Dims& dims), shifts, dims)
HALFTAPE_METHOD(Tensor, roll, (int64_t shift, std::optional<int64_t> d), shift, d)
HALFTAPE_METHOD(Tensor, rot90, (int64_t k, const Dims& dims), k, dims)

Indexed Tensor::operator[](const Tensor& i) const { return index(i); }
Indexed Tensor::index(std::initializer_list<indexing::TensorIndex> indices) const {
  return index(std::vector(indices));
}
Indexed Tensor::index(const std::vector<indexing::TensorIndex>& indices) const {
  const Tensor y = ht::index(*this, indices);
  return y.array().buffer() == array().buffer() ? Indexed(y) : Indexed(y, *this, indices);
}
Indexed Tensor::index(const Tensor& indices) const {
  return index(std::vector<indexing::TensorIndex>{indices});
}
HALFTAPE_METHOD(Tensor, index_put,
                (const std::vector<indexing::TensorIndex>& indices, const Tensor& values,
                 bool accumulate),
                indices, values, accumulate)
HALFTAPE_METHOD(Tensor, index_add, (int64_t d, const Tensor& i, const Tensor& source, Scalar alpha),
                d, i, source, alpha)
HALFTAPE_METHOD(Tensor, index_copy, (int64_t d, const Tensor& i, const Tensor& source), d, i,
                source)
HALFTAPE_METHOD(Tensor, index_fill, (int64_t d, const Tensor& i, Scalar value), d, i, value)
HALFTAPE_METHOD(Tensor, index_fill, (int64_t d, const Tensor& i, const Tensor& value), d, i, value)
HALFTAPE_METHOD(Tensor, gather, (int64_t d, const Tensor& i), d, i)
HALFTAPE_METHOD(Tensor, scatter, (int64_t d, const Tensor& i, const Tensor& src), d, i, src)
HALFTAPE_METHOD(Tensor, scatter, (int64_t d, const Tensor& i, Scalar value), d, i, value)
HALFTAPE_METHOD(Tensor, scatter,
                (int64_t d, const Tensor& i, const Tensor& src, std::string_view how), d, i, src,
                how)
HALFTAPE_METHOD(Tensor, scatter, (int64_t d, const Tensor& i, Scalar value, std::string_view how),
                d, i, value, how)
HALFTAPE_METHOD(Tensor, scatter_reduce,
                (int64_t d, const Tensor& i, const Tensor& src, std::string_view how,
                 bool include_self),
                d, i, src, how, include_self)
HALFTAPE_METHOD(Tensor, scatter_add, (int64_t d, const Tensor& i, const Tensor& src), d, i, src)
HALFTAPE_METHOD(Tensor, take, (const Tensor& i), i)
HALFTAPE_METHOD(Tensor, take_along_dim, (const Tensor& i, std::optional<int64_t> d), i, d)
HALFTAPE_METHOD(Tensor, masked_fill, (const Tensor& mask, Scalar value), mask, value)
HALFTAPE_METHOD(Tensor, masked_fill, (const Tensor& mask, const Tensor& value), mask, value)
HALFTAPE_METHOD(Tensor, masked_select, (const Tensor& mask), mask)
HALFTAPE_METHOD(Tensor, masked_scatter, (const Tensor& mask, const Tensor& source), mask, source)
HALFTAPE_METHOD(Tensor, nonzero, ())
HALFTAPE_METHOD(TensorList, nonzero_numpy, ())

#define HALFTAPE_METHOD_ALONE(name) HALFTAPE_METHOD(Tensor, name, ())
#define HALFTAPE_METHOD_OF_TENSOR(name) HALFTAPE_METHOD(Tensor, name, (const Tensor& o), o)
#define HALFTAPE_METHOD_OF_EITHER(name) \
  HALFTAPE_METHOD_OF_TENSOR(name)       \
  HALFTAPE_METHOD(Tensor, name, (Scalar o), o)
HALFTAPE_UNARY_METHODS(HALFTAPE_METHOD_ALONE)
HALFTAPE_PURE_UNARY_METHODS(HALFTAPE_METHOD_ALONE)
HALFTAPE_TENSOR_METHODS(HALFTAPE_METHOD_OF_TENSOR)
HALFTAPE_PURE_BINARY_METHODS(HALFTAPE_METHOD_OF_TENSOR)
HALFTAPE_PRODUCT_METHODS(HALFTAPE_METHOD_OF_TENSOR)
HALFTAPE_BINARY_METHODS(HALFTAPE_METHOD_OF_EITHER)
HALFTAPE_METHOD_OF_EITHER(mul)
#undef HALFTAPE_METHOD_ALONE
#undef HALFTAPE_METHOD_OF_TENSOR
#undef HALFTAPE_METHOD_OF_EITHER
HALFTAPE_METHOD(Tensor, add, (const Tensor& o, Scalar alpha), o, alpha)
HALFTAPE_METHOD(Tensor, add, (Scalar o, Scalar alpha), o, alpha)
HALFTAPE_METHOD(Tensor, sub, (const Tensor& o, Scalar alpha), o, alpha)
HALFTAPE_METHOD(Tensor, sub, (Scalar o, Scalar alpha), o, alpha)
HALFTAPE_METHOD(Tensor, div, (const Tensor& o, std::optional<std::string_view> mode), o, mode)
HALFTAPE_METHOD(Tensor, div, (Scalar o, std::optional<std::string_view> mode), o, mode)
HALFTAPE_METHOD(Tensor, addcmul, (const Tensor& a, const Tensor& b, Scalar value), a, b, value)
HALFTAPE_METHOD(Tensor, addcdiv, (const Tensor& a, const Tensor& b, Scalar value), a, b, value)
HALFTAPE_METHOD(Tensor, lerp, (const Tensor& end, Scalar w), end, w)
HALFTAPE_METHOD(Tensor, lerp, (const Tensor& end, const Tensor& w), end, w)
HALFTAPE_METHOD(Tensor, clamp, (std::optional<Scalar> min, std::optional<Scalar> max), min, max)
HALFTAPE_METHOD(Tensor, clamp, (const std::optional<Tensor>& min, const std::optional<Tensor>& max),
                min, max)
HALFTAPE_METHOD(Tensor, logit, (std::optional<double> eps), eps)
HALFTAPE_METHOD(Tensor, hardshrink, (Scalar lambd), lambd)
HALFTAPE_METHOD(Tensor, nan_to_num,
                (std::optional<double> nan, std::optional<double> posinf,
                 std::optional<double> neginf),
                nan, posinf, neginf)
Tensor Tensor::where(const Tensor& condition, const Tensor& o) const {
  return ht::where(condition, *this, o);
}
Tensor Tensor::where(const Tensor& condition, Scalar o) const {
  return ht::where(condition, *this, o);
}

Tensor Tensor::sum(MaybeDtype d) const { return ht::sum(*this, {}, false, d); }
HALFTAPE_METHOD(Tensor, sum, (const Dims& dims, bool keepdim, MaybeDtype d), dims, keepdim, d)
HALFTAPE_METHOD(Tensor, nansum, (const Dims& dims, bool keepdim, MaybeDtype d), dims, keepdim, d)
Tensor Tensor::mean(MaybeDtype d) const { return ht::mean(*this, {}, false, d); }
HALFTAPE_METHOD(Tensor, mean, (const Dims& dims, bool keepdim, MaybeDtype d), dims, keepdim, d)
HALFTAPE_METHOD(Tensor, nanmean, (const Dims& dims, bool keepdim, MaybeDtype d), dims, keepdim, d)
HALFTAPE_METHOD(Tensor, prod, (MaybeDtype d), d)
HALFTAPE_METHOD(Tensor, prod, (int64_t d, bool keepdim, MaybeDtype dt), d, keepdim, dt)
HALFTAPE_METHOD(Tensor, amax, (const Dims& dims, bool keepdim), dims, keepdim)
HALFTAPE_METHOD(Tensor, amin, (const Dims& dims, bool keepdim), dims, keepdim)
HALFTAPE_METHOD(Pair, aminmax, (std::optional<int64_t> d, bool keepdim), d, keepdim)
HALFTAPE_METHOD(Tensor, argmax, (std::optional<int64_t> d, bool keepdim), d, keepdim)
HALFTAPE_METHOD(Tensor, argmin, (std::optional<int64_t> d, bool keepdim), d, keepdim)
HALFTAPE_METHOD(Tensor, max, ())
HALFTAPE_METHOD(Tensor, min, ())
HALFTAPE_METHOD(Pair, max, (int64_t d, bool keepdim), d, keepdim)
HALFTAPE_METHOD(Pair, min, (int64_t d, bool keepdim), d, keepdim)
HALFTAPE_METHOD(Tensor, max, (const Tensor& o), o)
HALFTAPE_METHOD(Tensor, min, (const Tensor& o), o)
HALFTAPE_METHOD(Tensor, any, (const Dims& dims, bool keepdim), dims, keepdim)
HALFTAPE_METHOD(Tensor, all, (const Dims& dims, bool keepdim), dims, keepdim)
HALFTAPE_METHOD(Tensor, count_nonzero, (const Dims& dims), dims)
HALFTAPE_METHOD(Tensor, var, (const Dims& dims, std::optional<Scalar> correction, bool keepdim),
                dims, correction, keepdim)
HALFTAPE_METHOD(Tensor, std, (const Dims& dims, std::optional<Scalar> correction, bool keepdim),
                dims, correction, keepdim)
HALFTAPE_METHOD(Tensor, norm, (Scalar p), p)
HALFTAPE_METHOD(Tensor, norm,
                (std::optional<Scalar> p, const Dims& dims, bool keepdim, MaybeDtype d), p, dims,
                keepdim, d)
HALFTAPE_METHOD(Tensor, norm, (std::optional<Scalar> p, Dtype d), p, d)
HALFTAPE_METHOD(Tensor, renorm, (Scalar p, int64_t d, Scalar maxnorm), p, d, maxnorm)
HALFTAPE_METHOD(Tensor, dist, (const Tensor& o, Scalar p), o, p)
HALFTAPE_METHOD(Tensor, logsumexp, (const Dims& dims, bool keepdim), dims, keepdim)
HALFTAPE_METHOD(Tensor, softmax, (int64_t d, MaybeDtype dt), d, dt)
HALFTAPE_METHOD(Tensor, log_softmax, (int64_t d, MaybeDtype dt), d, dt)
HALFTAPE_METHOD(Tensor, cumsum, (int64_t d, MaybeDtype dt), d, dt)
HALFTAPE_METHOD(Tensor, cumprod, (int64_t d, MaybeDtype dt), d, dt)
HALFTAPE_METHOD(Pair, cummax, (int64_t d), d)
HALFTAPE_METHOD(Pair, cummin, (int64_t d), d)
HALFTAPE_METHOD(Tensor, logcumsumexp, (int64_t d), d)
HALFTAPE_METHOD(Tensor, diff,
                (int64_t n, int64_t d, const std::optional<Tensor>& prepend,
                 const std::optional<Tensor>& append),
                n, d, prepend, append)

HALFTAPE_METHOD(Pair, sort, (int64_t d, bool descending), d, descending)
HALFTAPE_METHOD(Pair, sort, (std::optional<bool> stable, int64_t d, bool descending), stable, d,
                descending)
HALFTAPE_METHOD(Tensor, argsort, (int64_t d, bool descending), d, descending)
HALFTAPE_METHOD(Tensor, argsort, (bool stable, int64_t d, bool descending), stable, d, descending)
HALFTAPE_METHOD(Tensor, msort, ())
HALFTAPE_METHOD(Pair, topk, (int64_t k, int64_t d, bool largest, bool sorted), k, d, largest,
                sorted)
HALFTAPE_METHOD(Pair, kthvalue, (int64_t k, int64_t d, bool keepdim), k, d, keepdim)
HALFTAPE_METHOD(Tensor, median, ())
HALFTAPE_METHOD(Pair, median, (int64_t d, bool keepdim), d, keepdim)
HALFTAPE_METHOD(Tensor, nanmedian, ())
HALFTAPE_METHOD(Pair, nanmedian, (int64_t d, bool keepdim), d, keepdim)
#define HALFTAPE_QUANTILE(name, Q)                                                               \
  HALFTAPE_METHOD(Tensor, name,                                                                  \
                  (Q q, std::optional<int64_t> d, bool keepdim, std::string_view between), q, d, \
                  keepdim, between)
HALFTAPE_QUANTILE(quantile, const Tensor&)
HALFTAPE_QUANTILE(quantile, double)
HALFTAPE_QUANTILE(nanquantile, const Tensor&)
HALFTAPE_QUANTILE(nanquantile, double)
#undef HALFTAPE_QUANTILE
HALFTAPE_METHOD(Tensor, bincount, (const Tensor& weights, int64_t minlength), weights, minlength)
HALFTAPE_METHOD(Tensor, histc, (int64_t bins, Scalar min, Scalar max), bins, min, max)

HALFTAPE_METHOD(Tensor, bernoulli, ())
HALFTAPE_METHOD(Tensor, bernoulli, (double p), p)
HALFTAPE_METHOD(Tensor, multinomial, (int64_t n, bool replacement), n, replacement)

HALFTAPE_METHOD(Tensor, cross, (const Tensor& o, std::optional<int64_t> d), o, d)
#define HALFTAPE_WITH_SUM(name)                                                                   \
  HALFTAPE_METHOD(Tensor, name, (const Tensor& a, const Tensor& b, Scalar beta, Scalar alpha), a, \
                  b, beta, alpha)
HALFTAPE_SUM_METHODS(HALFTAPE_WITH_SUM)
#undef HALFTAPE_WITH_SUM
HALFTAPE_METHOD(Tensor, matrix_power, (int64_t n), n)
HALFTAPE_METHOD(Tensor, trace, ())
#undef HALFTAPE_METHOD

Tensor Tensor::to(Dtype dtype, bool, bool copy) const {
  return copy && dtype == this->dtype() ? clone() : cast(*this, dtype);
}
Tensor Tensor::to(Device target, bool non_blocking, bool copy) const {
  if (target == device()) return copy ? clone() : *this;
  return record("to", array().to(target, non_blocking), {this},
                [from = device()](Node&, const Tensor& g) -> Grads { return {g.to(from)}; });
}
Tensor Tensor::pin_memory(Device gpu) const {
  HALFTAPE_CHECK(device().is_cpu(),
                 "pin_memory: only tensors on the CPU can be pinned, not one on ", device());
  if (is_pinned()) return *this;
  return record("pin_memory", array().pinned(gpu), {this},
                [](Node&, const Tensor& g) -> Grads { return {g}; });
}
Tensor Tensor::to(Device device, Dtype dtype, bool non_blocking, bool copy) const {
  const Tensor there = to(device, non_blocking).to(dtype);
  return copy && there.is_same(*this) ? clone() : there;
}
Tensor Tensor::to(const TensorOptions& o, bool non_blocking, bool copy) const {
  HALFTAPE_CHECK(!o.requires_grad(),
                 "to(options) expects unset requires_grad flag, but got options.requires_grad set "
                 "as true; call requires_grad_() on the result");
  return to(o.device_or(device()), o.dtype_or(dtype()), non_blocking, copy);
}
Tensor Tensor::to(const Tensor& other, bool non_blocking, bool copy) const {
  return to(other.device(), other.dtype(), non_blocking, copy);
}

Tensor Tensor::new_empty(const Shape& shape, const TensorOptions& o) const {
  return empty(shape, options().merge_in(o));
}
Tensor Tensor::new_empty_strided(const Shape& shape, const Strides& strides,
                                 const TensorOptions& o) const {
  return empty_strided(shape, strides, options().merge_in(o));
}
Tensor Tensor::new_zeros(const Shape& shape, const TensorOptions& o) const {
  return zeros(shape, options().merge_in(o));
}
Tensor Tensor::new_ones(const Shape& shape, const TensorOptions& o) const {
  return ones(shape, options().merge_in(o));
}
Tensor Tensor::new_full(const Shape& shape, Scalar value, const TensorOptions& o) const {
  return full(shape, value, options().merge_in(o));
}

bool Tensor::equal(const Tensor& o) const {
  if (sizes() != o.sizes() || dtype() != o.dtype()) return false;
  return numel() == 0 || eq(o).to(kInt64).sum().item<int64_t>() == numel();
}

Tensor Tensor::isclose(const Tensor& o, double rtol, double atol, bool equal_nan) const {
  const ErrorScope scope("isclose", *this, o);
  HALFTAPE_CHECK(rtol >= 0 && atol >= 0, "isclose: the tolerances rtol = ", rtol,
                 " and atol = ", atol, " must not be negative");
  Tensor close = detach() == o.detach();
  if (rtol == 0 && atol == 0 && !equal_nan) return close;  // int64 beyond 2^53, too
  const Tensor a = detach().to(kFloat64), b = o.detach().to(kFloat64);
  // Of float32 numbers, 0.1f is within 0.1 of 0.
  const double rounding = promote(dtype(), o.dtype()) == kFloat64 ? 0 : epsilon(kFloat32) / 2;
  const Tensor allowed = b.abs() * rtol + atol * (1 + rounding);
  // Written so that NaN and infinite differences fail; equal infinities are close.
  if (rtol > 0 || atol > 0)
    close = ht::maximum(close, ((a - b).abs() <= allowed) * (allowed < INFINITY));
  if (equal_nan) close = ht::maximum(close, (a != a) * (b != b));
  return close;
}

bool Tensor::allclose(const Tensor& o, double rtol, double atol, bool equal_nan) const {
  const ErrorScope scope("allclose", *this, o);
  const Tensor close = isclose(o, rtol, atol, equal_nan);
  return close.to(kInt64).sum().item<int64_t>() == close.numel();
}

}  // namespace halftape
