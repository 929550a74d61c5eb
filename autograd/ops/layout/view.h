// Other layouts of the same bytes. A view shares its base's bytes and version.
#pragma once
#include "halftape/autograd/ops/layout/copies.h"

namespace halftape {

/// The same elements in another shape, row-major; one size may be −1. Throws where strides do not
/// allow a view.
Tensor view(const Tensor& x, const Shape& shape);
/// The same bytes read as another dtype, without history; a write to one shows in the other. Where
/// elements get smaller or larger, the last dimension gets longer or shorter: its stride must be 1,
/// and the new sizes, strides and offset whole numbers. Not as bool, whose bytes are only 0 or 1.
Tensor view(const Tensor& x, Dtype dtype);
/// view() where possible, otherwise a copy.
Tensor reshape(const Tensor& x, const Shape& shape);
/// Dimensions start_dim … end_dim joined to one.
Tensor flatten(const Tensor& x, int64_t start_dim = 0, int64_t end_dim = -1);
inline Tensor ravel(const Tensor& x) { return flatten(x); }
/// Without dimensions of size 1 (all of them, or one if it is 1).
Tensor squeeze(const Tensor& x);
Tensor squeeze(const Tensor& x, int64_t dim);
Tensor squeeze(const Tensor& x, const Dims& dims);
/// With a dimension of size 1 before `dim`.
Tensor unsqueeze(const Tensor& x, int64_t dim);
/// A view with two dimensions exchanged.
Tensor transpose(const Tensor& x, int64_t a, int64_t b);
inline Tensor swapaxes(const Tensor& x, int64_t a, int64_t b) { return transpose(x, a, b); }
inline Tensor swapdims(const Tensor& x, int64_t a, int64_t b) { return transpose(x, a, b); }
/// Dimensions in another order.
Tensor permute(const Tensor& x, const Dims& order);
/// Dimensions `source` at the places `destination`, the others in their order around them.
Tensor movedim(const Tensor& x, const Dims& source, const Dims& destination);
inline Tensor movedim(const Tensor& x, int64_t source, int64_t destination) {
  return movedim(x, Dims{source}, Dims{destination});
}
inline Tensor moveaxis(const Tensor& x, const Dims& source, const Dims& destination) {
  return movedim(x, source, destination);
}
inline Tensor moveaxis(const Tensor& x, int64_t source, int64_t destination) {
  return movedim(x, source, destination);
}
/// A dimension cut into several; one size may be −1.
Tensor unflatten(const Tensor& x, int64_t dim, const Shape& sizes);
/// Sizes of 1 repeated without copying; −1 keeps a size.
Tensor expand(const Tensor& x, const Shape& shape);
inline Tensor broadcast_to(const Tensor& x, const Shape& shape) { return expand(x, shape); }
/// Elements start, start + step, … below end of a dimension; out-of-range ends are clipped.
Tensor slice(const Tensor& x, int64_t dim = 0, std::optional<int64_t> start = {},
             std::optional<int64_t> end = {}, int64_t step = 1);
/// `length` elements of a dimension from `start` on; throws when they do not lie inside.
Tensor narrow(const Tensor& x, int64_t dim, int64_t start, int64_t length);
/// One index of a dimension, which disappears.
Tensor select(const Tensor& x, int64_t dim, int64_t index);
/// Windows of `size` along a dimension, `step` apart: (…, windows, …, size).
Tensor unfold(const Tensor& x, int64_t dim, int64_t size, int64_t step);
/// The diagonal of two dimensions as the last one, `offset` above the main diagonal.
Tensor diagonal(const Tensor& x, int64_t offset = 0, int64_t dim1 = 0, int64_t dim2 = 1);
/// The last dimension as the diagonal of two new ones, zero elsewhere: diagonal's derivative. A
/// copy.
Tensor diag_embed(const Tensor& x, int64_t offset = 0, int64_t dim1 = -2, int64_t dim2 = -1);

/// The bytes of x under any layout: element (i, j, …) lies at storage_offset + i·stride[0] +
/// j·stride[1] + … elements of the memory that x begins in. x itself must be contiguous, and all of
/// it within the memory.
Tensor as_strided(const Tensor& x, const Shape& size, const Strides& stride,
                  std::optional<int64_t> storage_offset = {});
/// A copy of x in which the elements that as_strided() shows are those of `window`.
Tensor as_strided_scatter(const Tensor& x, const Tensor& window, const Shape& size,
                          const Strides& stride, std::optional<int64_t> storage_offset = {});
/// Throws unless the bytes of `view` are still a window of those of `base`, which has no gaps.
void check_window(const char* op, const Tensor& base, const Tensor& view);
/// The history of `base` once `value` was written to its view.
Edge history_of_write(const Tensor& base, const Tensor& view, const Tensor& value);
/// The history of a view from that of its base.
Edge history_of_view(const Tensor& base, const Array& view);

}  // namespace halftape
