#include "halftape/autograd/ops/layout/view.h"

#include <algorithm>
#include <limits>

#include "halftape/autograd/ops/creation/create.h"
#include "halftape/autograd/ops/elementwise/binary.h"
#include "halftape/autograd/ops/indexing/index.h"
#include "halftape/autograd/ops/layout/dims.h"
#include "halftape/autograd/ops/reduction/reduce.h"
#include "halftape/autograd/tape/error_scope.h"
#include "halftape/autograd/tape/record.h"
#include "halftape/core/contract/backend.h"

namespace halftape {
namespace {

/// A view whose gradient is `back(g)`: the same move in the other direction.
Tensor view_op(const char* name, const Tensor& x, Array y, auto back) {
  return record(
      name, std::move(y), {&x}, [back](Node&, const Tensor& g) -> Grads { return {back(g)}; }, &x);
}

/// x again as a tensor of its own: what is asked of it, or changed in its shape, leaves x alone.
Tensor same_view(const char* name, const Tensor& x) {
  return view_op(name, x, x.array(), [](const Tensor& g) { return g; });
}

/// g placed into zeros of `shape` where a view was cut from: the derivative of cutting, and cut out
/// in turn.
Tensor put_back(const char* name, const Tensor& g, const Shape& shape, auto view) {
  const Array y = full(shape, 0, g.dtype(), g.device());
  backend(g.device()).copy(view(Tensor(y)).array(), g.array());
  return record(name, y, {&g}, [view](Node&, const Tensor& gg) -> Grads { return {view(gg)}; });
}

/// Windows added to where they were cut from.
Tensor unfold_backward(const Tensor& g, const Shape& shape, int dim, int64_t size, int64_t step) {
  const TensorOptions there(g.device());
  const Tensor start = unsqueeze(arange(g.size(dim), there) * step, 1);
  const Tensor at = reshape(start + arange(size, there), {-1});
  const Tensor lined = flatten(movedim(g, -1, dim + 1), dim, dim + 1);
  return index_add(zeros(shape, g.options()), dim, at, lined);
}

/// Elements of a contiguous tensor under another layout; `offset` counts from its first one.
struct Window {
  Shape size;
  Strides stride;
  int64_t offset;

  int64_t end() const {  // one past the last element
    int64_t last = offset;
    for (int i = 0; i < size.size(); ++i)
      last = checked_add(last, checked_mul(size[i] - 1, stride[i]));
    return checked_add(last, 1);
  }
  Array of(const Array& x) const { return x.as_strided(size, stride, x.offset() + offset); }
};

Tensor seen_through(const Tensor& x, const Window& w);

/// g in the places of a window, zero elsewhere; where places coincide, their sum.
Tensor window_backward(const Tensor& g, const Window& w, const Shape& shape) {
  if (overlaps_itself(w.size, w.stride)) {
    const Tensor places = arange(numel(shape), TensorOptions(kInt64).device(g.device()));
    const Tensor flat = zeros({numel(shape)}, g.options());
    const Tensor index = reshape(Tensor(w.of(places.array())), {-1});
    return reshape(scatter_add(flat, 0, index, reshape(g, {-1})), shape);
  }
  return put_back("as_strided_backward", g, shape,
                  [w](const Tensor& y) { return seen_through(contiguous(y), w); });
}

Tensor seen_through(const Tensor& x, const Window& w) {
  return view_op("as_strided", x, w.of(x.array()),
                 [w, shape = x.sizes()](const Tensor& g) { return window_backward(g, w, shape); });
}

/// The record of writing y into a window of x; `value`: the outcome.
Tensor record_write(const Array& value, const Tensor& x, const Tensor& y, const Window& w);

Tensor written(const Tensor& x, const Tensor& y, const Window& w) {
  const Array value = x.array().clone();
  backend(x.device()).copy(w.of(value), y.array());
  return record_write(value, x, y, w);
}

Tensor record_write(const Array& value, const Tensor& x, const Tensor& y, const Window& w) {
  return record("as_strided_scatter", value, {&x, &y},
                [w](Node& self, const Tensor& grad) -> Grads {
                  const Tensor g = contiguous(grad);
                  Grads d(2);
                  if (self.wants(0)) d[0] = written(g, zeros(w.size, g.options()), w);
                  if (self.wants(1)) d[1] = seen_through(g, w);
                  return d;
                });
}

Window checked_window(const char* op, const Array& x, const Shape& size, const Strides& stride,
                      std::optional<int64_t> storage_offset) {
  HALFTAPE_CHECK(size.size() == stride.size(), op, ": ", size.size(), " sizes and ", stride.size(),
                 " strides");
  for (int i = 0; i < size.size(); ++i)
    HALFTAPE_CHECK(size[i] >= 0 && stride[i] >= 0, op, ": sizes ", size, " and strides ", stride,
                   " must not be negative");
  HALFTAPE_CHECK(x.contiguous(), op, ": the tensor ", x.shape(), " with strides ", x.strides(),
                 " is not contiguous; call contiguous() first");
  const int64_t first = x.offset(), begin = storage_offset.value_or(first);
  const Window w{size, stride, numel(size) == 0 ? 0 : checked_add(begin, -first)};
  HALFTAPE_CHECK(numel(size) == 0 || (w.offset >= 0 && w.end() <= x.numel()), op, ": size ", size,
                 ", stride ", stride, " and offset ", w.offset, " reach beyond the ", x.numel(),
                 " elements of the tensor");
  return w;
}

}  // namespace

Tensor as_strided(const Tensor& x, const Shape& size, const Strides& stride,
                  std::optional<int64_t> storage_offset) {
  check_defined("as_strided", x);
  return seen_through(x, checked_window("as_strided", x.array(), size, stride, storage_offset));
}

Tensor as_strided_scatter(const Tensor& x, const Tensor& window, const Shape& size,
                          const Strides& stride, std::optional<int64_t> storage_offset) {
  check_defined("as_strided_scatter", x, window);
  const Window w = checked_window("as_strided_scatter", x.array(), size, stride, storage_offset);
  HALFTAPE_CHECK(window.sizes() == size, "as_strided_scatter: window ", window.sizes(),
                 " for size ", size);
  HALFTAPE_CHECK(window.device() == x.device(), "as_strided_scatter: window on ", window.device(),
                 ", the tensor on ", x.device(), "; move one with .to(device)");
  HALFTAPE_CHECK(!overlaps_itself(size, stride), "as_strided_scatter: size ", size, " and stride ",
                 stride, " name one element twice");
  return written(x, cast(window, x.dtype()), w);
}

namespace {

/// The dimensions of x in the order in which they lie in memory, the widest stride first.
Dims memory_order(const Array& x) {
  Dims order;
  for (int d = 0; d < x.dim(); ++d) order.push_back(d);
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return x.strides()[a] > x.strides()[b]; });
  return order;
}

/// The view as a window of its base with the dimensions in the order of the memory.
Window window_of(const char* op, const Array& base, const Array& view) {
  const Array ordered = base.contiguous() ? base : base.permute(memory_order(base));
  HALFTAPE_CHECK(ordered.contiguous(), op, ": the tensor ", view.shape(),
                 " is a view of one with sizes ", base.shape(), " and strides ", base.strides(),
                 ", whose history cannot go on, as other memory lies between its elements; make "
                 "the view of its contiguous()");
  return checked_window(op, ordered, view.shape(), view.strides(), view.offset());
}
Tensor in_memory_order(const Tensor& x) {
  return x.is_contiguous() ? x : permute(x, memory_order(x.array()));
}

}  // namespace

void check_window(const char* op, const Tensor& base, const Tensor& view) {
  const Array& v = view.array();
  HALFTAPE_CHECK(base.array().buffer() == v.buffer(), op, ": the tensor ", v.shape(),
                 " is a view of bytes that its base ", base.sizes(),
                 " has left by set_data(), so the base's history cannot follow; make a new view");
  window_of(op, base.array(), v);
}

Edge history_of_write(const Tensor& base, const Tensor& view, const Tensor& value) {
  const Window w = window_of("in-place on a view", base.array(), view.array());
  const Tensor ordered = in_memory_order(base),
               written = record_write(ordered.array(), ordered, value, w);
  if (base.is_contiguous()) return written.impl()->history;
  const Dims order = memory_order(base.array());
  Dims back = order;
  for (int d = 0; d < order.size(); ++d) back[static_cast<int>(order[d])] = d;
  return permute(written, back).impl()->history;
}

Edge history_of_view(const Tensor& base, const Array& view) {
  const Window w = window_of("a view", base.array(), view);
  return seen_through(in_memory_order(base), w).impl()->history;
}

Tensor view(const Tensor& x, const Shape& wanted) {
  check_defined("view", x);
  const Shape shape = infer_shape("view", wanted, x.numel(), x.sizes());
  Array y;
  HALFTAPE_CHECK(x.array().try_view(shape, y), "view: ", x.sizes(), " with strides ", x.strides(),
                 " cannot be seen as ", shape, " without a copy; use reshape()");
  return view_op("view", x, y, [from = x.sizes()](const Tensor& g) { return reshape(g, from); });
}

Tensor view(const Tensor& x, Dtype dtype) {
  check_defined("view", x);
  check_dtype(dtype);
  const Array& a = x.array();
  if (dtype == a.dtype()) return x.detach();
  HALFTAPE_CHECK(dtype != kBool, "view: the bytes of a ", a.dtype(),
                 " tensor may be no bools; compare it with 0 instead");
  Shape shape = a.shape();
  Strides strides = a.strides();
  int64_t offset = a.offset();
  const auto from = static_cast<int64_t>(element_size(a.dtype())),
             to = static_cast<int64_t>(element_size(dtype));
  if (from != to) {
    HALFTAPE_CHECK(a.dim() > 0, "view: a 0-dim ", a.dtype(), " tensor has no dimension to become ",
                   "longer or shorter as ", dtype, "; unsqueeze(0) gives it one");
    const int last = a.dim() - 1;
    if (shape[last] == 1) strides[last] = 1;  // which any stride of one element is
    HALFTAPE_CHECK(strides[last] == 1, "view: ", a.dtype(), " as ", dtype, " needs a stride of 1 ",
                   "in the last dimension, the strides are ", strides, "; call contiguous() first");
    const auto scaled = [&](const char* what, int64_t n) {
      HALFTAPE_CHECK(checked_mul(n, from) % to == 0, "view: ", what, ' ', n, " of the ", a.dtype(),
                     " tensor ", a.shape(), " is not a whole number of ", dtype, " elements (",
                     to / from, " make one)");
      return n * from / to;
    };
    shape[last] = scaled("last size", shape[last]);
    offset = scaled("storage offset", offset);
    for (int d = 0; d < last; ++d)
      if (shape[d] != 1) strides[d] = scaled("stride", strides[d]);
  }
  HALFTAPE_CHECK(reinterpret_cast<uintptr_t>(a.raw()) % element_size(dtype) == 0,
                 "view: the memory of the ", a.dtype(), " tensor is not aligned to elements of ",
                 dtype, "; clone() it first");
  Tensor y(Array(a.buffer(), shape, strides, offset, dtype));
  y.impl()->inference |= x.is_inference();
  return y;
}

Tensor reshape(const Tensor& x, const Shape& wanted) {
  check_defined("reshape", x);
  const Shape shape = infer_shape("reshape", wanted, x.numel(), x.sizes());
  if (shape == x.sizes()) return same_view("reshape", x);
  Array y;
  if (x.array().try_view(shape, y)) return view(x, shape);
  return view(contiguous(x), shape);
}

Tensor flatten(const Tensor& x, int64_t start_dim, int64_t end_dim) {
  check_defined("flatten", x);
  const int rank = static_cast<int>(x.dim());
  const int a = wrap_dim("flatten", start_dim, rank), b = wrap_dim("flatten", end_dim, rank);
  HALFTAPE_CHECK(a <= b, "flatten: start_dim ", start_dim, " comes after end_dim ", end_dim);
  if (rank == 0) return reshape(x, {1});
  if (a == b) return x;
  const Shape& all = x.sizes();
  const Shape front = detail::joined(all.slice(0, a), numel(all.slice(a, b - a + 1)));
  return reshape(x, detail::joined(front, all.slice(b + 1)));
}

Tensor squeeze(const Tensor& x) {
  check_defined("squeeze", x);
  Shape shape;
  for (int64_t s : x.sizes())
    if (s != 1) shape.push_back(s);
  return reshape(x, shape);
}

Tensor squeeze(const Tensor& x, int64_t dim) {
  check_defined("squeeze", x);
  const int d = wrap_dim("squeeze", dim, static_cast<int>(x.dim()));
  if (x.dim() == 0 || x.size(d) != 1) return same_view("squeeze", x);
  return view_op("squeeze", x, x.array().squeeze(d),
                 [d](const Tensor& g) { return unsqueeze(g, d); });
}

Tensor squeeze(const Tensor& x, const Dims& dims) {
  check_defined("squeeze", x);
  const int rank = static_cast<int>(x.dim());
  Shape shape;
  const Dims named = dims.empty() ? dims : wrap_dims("squeeze", dims, rank);
  for (int d = 0; d < rank; ++d)
    if (x.size(d) != 1 || std::find(named.begin(), named.end(), d) == named.end())
      shape.push_back(x.size(d));
  return reshape(x, shape);
}

Tensor unsqueeze(const Tensor& x, int64_t dim) {
  check_defined("unsqueeze", x);
  const int d = wrap_dim("unsqueeze", dim, static_cast<int>(x.dim()) + 1);
  return view_op("unsqueeze", x, x.array().unsqueeze(d),
                 [d](const Tensor& g) { return squeeze(g, d); });
}

Tensor transpose(const Tensor& x, int64_t a, int64_t b) {
  check_defined("transpose", x);
  const int rank = static_cast<int>(x.dim()), i = wrap_dim("transpose", a, rank),
            j = wrap_dim("transpose", b, rank);
  return view_op("transpose", x, x.array().transpose(i, j),
                 [i, j](const Tensor& g) { return transpose(g, i, j); });
}

Tensor permute(const Tensor& x, const Dims& order) {
  check_defined("permute", x);
  const int rank = static_cast<int>(x.dim());
  HALFTAPE_CHECK(order.size() == rank, "permute: ", order, " names ", order.size(), " of ", rank,
                 " dimensions");
  Dims forward = order, back = Dims::filled(rank, -1);
  for (int i = 0; i < rank; ++i) {
    forward[i] = wrap_dim("permute", order[i], rank);
    HALFTAPE_CHECK(back[static_cast<int>(forward[i])] < 0, "permute: dimension ", order[i],
                   " appears twice in ", order);
    back[static_cast<int>(forward[i])] = i;
  }
  return view_op("permute", x, x.array().permute(forward),
                 [back](const Tensor& g) { return permute(g, back); });
}

Tensor movedim(const Tensor& x, const Dims& source, const Dims& destination) {
  check_defined("movedim", x);
  const int rank = static_cast<int>(x.dim());
  HALFTAPE_CHECK(source.size() == destination.size(), "movedim: from ", source, " to ", destination,
                 ": as many of the one as of the other are needed");
  wrap_dims("movedim", source, rank), wrap_dims("movedim", destination, rank);  // no repetitions
  if (rank == 0 || source.empty()) return same_view("movedim", x);
  Dims order = Dims::filled(rank, -1), rest;
  for (int i = 0; i < source.size(); ++i)
    order[wrap_dim("movedim", destination[i], rank)] = wrap_dim("movedim", source[i], rank);
  for (int d = 0; d < rank; ++d)
    if (!order.contains(d)) rest.push_back(d);
  for (int d = 0, next = 0; d < rank; ++d)
    if (order[d] < 0) order[d] = rest[next++];
  return permute(x, order);
}

Tensor unflatten(const Tensor& x, int64_t dim, const Shape& sizes) {
  check_defined("unflatten", x);
  HALFTAPE_CHECK(x.dim() > 0, "unflatten: a 0-dim tensor has no dimension to cut");
  HALFTAPE_CHECK(!sizes.empty(), "unflatten: into no sizes");
  const int d = wrap_dim("unflatten", dim, static_cast<int>(x.dim()));
  int64_t known = 1, open = 0;
  for (const int64_t n : sizes) n == -1 ? ++open : known = checked_mul(known, n);
  HALFTAPE_CHECK(open > 0 || known == x.size(d), "unflatten: dimension ", d, " of ", x.sizes(),
                 " has ", x.size(d), " elements, and ", sizes, " has ", known);
  const Shape cut = infer_shape("unflatten", sizes, x.size(d), {x.size(d)}), &all = x.sizes();
  return view(x, detail::joined(detail::joined(all.slice(0, d), cut), all.slice(d + 1)));
}

Tensor expand(const Tensor& x, const Shape& wanted) {
  check_defined("expand", x);
  Shape shape = wanted;
  const int lead = shape.size() - static_cast<int>(x.dim());
  HALFTAPE_CHECK(lead >= 0, "expand: ", x.sizes(), " has more dimensions than ", wanted);
  for (int i = 0; i < shape.size(); ++i) {
    if (shape[i] == -1 && i >= lead) shape[i] = x.size(i - lead);
    HALFTAPE_CHECK(shape[i] >= 0, "expand: size ", shape[i], " in ", wanted, " is negative",
                   shape[i] == -1 ? ", which only stands for a size that is there already" : "");
  }
  return view_op("expand", x, x.array().expand(shape),
                 [from = x.sizes()](const Tensor& g) { return sum_to(g, from); });
}

Tensor slice(const Tensor& x, int64_t dim, std::optional<int64_t> first,
             std::optional<int64_t> last, int64_t step) {
  check_defined("slice", x);
  const int64_t start = first.value_or(0), end = last.value_or(std::numeric_limits<int64_t>::max());
  HALFTAPE_CHECK(x.dim() > 0, "slice: a 0-dim tensor has no dimension to slice");
  const int d = wrap_dim("slice", dim, static_cast<int>(x.dim()));
  return view_op("slice", x, x.array().slice(d, start, end, step),
                 [=, from = x.sizes()](const Tensor& g) {
                   return put_back("slice_backward", g, from,
                                   [=](const Tensor& y) { return slice(y, d, start, end, step); });
                 });
}

Tensor narrow(const Tensor& x, int64_t dim, int64_t start, int64_t length) {
  check_defined("narrow", x);
  HALFTAPE_CHECK(x.dim() > 0, "narrow: a 0-dim tensor has no dimension to cut");
  const int d = wrap_dim("narrow", dim, static_cast<int>(x.dim()));
  const int64_t n = x.size(d), from = start < 0 ? start + n : start;
  HALFTAPE_CHECK(from >= 0 && from <= n && length >= 0 && length <= n - from, "narrow: start ",
                 start, " and length ", length, " do not lie in dimension ", d, " of ", x.sizes());
  return slice(x, d, from, from + length);
}

Tensor select(const Tensor& x, int64_t dim, int64_t index) {
  check_defined("select", x);
  HALFTAPE_CHECK(x.dim() > 0, "select: a 0-dim tensor has no dimension to select from");
  const int d = wrap_dim("select", dim, static_cast<int>(x.dim()));
  HALFTAPE_CHECK(index >= -x.size(d) && index < x.size(d), "select: index ", index,
                 " is out of range for dimension ", d, " of ", x.sizes());
  const int64_t i = index < 0 ? index + x.size(d) : index;
  return squeeze(slice(x, d, i, i + 1), d);
}

Tensor unfold(const Tensor& x, int64_t dim, int64_t size, int64_t step) {
  check_defined("unfold", x);
  const int d = wrap_dim("unfold", dim, static_cast<int>(x.dim()));
  const int64_t n = x.dim() == 0 ? 1 : x.size(d);
  HALFTAPE_CHECK(size >= 0 && size <= n, "unfold: windows of ", size, " in the ", n,
                 " elements of dimension ", d, " of ", x.sizes());
  HALFTAPE_CHECK(step > 0, "unfold: step ", step, " must be positive");
  if (x.dim() == 0) return slice(unsqueeze(x, 0), 0, 0, size);
  const Array& a = x.array();
  Shape shape = a.shape();
  Strides strides = a.strides();
  shape[d] = (n - size) / step + 1;
  shape.push_back(size);
  strides.push_back(strides[d]);
  if (shape[d] > 1) strides[d] *= step;  // otherwise the step may be any number
  return view_op(
      "unfold", x, a.as_strided(shape, strides, a.offset()),
      [=, from = x.sizes()](const Tensor& g) { return unfold_backward(g, from, d, size, step); });
}

Tensor diagonal(const Tensor& x, int64_t offset, int64_t dim1, int64_t dim2) {
  check_defined("diagonal", x);
  HALFTAPE_CHECK(x.dim() >= 2, "diagonal: of a tensor ", x.sizes(), "; expected two dimensions");
  const int rank = static_cast<int>(x.dim()), i = wrap_dim("diagonal", dim1, rank),
            j = wrap_dim("diagonal", dim2, rank);
  HALFTAPE_CHECK(i != j, "diagonal: dimensions ", dim1, " and ", dim2, " are the same");
  const Array& a = x.array();
  Shape shape;
  Strides strides;
  for (int d = 0; d < rank; ++d)
    if (d != i && d != j) shape.push_back(a.size(d)), strides.push_back(a.strides()[d]);
  // An offset beyond the edges is one at an edge; so its negative fits 64 bits.
  const int64_t shift = std::clamp(offset, -a.size(i), a.size(j)),
                down = std::max<int64_t>(-shift, 0), right = std::max<int64_t>(shift, 0);
  const int64_t length = std::max<int64_t>(std::min(a.size(i) - down, a.size(j) - right), 0);
  shape.push_back(length);
  strides.push_back(length > 1 ? a.strides()[i] + a.strides()[j] : 1);
  const int64_t start = length > 0 ? down * a.strides()[i] + right * a.strides()[j] : 0;
  return view_op("diagonal", x, a.as_strided(shape, strides, a.offset() + start),
                 [=, from = x.sizes()](const Tensor& g) {
                   return put_back("diagonal_backward", g, from,
                                   [=](const Tensor& y) { return diagonal(y, offset, i, j); });
                 });
}

Tensor diag_embed(const Tensor& x, int64_t offset, int64_t dim1, int64_t dim2) {
  check_defined("diag_embed", x);
  HALFTAPE_CHECK(x.dim() > 0, "diag_embed: a 0-dim tensor has no diagonal");
  const int rank = static_cast<int>(x.dim()) + 1, i = wrap_dim("diag_embed", dim1, rank),
            j = wrap_dim("diag_embed", dim2, rank);
  HALFTAPE_CHECK(i != j, "diag_embed: dimensions ", dim1, " and ", dim2, " are the same");
  Shape shape;
  const int64_t n = checked_add(x.size(-1), offset < 0 ? checked_mul(offset, -1) : offset);
  for (int d = 0, next = 0; d < rank; ++d) shape.push_back(d == i || d == j ? n : x.size(next++));
  return put_back("diag_embed", x, shape,
                  [=](const Tensor& y) { return diagonal(y, offset, i, j); });
}

}  // namespace halftape
