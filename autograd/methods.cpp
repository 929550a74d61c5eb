// Tensor's methods that are functions of autograd/ops under another spelling.
#include "halftape/autograd/indexing.h"
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

Tensor Tensor::clone() const { return ht::clone(*this); }
Tensor Tensor::contiguous() const { return ht::contiguous(*this); }
Tensor Tensor::view(const Shape& shape) const { return ht::view(*this, shape); }
Tensor Tensor::view(Dtype dtype) const { return ht::view(*this, dtype); }
Tensor Tensor::reshape(const Shape& shape) const { return ht::reshape(*this, shape); }
Tensor Tensor::flatten(int64_t a, int64_t b) const { return ht::flatten(*this, a, b); }
Tensor Tensor::unflatten(int64_t d, const Shape& sizes) const {
  return ht::unflatten(*this, d, sizes);
}
Tensor Tensor::squeeze() const { return ht::squeeze(*this); }
Tensor Tensor::squeeze(int64_t d) const { return ht::squeeze(*this, d); }
Tensor Tensor::squeeze(const Dims& dims) const { return ht::squeeze(*this, dims); }
Tensor Tensor::unsqueeze(int64_t d) const { return ht::unsqueeze(*this, d); }
Tensor Tensor::transpose(int64_t a, int64_t b) const { return ht::transpose(*this, a, b); }
Tensor Tensor::t() const {
  HALFTAPE_CHECK(dim() <= 2, "t: expected at most 2 dimensions, got ", sizes());
  return dim() == 2 ? ht::transpose(*this, 0, 1) : *this;
}
Tensor Tensor::permute(const Dims& order) const { return ht::permute(*this, order); }
Tensor Tensor::movedim(int64_t source, int64_t destination) const {
  return ht::movedim(*this, source, destination);
}
Tensor Tensor::movedim(const Dims& source, const Dims& destination) const {
  return ht::movedim(*this, source, destination);
}
Tensor Tensor::expand(const Shape& shape) const { return ht::expand(*this, shape); }
Tensor Tensor::sum_to_size(const Shape& shape) const {
  const ErrorScope scope("sum_to_size", *this);
  HALFTAPE_CHECK(broadcasts_to(shape, sizes()), "sum_to_size: ", shape,
                 " does not broadcast to the tensor's ", sizes());
  return ht::sum_to(*this, shape);
}
Tensor Tensor::as_strided(const Shape& size, const Strides& stride,
                          std::optional<int64_t> storage_offset) const {
  return ht::as_strided(*this, size, stride, storage_offset);
}
Tensor Tensor::as_strided_scatter(const Tensor& window, const Shape& size, const Strides& stride,
                                  std::optional<int64_t> storage_offset) const {
  return ht::as_strided_scatter(*this, window, size, stride, storage_offset);
}
Tensor Tensor::slice(int64_t d, std::optional<int64_t> start, std::optional<int64_t> end,
                     int64_t step) const {
  return ht::slice(*this, d, start, end, step);
}
Tensor Tensor::narrow(int64_t d, int64_t start, int64_t length) const {
  return ht::narrow(*this, d, start, length);
}
Tensor Tensor::select(int64_t d, int64_t index) const { return ht::select(*this, d, index); }
Tensor Tensor::index_select(int64_t d, const Tensor& index) const {
  return ht::index_select(*this, d, index);
}
Tensor Tensor::unfold(int64_t d, int64_t size, int64_t step) const {
  return ht::unfold(*this, d, size, step);
}
Tensor Tensor::diagonal(int64_t offset, int64_t dim1, int64_t dim2) const {
  return ht::diagonal(*this, offset, dim1, dim2);
}
Tensor Tensor::diag_embed(int64_t offset, int64_t dim1, int64_t dim2) const {
  return ht::diag_embed(*this, offset, dim1, dim2);
}
Tensor Tensor::diag(int64_t diagonal) const { return ht::diag(*this, diagonal); }
Tensor Tensor::tril(int64_t diagonal) const { return ht::tril(*this, diagonal); }
Tensor Tensor::triu(int64_t diagonal) const { return ht::triu(*this, diagonal); }
TensorList Tensor::split(int64_t size, int64_t d) const { return ht::split(*this, size, d); }
TensorList Tensor::split(const std::vector<int64_t>& sizes, int64_t d) const {
  return ht::split(*this, sizes, d);
}
TensorList Tensor::split_with_sizes(const std::vector<int64_t>& sizes, int64_t d) const {
  return ht::split_with_sizes(*this, sizes, d);
}
TensorList Tensor::chunk(int64_t chunks, int64_t d) const { return ht::chunk(*this, chunks, d); }
TensorList Tensor::tensor_split(int64_t sections, int64_t d) const {
  return ht::tensor_split(*this, sections, d);
}
TensorList Tensor::tensor_split(const std::vector<int64_t>& indices, int64_t d) const {
  return ht::tensor_split(*this, indices, d);
}
TensorList Tensor::unbind(int64_t d) const { return ht::unbind(*this, d); }
Tensor Tensor::repeat(const Shape& repeats) const { return ht::repeat(*this, repeats); }
Tensor Tensor::tile(const Shape& repeats) const { return ht::tile(*this, repeats); }
Tensor Tensor::repeat_interleave(int64_t repeats, std::optional<int64_t> d) const {
  return ht::repeat_interleave(*this, repeats, d);
}
Tensor Tensor::repeat_interleave(const Tensor& repeats, std::optional<int64_t> d) const {
  return ht::repeat_interleave(*this, repeats, d);
}
Tensor Tensor::flip(const Dims& dims) const { return ht::flip(*this, dims); }
Tensor Tensor::fliplr() const { return ht::fliplr(*this); }
Tensor Tensor::flipud() const { return ht::flipud(*this); }
Tensor Tensor::roll(const Dims& shifts, const Dims& dims) const {
  return ht::roll(*this, shifts, dims);
}
Tensor Tensor::roll(int64_t shift, std::optional<int64_t> d) const {
  return ht::roll(*this, shift, d);
}
Tensor Tensor::rot90(int64_t k, const Dims& dims) const { return ht::rot90(*this, k, dims); }

Tensor Tensor::operator[](const Tensor& i) const { return ht::index(*this, {i}); }
Tensor Tensor::index(std::initializer_list<indexing::TensorIndex> indices) const {
  return ht::index(*this, indices);
}
Tensor Tensor::index(const std::vector<indexing::TensorIndex>& indices) const {
  return ht::index(*this, indices);
}
Tensor Tensor::index(const Tensor& indices) const { return ht::index(*this, {indices}); }
Tensor Tensor::index_put(const std::vector<indexing::TensorIndex>& indices, const Tensor& values,
                         bool accumulate) const {
  return ht::index_put(*this, indices, values, accumulate);
}
Tensor Tensor::index_add(int64_t d, const Tensor& i, const Tensor& source, Scalar alpha) const {
  return ht::index_add(*this, d, i, source, alpha);
}
Tensor Tensor::index_copy(int64_t d, const Tensor& i, const Tensor& source) const {
  return ht::index_copy(*this, d, i, source);
}
Tensor Tensor::index_fill(int64_t d, const Tensor& i, Scalar value) const {
  return ht::index_fill(*this, d, i, value);
}
Tensor Tensor::index_fill(int64_t d, const Tensor& i, const Tensor& value) const {
  return ht::index_fill(*this, d, i, value);
}
Tensor Tensor::gather(int64_t d, const Tensor& i) const { return ht::gather(*this, d, i); }
Tensor Tensor::scatter(int64_t d, const Tensor& i, const Tensor& src) const {
  return ht::scatter(*this, d, i, src);
}
Tensor Tensor::scatter(int64_t d, const Tensor& i, Scalar value) const {
  return ht::scatter(*this, d, i, value);
}
Tensor Tensor::scatter(int64_t d, const Tensor& i, const Tensor& src, std::string_view how) const {
  return ht::scatter(*this, d, i, src, how);
}
Tensor Tensor::scatter(int64_t d, const Tensor& i, Scalar value, std::string_view how) const {
  return ht::scatter(*this, d, i, value, how);
}
Tensor Tensor::scatter_reduce(int64_t d, const Tensor& i, const Tensor& src, std::string_view how,
                              bool include_self) const {
  return ht::scatter_reduce(*this, d, i, src, how, include_self);
}
Tensor Tensor::scatter_add(int64_t d, const Tensor& i, const Tensor& src) const {
  return ht::scatter_add(*this, d, i, src);
}
Tensor Tensor::take(const Tensor& i) const { return ht::take(*this, i); }
Tensor Tensor::take_along_dim(const Tensor& i, std::optional<int64_t> d) const {
  return ht::take_along_dim(*this, i, d);
}
Tensor Tensor::masked_fill(const Tensor& mask, Scalar value) const {
  return ht::masked_fill(*this, mask, value);
}
Tensor Tensor::masked_fill(const Tensor& mask, const Tensor& value) const {
  return ht::masked_fill(*this, mask, value);
}
Tensor Tensor::masked_select(const Tensor& mask) const { return ht::masked_select(*this, mask); }
Tensor Tensor::masked_scatter(const Tensor& mask, const Tensor& source) const {
  return ht::masked_scatter(*this, mask, source);
}
Tensor Tensor::nonzero() const { return ht::nonzero(*this); }
TensorList Tensor::nonzero_numpy() const { return ht::nonzero_numpy(*this); }

#define HALFTAPE_METHOD(name) \
  Tensor Tensor::name() const { return ht::name(*this); }
#define HALFTAPE_METHOD_OF_TENSOR(name) \
  Tensor Tensor::name(const Tensor& o) const { return ht::name(*this, o); }
#define HALFTAPE_METHOD_OF_EITHER(name) \
  HALFTAPE_METHOD_OF_TENSOR(name)       \
  Tensor Tensor::name(Scalar o) const { return ht::name(*this, o); }
HALFTAPE_UNARY_METHODS(HALFTAPE_METHOD)
HALFTAPE_PURE_UNARY_METHODS(HALFTAPE_METHOD)
HALFTAPE_TENSOR_METHODS(HALFTAPE_METHOD_OF_TENSOR)
HALFTAPE_PURE_BINARY_METHODS(HALFTAPE_METHOD_OF_TENSOR)
HALFTAPE_BINARY_METHODS(HALFTAPE_METHOD_OF_EITHER)
HALFTAPE_METHOD_OF_EITHER(mul)
#undef HALFTAPE_METHOD
#undef HALFTAPE_METHOD_OF_TENSOR
#undef HALFTAPE_METHOD_OF_EITHER
Tensor Tensor::add(const Tensor& o, Scalar alpha) const { return ht::add(*this, o, alpha); }
Tensor Tensor::add(Scalar o, Scalar alpha) const { return ht::add(*this, o, alpha); }
Tensor Tensor::sub(const Tensor& o, Scalar alpha) const { return ht::sub(*this, o, alpha); }
Tensor Tensor::sub(Scalar o, Scalar alpha) const { return ht::sub(*this, o, alpha); }
Tensor Tensor::div(const Tensor& o, std::optional<std::string_view> mode) const {
  return ht::div(*this, o, mode);
}
Tensor Tensor::div(Scalar o, std::optional<std::string_view> mode) const {
  return ht::div(*this, o, mode);
}
Tensor Tensor::addcmul(const Tensor& a, const Tensor& b, Scalar value) const {
  return ht::addcmul(*this, a, b, value);
}
Tensor Tensor::addcdiv(const Tensor& a, const Tensor& b, Scalar value) const {
  return ht::addcdiv(*this, a, b, value);
}
Tensor Tensor::lerp(const Tensor& end, Scalar w) const { return ht::lerp(*this, end, w); }
Tensor Tensor::lerp(const Tensor& end, const Tensor& w) const { return ht::lerp(*this, end, w); }
Tensor Tensor::clamp(std::optional<Scalar> min, std::optional<Scalar> max) const {
  return ht::clamp(*this, min, max);
}
Tensor Tensor::clamp(const std::optional<Tensor>& min, const std::optional<Tensor>& max) const {
  return ht::clamp(*this, min, max);
}
Tensor Tensor::logit(std::optional<double> eps) const { return ht::logit(*this, eps); }
Tensor Tensor::hardshrink(Scalar lambd) const { return ht::hardshrink(*this, lambd); }
Tensor Tensor::nan_to_num(std::optional<double> nan, std::optional<double> posinf,
                          std::optional<double> neginf) const {
  return ht::nan_to_num(*this, nan, posinf, neginf);
}
Tensor Tensor::where(const Tensor& condition, const Tensor& o) const {
  return ht::where(condition, *this, o);
}
Tensor Tensor::where(const Tensor& condition, Scalar o) const {
  return ht::where(condition, *this, o);
}

using Pair = std::tuple<Tensor, Tensor>;
using MaybeDtype = std::optional<Dtype>;

Tensor Tensor::sum(MaybeDtype d) const { return ht::sum(*this, {}, false, d); }
Tensor Tensor::sum(const Dims& dims, bool keepdim, MaybeDtype d) const {
  return ht::sum(*this, dims, keepdim, d);
}
Tensor Tensor::nansum(const Dims& dims, bool keepdim, MaybeDtype d) const {
  return ht::nansum(*this, dims, keepdim, d);
}
Tensor Tensor::mean(MaybeDtype d) const { return ht::mean(*this, {}, false, d); }
Tensor Tensor::mean(const Dims& dims, bool keepdim, MaybeDtype d) const {
  return ht::mean(*this, dims, keepdim, d);
}
Tensor Tensor::nanmean(const Dims& dims, bool keepdim, MaybeDtype d) const {
  return ht::nanmean(*this, dims, keepdim, d);
}
Tensor Tensor::prod(MaybeDtype d) const { return ht::prod(*this, d); }
Tensor Tensor::prod(int64_t d, bool keepdim, MaybeDtype dt) const {
  return ht::prod(*this, d, keepdim, dt);
}
Tensor Tensor::amax(const Dims& dims, bool keepdim) const { return ht::amax(*this, dims, keepdim); }
Tensor Tensor::amin(const Dims& dims, bool keepdim) const { return ht::amin(*this, dims, keepdim); }
Pair Tensor::aminmax(std::optional<int64_t> d, bool keepdim) const {
  return ht::aminmax(*this, d, keepdim);
}
Tensor Tensor::argmax(std::optional<int64_t> d, bool keepdim) const {
  return ht::argmax(*this, d, keepdim);
}
Tensor Tensor::argmin(std::optional<int64_t> d, bool keepdim) const {
  return ht::argmin(*this, d, keepdim);
}
Tensor Tensor::max() const { return ht::max(*this); }
Tensor Tensor::min() const { return ht::min(*this); }
Pair Tensor::max(int64_t d, bool keepdim) const { return ht::max(*this, d, keepdim); }
Pair Tensor::min(int64_t d, bool keepdim) const { return ht::min(*this, d, keepdim); }
Tensor Tensor::max(const Tensor& o) const { return ht::max(*this, o); }
Tensor Tensor::min(const Tensor& o) const { return ht::min(*this, o); }
Tensor Tensor::any(const Dims& dims, bool keepdim) const { return ht::any(*this, dims, keepdim); }
Tensor Tensor::all(const Dims& dims, bool keepdim) const { return ht::all(*this, dims, keepdim); }
Tensor Tensor::count_nonzero(const Dims& dims) const { return ht::count_nonzero(*this, dims); }
Tensor Tensor::var(const Dims& dims, std::optional<Scalar> correction, bool keepdim) const {
  return ht::var(*this, dims, correction, keepdim);
}
Tensor Tensor::std(const Dims& dims, std::optional<Scalar> correction, bool keepdim) const {
  return ht::std(*this, dims, correction, keepdim);
}
Tensor Tensor::norm(Scalar p) const { return ht::norm(*this, p); }
Tensor Tensor::norm(std::optional<Scalar> p, const Dims& dims, bool keepdim, MaybeDtype d) const {
  return ht::norm(*this, p, dims, keepdim, d);
}
Tensor Tensor::norm(std::optional<Scalar> p, Dtype d) const { return ht::norm(*this, p, d); }
Tensor Tensor::dist(const Tensor& o, Scalar p) const { return ht::dist(*this, o, p); }
Tensor Tensor::logsumexp(const Dims& dims, bool keepdim) const {
  return ht::logsumexp(*this, dims, keepdim);
}
Tensor Tensor::softmax(int64_t d, MaybeDtype dt) const { return ht::softmax(*this, d, dt); }
Tensor Tensor::log_softmax(int64_t d, MaybeDtype dt) const { return ht::log_softmax(*this, d, dt); }
Tensor Tensor::cumsum(int64_t d, MaybeDtype dt) const { return ht::cumsum(*this, d, dt); }
Tensor Tensor::cumprod(int64_t d, MaybeDtype dt) const { return ht::cumprod(*this, d, dt); }
Pair Tensor::cummax(int64_t d) const { return ht::cummax(*this, d); }
Pair Tensor::cummin(int64_t d) const { return ht::cummin(*this, d); }
Tensor Tensor::logcumsumexp(int64_t d) const { return ht::logcumsumexp(*this, d); }
Tensor Tensor::diff(int64_t n, int64_t d, const std::optional<Tensor>& prepend,
                    const std::optional<Tensor>& append) const {
  return ht::diff(*this, n, d, prepend, append);
}

Pair Tensor::sort(int64_t d, bool descending) const { return ht::sort(*this, d, descending); }
Pair Tensor::sort(std::optional<bool> stable, int64_t d, bool descending) const {
  return ht::sort(*this, stable, d, descending);
}
Tensor Tensor::argsort(int64_t d, bool descending) const {
  return ht::argsort(*this, d, descending);
}
Tensor Tensor::argsort(bool stable, int64_t d, bool descending) const {
  return ht::argsort(*this, stable, d, descending);
}
Tensor Tensor::msort() const { return ht::msort(*this); }
Pair Tensor::topk(int64_t k, int64_t d, bool largest, bool sorted) const {
  return ht::topk(*this, k, d, largest, sorted);
}
Pair Tensor::kthvalue(int64_t k, int64_t d, bool keepdim) const {
  return ht::kthvalue(*this, k, d, keepdim);
}
Tensor Tensor::median() const { return ht::median(*this); }
Pair Tensor::median(int64_t d, bool keepdim) const { return ht::median(*this, d, keepdim); }
Tensor Tensor::nanmedian() const { return ht::nanmedian(*this); }
Pair Tensor::nanmedian(int64_t d, bool keepdim) const { return ht::nanmedian(*this, d, keepdim); }
Tensor Tensor::bincount(const Tensor& weights, int64_t minlength) const {
  return ht::bincount(*this, weights, minlength);
}
Tensor Tensor::histc(int64_t bins, Scalar min, Scalar max) const {
  return ht::histc(*this, bins, min, max);
}

Tensor Tensor::bernoulli() const { return ht::bernoulli(*this); }
Tensor Tensor::bernoulli(double p) const { return ht::bernoulli(*this, p); }
Tensor Tensor::multinomial(int64_t n, bool replacement) const {
  return ht::multinomial(*this, n, replacement);
}

Tensor Tensor::matmul(const Tensor& o) const { return ht::matmul(*this, o); }
Tensor Tensor::mm(const Tensor& o) const { return ht::mm(*this, o); }
Tensor Tensor::bmm(const Tensor& o) const { return ht::bmm(*this, o); }
Tensor Tensor::mv(const Tensor& v) const { return ht::mv(*this, v); }
Tensor Tensor::dot(const Tensor& o) const { return ht::dot(*this, o); }
Tensor Tensor::vdot(const Tensor& o) const { return ht::vdot(*this, o); }
Tensor Tensor::inner(const Tensor& o) const { return ht::inner(*this, o); }
Tensor Tensor::outer(const Tensor& o) const { return ht::outer(*this, o); }
Tensor Tensor::addmm(const Tensor& a, const Tensor& b, Scalar beta, Scalar alpha) const {
  return ht::addmm(*this, a, b, beta, alpha);
}
Tensor Tensor::addmv(const Tensor& a, const Tensor& v, Scalar beta, Scalar alpha) const {
  return ht::addmv(*this, a, v, beta, alpha);
}
Tensor Tensor::addr(const Tensor& u, const Tensor& v, Scalar beta, Scalar alpha) const {
  return ht::addr(*this, u, v, beta, alpha);
}
Tensor Tensor::baddbmm(const Tensor& a, const Tensor& b, Scalar beta, Scalar alpha) const {
  return ht::baddbmm(*this, a, b, beta, alpha);
}
Tensor Tensor::addbmm(const Tensor& a, const Tensor& b, Scalar beta, Scalar alpha) const {
  return ht::addbmm(*this, a, b, beta, alpha);
}
Tensor Tensor::matrix_power(int64_t n) const { return ht::matrix_power(*this, n); }
Tensor Tensor::trace() const { return ht::trace(*this); }
Tensor Tensor::kron(const Tensor& o) const { return ht::kron(*this, o); }

}  // namespace halftape
