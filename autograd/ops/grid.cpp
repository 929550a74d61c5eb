#include "halftape/autograd/ops/grid.h"

#include <cmath>

#include "halftape/autograd/op_scope.h"
#include "halftape/autograd/ops/binary.h"
#include "halftape/autograd/ops/cast_list.h"
#include "halftape/autograd/ops/create.h"
#include "halftape/autograd/ops/index.h"
#include "halftape/autograd/ops/matmul.h"
#include "halftape/autograd/ops/unary.h"
#include "halftape/autograd/ops/view.h"

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
  if (padding != GridPadding::Zeros) p = clamp(p, 0, n - 1);
  // Far outside, or not finite: outside, and a number that fits into an index.
  return where(abs(p) < 1e9, p, -100);
}

}  // namespace

Tensor grid_sample(const Tensor& x_in, const Tensor& grid_in, Interpolation mode,
                   GridPadding padding, bool align_corners) {
  const auto [x, points] = cast_inputs(cast_list::grid_sample, x_in, grid_in);
  detail::same_kind("grid_sample", x, points);
  HALFTAPE_CHECK(
      x.dim() == 4 && points.dim() == 4 && points.size(3) == 2 && points.size(0) == x.size(0),
      "grid_sample: input ", x.sizes(), " and grid ", points.sizes(),
      "; expected (N, C, H, W) and (N, H', W', 2)");
  HALFTAPE_CHECK(mode == kBilinear || mode == kNearest,
                 "grid_sample: mode is neither kBilinear nor kNearest");
  const int64_t h = x.size(2), w = x.size(3);
  HALFTAPE_CHECK(h > 0 && w > 0, "grid_sample: input ", x.sizes(), " has no elements");
  const Dtype wide = is_16bit(x.dtype()) ? kFloat32 : x.dtype();
  const Tensor image = flatten(x.to(wide), 2), grid = points.to(wide);
  const Tensor px = place(select(grid, 3, 0), w, padding, align_corners),
               py = place(select(grid, 3, 1), h, padding, align_corners);
  const bool nearest = mode == kNearest;
  const Tensor x0 = nearest ? round(px.detach()) : floor(px.detach()),
               y0 = nearest ? round(py.detach()) : floor(py.detach());
  const Tensor tx = px - x0, ty = py - y0;
  const Shape flat{x.size(0), 1, points.size(1) * points.size(2)};
  const Shape wanted{x.size(0), x.size(1), flat[2]};
  Tensor y;
  for (int dy = 0; dy < (nearest ? 1 : 2); ++dy) {
    for (int dx = 0; dx < (nearest ? 1 : 2); ++dx) {
      const Tensor xi = x0 + dx, yi = y0 + dy;
      const Tensor inside = ((xi >= 0) * (xi < w) * (yi >= 0) * (yi < h)).to(wide);
      const Tensor at = clamp(yi, 0, h - 1).to(kInt64) * w + clamp(xi, 0, w - 1).to(kInt64);
      Tensor value = gather(image, 2, expand(reshape(at, flat), wanted));
      const Tensor weight = nearest ? inside : inside * (dx ? tx : 1 - tx) * (dy ? ty : 1 - ty);
      value = value * reshape(weight, flat);
      y = y.defined() ? y + value : value;
    }
  }
  return reshape(y.to(x.dtype()), {x.size(0), x.size(1), points.size(1), points.size(2)});
}

Tensor affine_grid(const Tensor& theta, const Dims& size, bool align_corners) {
  const OpScope scope("affine_grid", theta);
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
  const PolicyScope as_given(nullptr);
  const Dtype wide = is_16bit(theta.dtype()) ? kFloat32 : theta.dtype();
  const TensorOptions there = TensorOptions(wide).device(theta.device());
  const Shape lengths = size.slice(2);
  TensorList coordinates;  // x, of the last dimension, first; then 1
  for (int d = n - 1; d >= 0; --d) {
    const int64_t m = lengths[d];
    const double edge = m > 1 ? 1 : 0, inset = static_cast<double>(m - 1) / static_cast<double>(m);
    Shape along = Shape::filled(n, 1);
    along[d] = m;
    const Tensor line = linspace(-edge, edge, m, there) * (align_corners ? 1.0 : inset);
    coordinates.push_back(expand(reshape(line, along), lengths));
  }
  coordinates.push_back(ones(lengths, there));
  const Tensor points = reshape(stack(coordinates, -1), {1, numel(lengths), n + 1});
  const Tensor y = matmul(points, transpose(theta.to(wide), 1, 2));
  Shape shape = lengths;
  shape.insert(0, size[0]);
  shape.push_back(n);
  return reshape(y.to(theta.dtype()), shape);
}

}  // namespace halftape
