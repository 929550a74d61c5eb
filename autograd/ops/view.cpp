#include "halftape/autograd/ops/view.h"

#include "halftape/autograd/ops/binary.h"
#include "halftape/autograd/ops/create.h"
#include "halftape/autograd/ops/reduce.h"
#include "halftape/autograd/record.h"
#include "halftape/core/backend.h"

namespace halftape {
namespace {

/// A view whose gradient is `back(g)`: the same move in the other direction.
template <class Back>
Tensor view_op(const char* name, const Tensor& x, Array y, Back back) {
  return record(
      name, std::move(y), {&x}, [back](Node&, const Tensor& g) -> Grads { return {back(g)}; },
      true);
}

/// g placed into zeros of `shape` where a slice was cut from: the derivative of slicing, and sliced
/// back in turn.
Tensor slice_backward(const Tensor& g, const Shape& shape, int dim, int64_t start, int64_t end,
                      int64_t step) {
  const Array y = full(shape, 0, g.dtype(), g.device());
  backend(g.device()).copy(y.slice(dim, start, end, step), g.array());
  return record("slice_backward", y, {&g}, [=](Node&, const Tensor& gg) -> Grads {
    return {slice(gg, dim, start, end, step)};
  });
}

}  // namespace

Tensor view(const Tensor& x, const Shape& wanted) {
  const Shape shape = infer_shape("view", wanted, x.numel(), x.sizes());
  Array y;
  HALFTAPE_CHECK(x.array().try_view(shape, y), "view: ", x.sizes(), " with strides ", x.strides(),
                 " cannot be seen as ", shape, " without a copy; use reshape()");
  return view_op("view", x, y, [from = x.sizes()](const Tensor& g) { return reshape(g, from); });
}

Tensor reshape(const Tensor& x, const Shape& wanted) {
  const Shape shape = infer_shape("reshape", wanted, x.numel(), x.sizes());
  if (shape == x.sizes()) return x;
  Array y;
  if (x.array().try_view(shape, y)) return view(x, shape);
  return view(contiguous(x), shape);
}

Tensor flatten(const Tensor& x, int64_t start_dim, int64_t end_dim) {
  const int rank = static_cast<int>(x.dim());
  const int a = wrap_dim("flatten", start_dim, rank), b = wrap_dim("flatten", end_dim, rank);
  HALFTAPE_CHECK(a <= b, "flatten: start_dim ", start_dim, " comes after end_dim ", end_dim);
  Shape shape;
  int64_t run = 1;
  for (int i = 0; i < rank; ++i) {
    if (i < a || i > b)
      shape.push_back(x.size(i));
    else if (run = checked_mul(run, x.size(i)); i == b)
      shape.push_back(run);
  }
  if (rank == 0) shape.push_back(1);
  return reshape(x, shape);
}

Tensor squeeze(const Tensor& x) {
  Shape shape;
  for (int64_t s : x.sizes())
    if (s != 1) shape.push_back(s);
  return reshape(x, shape);
}

Tensor squeeze(const Tensor& x, int64_t dim) {
  const int d = wrap_dim("squeeze", dim, static_cast<int>(x.dim()));
  if (x.dim() == 0 || x.size(d) != 1) return x;
  return view_op("squeeze", x, x.array().squeeze(d),
                 [d](const Tensor& g) { return unsqueeze(g, d); });
}

Tensor unsqueeze(const Tensor& x, int64_t dim) {
  const int d = wrap_dim("unsqueeze", dim, static_cast<int>(x.dim()) + 1);
  return view_op("unsqueeze", x, x.array().unsqueeze(d),
                 [d](const Tensor& g) { return squeeze(g, d); });
}

Tensor transpose(const Tensor& x, int64_t a, int64_t b) {
  const int rank = static_cast<int>(x.dim()), i = wrap_dim("transpose", a, rank),
            j = wrap_dim("transpose", b, rank);
  return view_op("transpose", x, x.array().transpose(i, j),
                 [i, j](const Tensor& g) { return transpose(g, i, j); });
}

Tensor permute(const Tensor& x, const Dims& order) {
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

Tensor expand(const Tensor& x, const Shape& wanted) {
  Shape shape = wanted;
  const int lead = shape.size() - static_cast<int>(x.dim());
  for (int i = 0; i < shape.size(); ++i)
    if (shape[i] == -1 && i >= lead && lead >= 0) shape[i] = x.size(i - lead);
  return view_op("expand", x, x.array().expand(shape),
                 [from = x.sizes()](const Tensor& g) { return sum_to(g, from); });
}

Tensor slice(const Tensor& x, int64_t dim, int64_t start, int64_t end, int64_t step) {
  HALFTAPE_CHECK(x.dim() > 0, "slice: a 0-dim tensor has no dimension to slice");
  const int d = wrap_dim("slice", dim, static_cast<int>(x.dim()));
  return view_op("slice", x, x.array().slice(d, start, end, step),
                 [=, from = x.sizes()](const Tensor& g) {
                   return slice_backward(g, from, d, start, end, step);
                 });
}

Tensor select(const Tensor& x, int64_t dim, int64_t index) {
  HALFTAPE_CHECK(x.dim() > 0, "select: a 0-dim tensor has no dimension to select from");
  const int d = wrap_dim("select", dim, static_cast<int>(x.dim()));
  HALFTAPE_CHECK(index >= -x.size(d) && index < x.size(d), "select: index ", index,
                 " is out of range for dimension ", d, " of ", x.sizes());
  const int64_t i = index < 0 ? index + x.size(d) : index;
  return squeeze(slice(x, d, i, i + 1), d);
}

Tensor sum_to(const Tensor& x, const Shape& shape) {
  if (x.sizes() == shape) return x;
  HALFTAPE_CHECK(broadcasts_to(shape, x.sizes()), "sum_to: ", shape, " does not broadcast to ",
                 x.sizes());
  Dims over;
  const int lead = static_cast<int>(x.dim()) - shape.size();
  for (int i = 0; i < x.dim(); ++i)
    if (i < lead || (shape[i - lead] == 1 && x.size(i) != 1)) over.push_back(i);
  return reshape(sum(x, over, true, x.dtype()), shape);
}

Tensor cast(const Tensor& x, Dtype dtype) {
  if (x.dtype() == dtype) return x;
  return record("to", x.array().to(dtype), {&x},
                [from = x.dtype()](Node&, const Tensor& g) -> Grads { return {cast(g, from)}; });
}

Tensor clone(const Tensor& x) {
  return record("clone", x.array().clone(), {&x},
                [](Node&, const Tensor& g) -> Grads { return {g}; });
}

Tensor contiguous(const Tensor& x) { return x.is_contiguous() ? x : clone(x); }

}  // namespace halftape
