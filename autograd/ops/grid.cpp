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
  HALFTAPE_CHECK(size.size() == 4 && theta.sizes() == Shape({size.empty() ? 0 : size[0], 2, 3}),
                 "affine_grid: theta ", theta.sizes(), " and size ", size,
                 "; expected (N, 2, 3) and (N, C, H, W)");
  HALFTAPE_CHECK(theta.is_floating_point() && size[2] > 0 && size[3] > 0, "affine_grid: theta of ",
                 theta.dtype(), " and size ", size, "; expected floats and positive lengths");
  const PolicyScope as_given(nullptr);
  const Dtype wide = is_16bit(theta.dtype()) ? kFloat32 : theta.dtype();
  const TensorOptions there = TensorOptions(wide).device(theta.device());
  const auto line = [&](int64_t n) {
    const double edge = n > 1 ? 1 : 0, inset = static_cast<double>(n - 1) / static_cast<double>(n);
    return linspace(-edge, edge, n, there) * (align_corners ? 1.0 : inset);
  };
  const Shape shape{size[2], size[3]};
  const Tensor xs = expand(line(size[3]), shape), ys = expand(unsqueeze(line(size[2]), 1), shape),
               ones_there = ones(shape, there);
  const Tensor points = reshape(stack({xs, ys, ones_there}, -1), {1, size[2] * size[3], 3});
  const Tensor y = matmul(points, transpose(theta.to(wide), 1, 2));
  return reshape(y.to(theta.dtype()), {size[0], size[2], size[3], 2});
}

}  // namespace halftape
