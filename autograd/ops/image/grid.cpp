#include "halftape/autograd/ops/image/grid.h"

#include <cmath>

#include "halftape/autograd/ops/cast_list.h"
#include "halftape/autograd/ops/creation/create.h"
#include "halftape/autograd/ops/elementwise/binary.h"
#include "halftape/autograd/ops/elementwise/unary.h"
#include "halftape/autograd/ops/image/windows.h"
#include "halftape/autograd/ops/indexing/index.h"
#include "halftape/autograd/ops/layout/dims.h"
#include "halftape/autograd/ops/product/matmul.h"
#include "halftape/autograd/tape/error_scope.h"

namespace halftape {
namespace {

/// A coordinate folded back at `low` and `low + span`, as often as it takes.
Tensor reflected(const Tensor& p, double low, double span) {
  if (span == 0) return p * 0;
  // A triangle of period 2·span.
  const Tensor along = remainder(p - low, 2 * span);
  return where(along > span, 2 * span - along, along) + low;
}

/// From −1 … 1 to elements of a dimension.
Tensor place(const Tensor& coordinate, int64_t length, GridPadding padding, bool align_corners) {
  const auto n = static_cast<double>(length);
  Tensor p = align_corners ? (coordinate + 1) * ((n - 1) / 2) : ((coordinate + 1) * n - 1) / 2;
  if (padding == GridPadding::Reflection)
    p = align_corners ? reflected(p, 0, n - 1) : reflected(p, -0.5, n);
  if (padding != GridPadding::Zeros) p = clamp(where(p == p, p, 0), 0, n - 1);  // NaN counts as 0
  // Far outside, or not finite: outside, and a number that fits into an index.
  return where(abs(p) < 1e9, p, -100);
}

}  // namespace

Tensor grid_sample(const Tensor& x_in, const Tensor& grid_in, Interpolation mode,
                   GridPadding padding, bool align_corners) {
  const auto [x, points] = cast_inputs(cast_list::grid_sample, x_in, grid_in);
  detail::same_kind("grid_sample", x, points);
  const int n = static_cast<int>(x.dim()) - 2;
  HALFTAPE_CHECK((n == 2 || n == 3) && points.dim() == x.dim() && points.size(-1) == n &&
                     points.size(0) == x.size(0),
                 "grid_sample: input ", x.sizes(), " and grid ", points.sizes(),
                 "; expected (N, C, H, W) and (N, H', W', 2), or (N, C, D, H, W) and (N, D', H', "
                 "W', 3)");
  HALFTAPE_CHECK(mode == kBilinear || mode == kNearest,
                 "grid_sample: mode is neither kBilinear nor kNearest");
  const Shape lengths = x.sizes().slice(2);
  HALFTAPE_CHECK(numel(lengths) > 0, "grid_sample: input ", x.sizes(), " has no elements");
  const Dtype wide = compute_dtype(x.dtype());
  const Tensor image = flatten(x.to(wide), 2), grid = points.to(wide);
  const bool nearest = mode == kNearest;
  // Of each dimension: the element before a point, and how far behind that the point is.
  TensorList first, beyond;
  for (int d = 0; d < n; ++d) {
    const Tensor p = place(select(grid, -1, n - 1 - d), lengths[d], padding, align_corners);
    first.push_back(nearest ? round(p.detach()) : floor(p.detach()));
    beyond.push_back(p - first.back());
  }
  const Shape wanted = points.sizes().slice(1, n);
  const Shape flat{x.size(0), 1, numel(wanted)}, all{x.size(0), x.size(1), numel(wanted)};
  Tensor y;
  for (int corner = 0; corner < (nearest ? 1 : 1 << n); ++corner) {
    Tensor at, inside, weight;
    for (int d = 0; d < n; ++d) {
      const auto k = static_cast<size_t>(d);
      const int step = corner >> (n - 1 - d) & 1;
      const Tensor i = first[k] + step;
      const Tensor within = clamp(i, 0, lengths[d] - 1).to(kInt64);
      const Tensor here = (i >= 0) * (i < lengths[d]), part = step ? beyond[k] : 1 - beyond[k];
      at = d ? at * lengths[d] + within : within;
      inside = d ? inside * here : here;
      weight = d ? weight * part : part;
    }
    // Chosen, as 0 times a pixel at the edge may be no number.
    Tensor value = gather(image, 2, expand(detail::reshaped(at, flat), all));
    value = where(detail::reshaped(inside, flat), value, 0);
    if (!nearest) value = value * detail::reshaped(weight, flat);
    y = y.defined() ? y + value : value;
  }
  return detail::reshaped(y.to(x.dtype()), detail::joined({x.size(0), x.size(1)}, wanted));
}

Tensor affine_grid(const Tensor& theta, const Dims& size, bool align_corners) {
  const ErrorScope scope("affine_grid", theta);
  HALFTAPE_CHECK(theta.is_floating_point(), "affine_grid: Expected theta to have floating point ",
                 "type, but got ", theta.dtype());
  HALFTAPE_CHECK(size.size() == 4 || size.size() == 5,
                 "affine_grid only supports 4D and 5D sizes, for 2D and 3D affine transforms, ",
                 "respectively. Got size ", size);
  const int n = size.size() - 2;
  for (const int64_t length : size)
    HALFTAPE_CHECK(length > 0, "affine_grid: Expected non-zero, positive output size. Got ", size);
  HALFTAPE_CHECK(theta.sizes() == Shape({size[0], n, n + 1}), "affine_grid: Expected a batch of ",
                 n, "D affine matrices of shape Nx", n, "x", n + 1, " for size ", size, ". Got ",
                 theta.sizes(), ".");
  Shape grid = size;
  grid[1] = n + 1;
  detail::check_size(grid, kFloat64);
  const PolicyScope as_given(nullptr);
  const Dtype wide = compute_dtype(theta.dtype());
  const TensorOptions there = TensorOptions(wide).device(theta.device());
  const Shape lengths = size.slice(2);
  TensorList coordinates;  // x, of the last dimension, first; then 1
  for (int d = n - 1; d >= 0; --d) {
    const int64_t m = lengths[d];
    const double edge = m > 1 ? 1 : 0, inset = static_cast<double>(m - 1) / static_cast<double>(m);
    const Tensor line = linspace(-edge, edge, m, there) * (align_corners ? 1.0 : inset);
    coordinates.push_back(expand(detail::along(line, n, d), lengths));
  }
  coordinates.push_back(ones(lengths, there));
  const Tensor points = detail::reshaped(stack(coordinates, -1), {1, numel(lengths), n + 1});
  const Tensor y = matmul(points, transpose(theta.to(wide), 1, 2));
  return detail::reshaped(y.to(theta.dtype()),
                          detail::joined({size[0]}, detail::joined(lengths, n)));
}

}  // namespace halftape
