#include "halftape/autograd/ops/elementwise/mask.h"

#include <algorithm>
#include <limits>

#include "halftape/autograd/ops/creation/create.h"
#include "halftape/autograd/ops/elementwise/binary.h"
#include "halftape/autograd/ops/indexing/index.h"
#include "halftape/autograd/ops/layout/dims.h"
#include "halftape/autograd/ops/layout/view.h"
#include "halftape/autograd/ops/reduction/reduce.h"
#include "halftape/autograd/tape/error_scope.h"
#include "halftape/core/contract/backend.h"

namespace halftape {
namespace {

/// The common shape of a tensor and its mask.
Shape check_mask(const char* op, const Tensor& x, const Tensor& mask) {
  HALFTAPE_CHECK(mask.dtype() == kBool, op, ": the mask is ", mask.dtype(),
                 ", expected bool (compare it with something)");
  HALFTAPE_CHECK(mask.device() == x.device(), op, ": the mask is on ", mask.device(),
                 ", the tensor on ", x.device(), "; move one with .to(device)");
  return broadcast(op, x.sizes(), mask.sizes());
}

/// The positions in the flattened tensor at which a mask is true.
Tensor positions(const Tensor& mask, const Shape& shape) {
  return detail::reshaped(nonzero(detail::reshaped(expand(mask, shape), {numel(shape)})), {-1});
}

/// bool (rows, columns): column − row ≤ diagonal, which may be any number.
Tensor below(const char* op, const Tensor& x, int64_t diagonal) {
  HALFTAPE_CHECK(x.dim() >= 2, op, ": of a tensor ", x.sizes(),
                 "; expected two dimensions or more");
  const TensorOptions there(x.device());
  const Tensor row = unsqueeze(arange(x.size(-2), there), 1), column = arange(x.size(-1), there);
  return le(column, row + std::clamp(diagonal, -x.size(-2), x.size(-1)));
}

Tensor indices(Tensor (*triangle)(const Tensor&, int64_t), const Shape& shape, int64_t offset,
               const TensorOptions& o) {
  const Tensor all = ones(shape, TensorOptions(kBool).device(o.device()));
  return contiguous(transpose(nonzero(triangle(all, offset)), 0, 1)).to(o.dtype_or(kInt64));
}

}  // namespace

Tensor masked_fill(const Tensor& x, const Tensor& mask, const Tensor& value) {
  const ErrorScope scope("masked_fill", x, mask, value);
  HALFTAPE_CHECK(value.dim() == 0, "masked_fill: value ", value.sizes(), " must be 0-dim");
  check_mask("masked_fill", x, mask);
  return where(mask, value.to(x.device()).to(x.dtype()), x);
}
Tensor masked_fill(const Tensor& x, const Tensor& mask, Scalar value) {
  const ErrorScope scope("masked_fill", x, mask);
  return masked_fill(x, mask, detail::number_like("masked_fill", x, value));
}

Tensor masked_select(const Tensor& x, const Tensor& mask) {
  const ErrorScope scope("masked_select", x, mask);
  const Shape shape = check_mask("masked_select", x, mask);
  return index_select(detail::reshaped(expand(x, shape), {numel(shape)}), 0,
                      positions(mask, shape));
}

Tensor masked_scatter(const Tensor& x, const Tensor& mask, const Tensor& source) {
  const ErrorScope scope("masked_scatter", x, mask, source);
  const Shape shape = check_mask("masked_scatter", x, mask);
  HALFTAPE_CHECK(source.dtype() == x.dtype(), "masked_scatter: source is ", source.dtype(),
                 ", the tensor ", x.dtype());
  const Tensor at = positions(mask, shape);
  HALFTAPE_CHECK(at.numel() <= source.numel(), "masked_scatter: the mask is true ", at.numel(),
                 " times, source ", source.sizes(), " has ", source.numel(), " elements");
  const Tensor taken = slice(detail::reshaped(source, {source.numel()}), 0, 0, at.numel());
  return detail::reshaped(
      index_copy(detail::reshaped(expand(x, shape), {numel(shape)}), 0, at, taken), shape);
}

Tensor nonzero(const Tensor& x) {
  const ErrorScope scope("nonzero", x);
  const Tensor hits = sum(ne(x.detach(), detail::number_like("nonzero", x, 0)));
  const Array y({hits.item<int64_t>(), x.dim()}, kInt64, x.device());
  backend(x.device()).nonzero(y, x.array());
  return Tensor(y);
}
Tensor argwhere(const Tensor& x) {
  const ErrorScope scope("argwhere", x);
  return nonzero(x);
}

TensorList nonzero_numpy(const Tensor& x) {
  const ErrorScope scope("nonzero_numpy", x);
  const Tensor at = nonzero(x.dim() == 0 ? unsqueeze(x, 0) : x);
  TensorList columns;
  for (int64_t d = 0; d < at.size(1); ++d) columns.push_back(select(at, 1, d));
  return columns;
}
TensorList where(const Tensor& condition) {
  const ErrorScope scope("where", condition);
  return nonzero_numpy(condition);
}

Tensor tril(const Tensor& x, int64_t diagonal) {
  const ErrorScope scope("tril", x);
  return where(below("tril", x, diagonal), x, detail::number_like("tril", x, 0));
}
Tensor triu(const Tensor& x, int64_t diagonal) {
  const ErrorScope scope("triu", x);
  const int64_t above = std::max(diagonal, std::numeric_limits<int64_t>::min() + 1) - 1;
  return where(below("triu", x, above), detail::number_like("triu", x, 0), x);
}

Tensor tril_indices(int64_t rows, int64_t columns, int64_t offset, const TensorOptions& o) {
  return indices(tril, {rows, columns}, offset, o);
}
Tensor triu_indices(int64_t rows, int64_t columns, int64_t offset, const TensorOptions& o) {
  return indices(triu, {rows, columns}, offset, o);
}

}  // namespace halftape
