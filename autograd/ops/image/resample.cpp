#include "halftape/autograd/ops/image/resample.h"

#include <algorithm>
#include <cmath>

#include "halftape/autograd/ops/cast_list.h"
#include "halftape/autograd/ops/creation/listed.h"
#include "halftape/autograd/ops/elementwise/binary.h"
#include "halftape/autograd/ops/image/pool.h"
#include "halftape/autograd/ops/image/windows.h"
#include "halftape/autograd/ops/indexing/index.h"
#include "halftape/autograd/ops/layout/dims.h"
#include "halftape/autograd/ops/layout/view.h"
#include "halftape/autograd/tape/error_scope.h"

namespace halftape {
namespace {

/// The distance between neighbouring outputs, in elements of the input.
double step_of(int64_t from, int64_t to, std::optional<double> scale, bool align_corners) {
  if (align_corners)
    return to > 1 ? static_cast<double>(from - 1) / static_cast<double>(to - 1) : 0;
  return scale ? 1 / *scale : static_cast<double>(from) / static_cast<double>(to);
}

/// The elements at(0), at(1), … of a dimension, `to` of them.
Tensor elements(const Tensor& x, int dim, int64_t to, const auto& at) {
  return index_select(x, dim, Tensor(detail::listed<int64_t>(to, kInt64, at).to(x.device())));
}

Tensor nearest(const Tensor& x, int dim, int64_t to, double step, bool exact) {
  const int64_t last = x.size(dim) - 1;
  return elements(x, dim, to, [=](int64_t i) {
    // In float, as PyTorch: which of two neighbours it is may hang on a last digit.
    const float place = (static_cast<float>(i) + (exact ? 0.5f : 0.0f)) * static_cast<float>(step);
    return std::min(static_cast<int64_t>(std::floor(place)), last);
  });
}

/// Keys 1981: the cubic through four neighbours, at a distance from the point.
double cubic(double distance) {
  constexpr double a = -0.75;
  const double d = std::abs(distance);
  if (d <= 1) return ((a + 2) * d - (a + 3)) * d * d + 1;
  return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a;
}

/// Each output is a sum of neighbours times weights.
Tensor smooth(const Tensor& x, int dim, int64_t to, double step, bool align_corners,
              bool is_cubic) {
  const int64_t last = x.size(dim) - 1;
  const auto place = [=](int64_t i) {
    const auto number = static_cast<double>(i);
    const double at = align_corners ? number * step : (number + 0.5) * step - 0.5;
    return is_cubic ? at : std::max(at, 0.0);
  };
  Tensor y;
  for (int offset = is_cubic ? -1 : 0; offset <= (is_cubic ? 2 : 1); ++offset) {
    const Tensor neighbour = elements(x, dim, to, [=](int64_t i) {
      return std::clamp<int64_t>(static_cast<int64_t>(std::floor(place(i))) + offset, 0, last);
    });
    const Tensor weight(detail::listed<double>(to, x.dtype(), [=](int64_t i) {
      const double t = place(i) - std::floor(place(i));
      return is_cubic ? cubic(t - offset) : offset == 0 ? 1 - t : t;
    }));
    const Tensor term =
        neighbour * detail::along(weight.to(x.device()), static_cast<int>(x.dim()), dim);
    y = y.defined() ? y + term : term;
  }
  return y;
}

const char* name_of(Interpolation mode) {
  constexpr const char* names[] = {"nearest",   "nearest-exact", "linear", "bilinear",
                                   "trilinear", "bicubic",       "area"};
  return names[static_cast<size_t>(mode)];
}
/// For how many dimensions a mode is; 0: any.
int dims_of(Interpolation mode) {
  switch (mode) {
    case Interpolation::Linear:
      return 1;
    case Interpolation::Bilinear:
    case Interpolation::Bicubic:
      return 2;
    case Interpolation::Trilinear:
      return 3;
    default:
      return 0;
  }
}

}  // namespace

Tensor interpolate(const Tensor& in, const std::optional<std::vector<int64_t>>& size,
                   const std::optional<std::vector<double>>& scale_factor, Interpolation mode,
                   bool align_corners, bool recompute_scale_factor) {
  const ErrorScope scope("interpolate", in);
  const int n = static_cast<int>(in.dim()) - 2;
  HALFTAPE_CHECK(n >= 1 && n <= 3, "interpolate: input ", in.sizes(), " has ", in.dim(),
                 " dimensions; expected 3, 4 or 5");
  HALFTAPE_CHECK(dims_of(mode) == 0 || dims_of(mode) == n, "interpolate: mode ", name_of(mode),
                 " is for ", dims_of(mode), " dimensions behind the channels, input ", in.sizes(),
                 " has ", n);
  HALFTAPE_CHECK(dims_of(mode) != 0 || !align_corners, "interpolate: align_corners means nothing ",
                 "to mode ", name_of(mode));
  check_floating("interpolate", in);
  HALFTAPE_CHECK(size.has_value() != scale_factor.has_value(),
                 "interpolate: one of size and scale_factor must be given, and not both");
  Shape to;
  const Shape from = detail::last_dims(in.sizes(), n);
  if (size) {
    HALFTAPE_CHECK(static_cast<int>(size->size()) == n, "interpolate: size ", Dims(*size), " has ",
                   size->size(), " numbers; expected ", n);
    to = *size;
  } else {
    HALFTAPE_CHECK(static_cast<int>(scale_factor->size()) == n,
                   "interpolate: ", scale_factor->size(), " scale factors for input ", in.sizes(),
                   "; expected ", n);
    for (int i = 0; i < n; ++i) {
      const double scale = (*scale_factor)[static_cast<size_t>(i)],
                   length = std::floor(static_cast<double>(from[i]) * scale);
      HALFTAPE_CHECK(std::abs(length) < 0x1p62, "interpolate: scale factor ", scale,
                     " for dimension ", i, " of ", from);
      to.push_back(static_cast<int64_t>(length));
    }
  }
  for (int i = 0; i < n; ++i)
    HALFTAPE_CHECK(from[i] > 0 && to[i] > 0, "interpolate: from ", from, " to ", to,
                   ": lengths must be positive");
  detail::check_size(detail::joined(detail::leading_dims(in.sizes(), n), to), in.dtype());
  if (mode == Interpolation::Area)
    return n == 1   ? adaptive_avg_pool1d(in, to)
           : n == 2 ? adaptive_avg_pool2d(in, to)
                    : adaptive_avg_pool3d(in, to);
  const auto [x] = cast_inputs(cast_list::interpolate, in);
  const bool picks = mode == Interpolation::Nearest || mode == Interpolation::NearestExact;
  Tensor y = picks ? x : widened(x);
  for (int i = 0; i < n; ++i) {
    const auto scale = scale_factor && !recompute_scale_factor
                           ? std::optional((*scale_factor)[static_cast<size_t>(i)])
                           : std::nullopt;
    const double step = step_of(from[i], to[i], scale, align_corners);
    if (from[i] == to[i] && step == 1) continue;
    y = picks ? nearest(y, 2 + i, to[i], step, mode == Interpolation::NearestExact)
              : smooth(y, 2 + i, to[i], step, align_corners, mode == Interpolation::Bicubic);
  }
  return y.is_same(x) ? clone(x) : y.to(x.dtype());
}

Tensor pixel_shuffle(const Tensor& x, int64_t r) {
  const ErrorScope scope("pixel_shuffle", x);
  HALFTAPE_CHECK(x.dim() >= 3, "pixel_shuffle: input ", x.sizes(), " has ", x.dim(),
                 " dimensions; expected at least 3");
  HALFTAPE_CHECK(r > 0 && x.size(-3) % checked_mul(r, r) == 0, "pixel_shuffle: the ", x.size(-3),
                 " channels of ", x.sizes(), " are not a multiple of upscale_factor² (", r, "²)");
  const Shape lead = detail::leading_dims(x.sizes(), 3);
  const int64_t channels = x.size(-3) / (r * r), h = x.size(-2), w = x.size(-1);
  if (r == 1) return clone(x);
  const Tensor blocks = detail::reshaped(x, {numel(lead) * channels, r, r, h, w});
  return detail::reshaped(permute(blocks, {0, 3, 1, 4, 2}),
                          detail::joined(lead, {channels, checked_mul(h, r), checked_mul(w, r)}));
}

Tensor pixel_unshuffle(const Tensor& x, int64_t r) {
  const ErrorScope scope("pixel_unshuffle", x);
  HALFTAPE_CHECK(x.dim() >= 3, "pixel_unshuffle: input ", x.sizes(), " has ", x.dim(),
                 " dimensions; expected at least 3");
  HALFTAPE_CHECK(r > 0 && x.size(-2) % r == 0 && x.size(-1) % r == 0,
                 "pixel_unshuffle: ", x.size(-2), " by ", x.size(-1), " pixels of ", x.sizes(),
                 " are not a multiple of downscale_factor ", r);
  const Shape lead = detail::leading_dims(x.sizes(), 3);
  const int64_t channels = x.size(-3), h = x.size(-2) / r, w = x.size(-1) / r;
  if (r == 1) return clone(x);
  const Tensor blocks = detail::reshaped(x, {numel(lead) * channels, h, r, w, r});
  return detail::reshaped(permute(blocks, {0, 2, 4, 1, 3}),
                          detail::joined(lead, {checked_mul(channels, checked_mul(r, r)), h, w}));
}

}  // namespace halftape
