#include "halftape/autograd/ops/layout/shape.h"

#include <algorithm>

#include "halftape/autograd/ops/cast_list.h"
#include "halftape/autograd/ops/creation/create.h"
#include "halftape/autograd/ops/layout/dims.h"
#include "halftape/autograd/tape/error_scope.h"
#include "halftape/autograd/tape/record.h"
#include "halftape/core/contract/backend.h"

namespace halftape {
namespace {

/// One input of cat(), as its derivative needs it.
struct Piece {
  Shape shape;
  Dtype dtype;
  bool skipped;  // one-dimensional and empty
};

TensorList each(const TensorList& tensors, Tensor (*f)(const Tensor&)) {
  TensorList out;
  for (const Tensor& t : tensors) out.push_back(f(t));
  return out;
}

}  // namespace

Tensor cat(const TensorList& given, int64_t dim) {
  HALFTAPE_CHECK(!given.empty(), "cat: of no tensors");
  const TensorList tensors = cast_inputs(cast_list::cat, given);
  const auto skipped = [](const Tensor& t) { return t.dim() == 1 && t.numel() == 0; };
  const auto found = std::find_if_not(tensors.begin(), tensors.end(), skipped);
  const Tensor& like = found == tensors.end() ? tensors[0] : *found;
  const int d = found == tensors.end() ? 0 : detail::dim_of("cat", like, dim);
  Shape shape = like.sizes();
  shape[d] = 0;
  Dtype dtype = like.dtype();
  std::vector<Piece> pieces;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Tensor& t = tensors[i];
    dtype = promote(dtype, t.dtype());
    pieces.push_back({t.sizes(), t.dtype(), skipped(t)});
    HALFTAPE_CHECK(t.device() == like.device(), "cat: tensors on ", like.device(), " and ",
                   t.device(), "; move one with .to(device)");
    if (skipped(t)) continue;
    bool fits = t.dim() == like.dim();
    for (int k = 0; fits && k < like.dim(); ++k) fits = k == d || t.size(k) == like.size(k);
    HALFTAPE_CHECK(fits, "cat: tensor ", i, " ", t.sizes(), " does not continue ", like.sizes(),
                   " along dimension ", d);
    shape[d] = checked_add(shape[d], t.size(d));
  }
  const Array y(shape, dtype, like.device());
  int64_t at = 0;
  for (const Tensor& t : tensors) {
    if (skipped(t)) continue;
    backend(y.device()).copy(y.slice(d, at, at + t.size(d)), t.array());
    at += t.size(d);
  }
  return record("cat", y, tensors, [pieces, d](Node& self, const Tensor& g) -> Grads {
    Grads grads(pieces.size());
    int64_t from = 0;
    for (size_t i = 0; i < pieces.size(); ++i) {
      const auto& [size, type, empty] = pieces[i];
      const int64_t n = empty ? 0 : size[d];
      if (self.wants(i))
        grads[i] =
            empty ? zeros(size, g.options().dtype(type)) : slice(g, d, from, from + n).to(type);
      from += n;
    }
    return grads;
  });
}

Tensor stack(const TensorList& tensors, int64_t dim) {
  const ErrorScope scope("stack", tensors);
  HALFTAPE_CHECK(!tensors.empty(), "stack: of no tensors");
  const int d = wrap_dim("stack", dim, static_cast<int>(tensors[0].dim()) + 1);
  TensorList unsqueezed;
  for (size_t i = 0; i < tensors.size(); ++i) {
    HALFTAPE_CHECK(tensors[i].sizes() == tensors[0].sizes(), "stack: tensor ", i, " is ",
                   tensors[i].sizes(), ", the first ", tensors[0].sizes());
    unsqueezed.push_back(unsqueeze(tensors[i], d));
  }
  return cat(unsqueezed, d);
}

Tensor hstack(const TensorList& tensors) {
  const ErrorScope scope("hstack", tensors);
  HALFTAPE_CHECK(!tensors.empty(), "hstack: of no tensors");
  const TensorList all = each(tensors, atleast_1d);
  return cat(all, all[0].dim() == 1 ? 0 : 1);
}
Tensor vstack(const TensorList& tensors) {
  const ErrorScope scope("vstack", tensors);
  return cat(each(tensors, atleast_2d), 0);
}
Tensor dstack(const TensorList& tensors) {
  const ErrorScope scope("dstack", tensors);
  return cat(each(tensors, atleast_3d), 2);
}

Tensor column_stack(const TensorList& tensors) {
  const ErrorScope scope("column_stack", tensors);
  return hstack(
      each(tensors, [](const Tensor& t) { return t.dim() < 2 ? unsqueeze(atleast_1d(t), 1) : t; }));
}

TensorList meshgrid(const TensorList& tensors, const std::string& indexing) {
  HALFTAPE_CHECK(indexing == "ij" || indexing == "xy", "meshgrid: indexing is \"", indexing,
                 "\", expected \"ij\" or \"xy\"");
  HALFTAPE_CHECK(!tensors.empty(), "meshgrid: of no tensors");
  check_defined("meshgrid", tensors);
  TensorList in = tensors;
  const bool swapped = indexing == "xy" && in.size() >= 2;
  if (swapped) std::swap(in[0], in[1]);
  Shape shape;
  for (const Tensor& t : in) {
    HALFTAPE_CHECK(t.dim() <= 1, "meshgrid: a tensor ", t.sizes(), "; expected one dimension");
    HALFTAPE_CHECK(t.dtype() == in[0].dtype(), "meshgrid: dtypes ", in[0].dtype(), " and ",
                   t.dtype());
    shape.push_back(t.numel());
  }
  TensorList grid;
  for (const Tensor& t : in)
    grid.push_back(expand(detail::along(t, shape.size(), static_cast<int>(grid.size())), shape));
  if (swapped) std::swap(grid[0], grid[1]);
  return grid;
}

Tensor cartesian_prod(const TensorList& tensors) {
  HALFTAPE_CHECK(!tensors.empty(), "cartesian_prod: of no tensors");
  check_defined("cartesian_prod", tensors);
  for (const Tensor& t : tensors)
    HALFTAPE_CHECK(t.dim() == 1 && t.dtype() == tensors[0].dtype(),
                   "cartesian_prod: ", tensors[0].dtype(), " ", tensors[0].sizes(), " and ",
                   t.dtype(), " ", t.sizes(), "; expected one dimension and dtype");
  if (tensors.size() == 1) return tensors[0];
  TensorList columns;
  for (const Tensor& t : meshgrid(tensors)) columns.push_back(detail::reshaped(t, {t.numel()}));
  return stack(columns, 1);
}

TensorList broadcast_tensors(const TensorList& tensors) {
  check_defined("broadcast_tensors", tensors);
  Shape shape;
  for (const Tensor& t : tensors) shape = broadcast("broadcast_tensors", shape, t.sizes());
  TensorList out;
  for (const Tensor& t : tensors) out.push_back(expand(t, shape));
  return out;
}

Tensor atleast_1d(const Tensor& x) {
  check_defined("atleast_1d", x);
  return x.dim() == 0 ? unsqueeze(x, 0) : x;
}
Tensor atleast_2d(const Tensor& x) {
  check_defined("atleast_2d", x);
  return x.dim() < 2 ? unsqueeze(atleast_1d(x), 0) : x;
}
Tensor atleast_3d(const Tensor& x) {
  check_defined("atleast_3d", x);
  return x.dim() < 3 ? unsqueeze(atleast_2d(x), 2) : x;
}

Tensor diag(const Tensor& x, int64_t diagonal) {
  const ErrorScope scope("diag", x);
  HALFTAPE_CHECK(x.dim() == 1 || x.dim() == 2, "diag: of a tensor ", x.sizes(),
                 "; expected one or two dimensions");
  return x.dim() == 1 ? diag_embed(x, diagonal) : clone(halftape::diagonal(x, diagonal));
}

}  // namespace halftape
