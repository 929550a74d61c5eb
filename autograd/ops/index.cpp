#include "halftape/autograd/ops/index.h"

#include "halftape/autograd/ops/create.h"
#include "halftape/autograd/ops/view.h"
#include "halftape/autograd/policy.h"
#include "halftape/autograd/record.h"
#include "halftape/core/backend.h"

namespace halftape {
namespace {

int check_index(const char* op, const Shape& x, int64_t dim, const Tensor& index) {
  HALFTAPE_CHECK(index.dtype() == kInt64, op, ": index is ", index.dtype(), ", expected int64");
  HALFTAPE_CHECK(x.size() == index.dim() && x.size() > 0, op, ": index ", index.sizes(),
                 " and tensor ", x, " must have the same number of dimensions, at least one");
  const int d = wrap_dim(op, dim, x.size());
  for (int i = 0; i < x.size(); ++i)
    HALFTAPE_CHECK(i == d || index.size(i) <= x[i], op, ": index ", index.sizes(),
                   " is larger than the tensor ", x, " in dimension ", i);
  return d;
}

/// The corner of `x` that an index of this shape reaches: all of `dim`, the index's sizes
/// elsewhere.
Array corner(const Array& x, int dim, const Shape& index) {
  Array y = x;
  for (int i = 0; i < x.dim(); ++i)
    if (i != dim) y = y.slice(i, 0, index[i]);
  return y;
}

}  // namespace

Tensor gather(const Tensor& in, int64_t dim, const Tensor& index) {
  const auto [x] = cast_inputs(Cast::Keep, "gather", in);
  const int d = check_index("gather", x.sizes(), dim, index);
  const Array y(index.sizes(), x.dtype(), x.device());
  backend(x.device()).gather(y, corner(x.array(), d, index.sizes()), d, index.array());
  return record("gather", y, {&x},
                [d, shape = x.sizes(), index = Saved(index)](Node& self, const Tensor& g) -> Grads {
                  return {scatter_add(zeros(shape, g.options()), d, index.tensor(self), g)};
                });
}

Tensor scatter_add(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& g) {
  const int d = check_index("scatter_add", x.sizes(), dim, index);
  HALFTAPE_CHECK(g.sizes() == index.sizes(), "scatter_add: source ", g.sizes(), " and index ",
                 index.sizes(), " differ");
  HALFTAPE_CHECK(g.dtype() == x.dtype(), "scatter_add: source is ", g.dtype(), ", the tensor ",
                 x.dtype());
  const Array y = x.array().clone();
  backend(x.device()).scatter_add(corner(y, d, index.sizes()), g.array(), d, index.array());
  return record("scatter_add", y, {&x, &g},
                [d, index = Saved(index)](Node& self, const Tensor& gy) -> Grads {
                  Grads grads(2);
                  if (self.wants(0)) grads[0] = gy;
                  if (self.wants(1)) grads[1] = gather(gy, d, index.tensor(self));
                  return grads;
                });
}

Tensor index_select(const Tensor& x, int64_t dim, const Tensor& index) {
  HALFTAPE_CHECK(index.dim() == 1, "index_select: index ", index.sizes(),
                 " must have one dimension");
  HALFTAPE_CHECK(x.dim() > 0, "index_select: a 0-dim tensor has no dimension to select from");
  const int d = wrap_dim("index_select", dim, static_cast<int>(x.dim()));
  Shape full = x.sizes(), thin = Dims::filled(full.size(), 1);
  full[d] = thin[d] = index.size(0);
  return gather(x, d, expand(view(index, thin), full));
}

}  // namespace halftape
