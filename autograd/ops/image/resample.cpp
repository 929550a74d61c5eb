#include "halftape/autograd/ops/image/resample.h"

#include <algorithm>
#include <cmath>

#include "halftape/autograd/ops/cast_list.h"
#include "halftape/autograd/ops/creation/create.h"
#include "halftape/autograd/ops/elementwise/binary.h"
#include "halftape/autograd/ops/image/pool.h"
#include "halftape/autograd/ops/image/windows.h"
#include "halftape/autograd/ops/indexing/index.h"
#include "halftape/autograd/ops/layout/view.h"
#include "halftape/autograd/tape/error_scope.h"

namespace halftape {
namespace {

/// Along one dimension, each output is a sum of taps: an element times a weight.
struct Taps {
  std::vector<std::vector<int64_t>> at;      // tap, output
  std::vector<std::vector<double>> weights;  // empty: one tap of weight 1
};

/// The distance between neighbouring outputs, in elements of the input.
double step_of(int64_t from, int64_t to, std::optional<double> scale, bool align_corners) {
  if (align_corners)
    return to > 1 ? static_cast<double>(from - 1) / static_cast<double>(to - 1) : 0;
  return scale ? 1 / *scale : static_cast<double>(from) / static_cast<double>(to);
}

Taps nearest_taps(int64_t from, int64_t to, double step, bool exact) {
  Taps taps{{{}}, {}};
  for (int64_t i = 0; i < to; ++i) {
    // In float, as PyTorch: which of two neighbours it is may hang on a last digit.
    const float place = (static_cast<float>(i) + (exact ? 0.5f : 0.0f)) * static_cast<float>(step);
    taps.at[0].push_back(std::min(static_cast<int64_t>(std::floor(place)), from - 1));
  }
  return taps;
}

/// Keys 1981: the cubic through four neighbours, at a distance from the point.
double cubic(double distance) {
  constexpr double a = -0.75;
  const double d = std::abs(distance);
  if (d <= 1) return ((a + 2) * d - (a + 3)) * d * d + 1;
  return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a;
}

Taps smooth_taps(int64_t from, int64_t to, double step, bool align_corners, bool is_cubic) {
  const int count = is_cubic ? 4 : 2;
  Taps taps;
  taps.at.resize(static_cast<size_t>(count)), taps.weights.resize(static_cast<size_t>(count));
  for (int64_t i = 0; i < to; ++i) {
    const auto number = static_cast<double>(i);
    double place = align_corners ? number * step : (number + 0.5) * step - 0.5;
    if (!is_cubic) place = std::max(place, 0.0);
    const double before = std::floor(place), t = place - before;
    for (int k = 0; k < count; ++k) {
      const int offset = is_cubic ? k - 1 : k;
      taps.at[static_cast<size_t>(k)].push_back(
          std::clamp<int64_t>(static_cast<int64_t>(before) + offset, 0, from - 1));
      taps.weights[static_cast<size_t>(k)].push_back(is_cubic ? cubic(t - offset)
                                                     : k == 0 ? 1 - t
                                                              : t);
    }
  }
  return taps;
}

Tensor applied(const Tensor& x, int dim, const Taps& taps) {
  Tensor y;
  for (size_t k = 0; k < taps.at.size(); ++k) {
    Tensor term = index_select(x, dim, tensor(taps.at[k], x.device()));
    if (!taps.weights.empty()) {
      Shape along = Dims::filled(static_cast<int>(x.dim()), 1);
      along[dim] = term.size(dim);
      term = term * reshape(tensor(taps.weights[k], x.options()), along);
    }
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
    to = detail::each_dim("interpolate", "size", Dims(*size), n, 1);
  } else {
    HALFTAPE_CHECK(static_cast<int>(scale_factor->size()) == n,
                   "interpolate: ", scale_factor->size(), " scale factors for input ", in.sizes(),
                   "; expected ", n);
    for (int i = 0; i < n; ++i)
      to.push_back(static_cast<int64_t>(
          std::floor(static_cast<double>(from[i]) * (*scale_factor)[static_cast<size_t>(i)])));
  }
  for (int i = 0; i < n; ++i)
    HALFTAPE_CHECK(from[i] > 0 && to[i] > 0, "interpolate: from ", from, " to ", to,
                   ": lengths must be positive");
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
    y = applied(
        y, 2 + i,
        picks ? nearest_taps(from[i], to[i], step, mode == Interpolation::NearestExact)
              : smooth_taps(from[i], to[i], step, align_corners, mode == Interpolation::Bicubic));
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
  const Tensor blocks = reshape(x, {numel(lead) * channels, r, r, h, w});
  return reshape(permute(blocks, {0, 3, 1, 4, 2}),
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
  const Tensor blocks = reshape(x, {numel(lead) * channels, h, r, w, r});
  return reshape(permute(blocks, {0, 2, 4, 1, 3}),
                 detail::joined(lead, {checked_mul(channels, checked_mul(r, r)), h, w}));
}

}  // namespace halftape
