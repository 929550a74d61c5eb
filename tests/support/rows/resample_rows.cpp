// Rows of the op table: images of other sizes, and seen through grids.
#include <algorithm>

#include "halftape/tests/support/ops.h"

namespace halftape::testing {
namespace {

/// The element at a place between others along one dimension: a line through two neighbours.
double between(const std::vector<double>& line, double place) {
  const double last = static_cast<double>(line.size()) - 1, p = std::clamp(place, 0.0, last);
  const auto i = static_cast<size_t>(p), j = std::min(i + 1, line.size() - 1);
  return line[i] + (p - static_cast<double>(i)) * (line[j] - line[i]);
}

/// One dimension after the other: `f` of each line of x and the number of an output.
template <class F>
Values resampled_along(const Values& x, int dim, int64_t to, const F& f) {
  Values y{x.shape, {}};
  y.shape[dim] = to;
  each_index(y.shape, [&](const Dims& at) {
    std::vector<double> line;
    for (int64_t i = 0; i < x.shape[dim]; ++i) {
      Dims s = at;
      s[dim] = i;
      line.push_back(x.v[position(x.shape, s)]);
    }
    y.v.push_back(f(line, at[dim]));
  });
  return y;
}

}  // namespace

void resample_rows(Rows& rows) {
  const auto row = [&](const char* name, const Shape& x, std::vector<int64_t> size,
                       Interpolation mode, bool corners, auto f) {
    with_square(
        rows,
        {.name = name,
         .call = [=](const TensorList& in) { return interpolate(in[0], size, {}, mode, corners); },
         .shapes = {x},
         .reference =
             [=](const std::vector<Values>& in) {
               Values y = in[0];
               for (int i = 0; i + 2 < x.size(); ++i)
                 y = resampled_along(y, 2 + i, size[static_cast<size_t>(i)],
                                     f(x[2 + i], size[static_cast<size_t>(i)]));
               return y.v;
             },
         .cast = Cast::Float32});
  };
  using Samples = std::vector<double>;
  const auto nearest = [](int64_t from, int64_t to) {
    return [=](const Samples& line, int64_t i) { return line[static_cast<size_t>(i * from / to)]; };
  };
  const auto centres = [](int64_t from, int64_t to) {
    return [=](const Samples& line, int64_t i) {
      return between(line, (double(i) + 0.5) * double(from) / double(to) - 0.5);
    };
  };
  const auto corners = [](int64_t from, int64_t to) {
    return [=](const Samples& line, int64_t i) {
      return between(line, to == 1 ? 0 : double(i) * double(from - 1) / double(to - 1));
    };
  };
  row("interpolate nearest", {2, 1, 3}, {7}, kNearest, false, nearest);
  row("interpolate nearest, smaller", {1, 2, 4, 3}, {3, 2}, kNearest, false, nearest);
  row("interpolate linear", {2, 2, 4}, {7}, Interpolation::Linear, false, centres);
  row("interpolate linear between corners", {2, 2, 4}, {7}, Interpolation::Linear, true, corners);
  row("interpolate bilinear", {1, 2, 3, 2}, {4, 5}, kBilinear, false, centres);
  row("interpolate bilinear, smaller", {1, 2, 5, 4}, {3, 4}, kBilinear, false, centres);
  row("interpolate trilinear between corners", {1, 1, 2, 3, 2}, {3, 2, 4}, kTrilinear, true,
      corners);
  rows.push_back({.name = "interpolate bicubic",
                  .call =
                      [](const TensorList& x) {
                        return interpolate(x[0], std::vector<int64_t>{5, 3}, {}, kBicubic);
                      },
                  .shapes = {{1, 1, 3, 4}},
                  .cast = Cast::Float32});
  rows.push_back({.name = "interpolate by area",
                  .call =
                      [](const TensorList& x) {
                        return interpolate(x[0], std::vector<int64_t>{2, 3}, {}, kArea);
                      },
                  .shapes = {{1, 1, 3, 4}}});
  // Against PyTorch's values in grid_test.cpp. The kinks are where neighbours change.
  for (const GridPadding padding : {GridPadding::Zeros, kBorder, kReflection})
    for (const Interpolation mode : {kBilinear, kNearest})
      rows.push_back(
          {.name = mode == kNearest ? "grid_sample nearest" : "grid_sample",
           .call = [=](const TensorList& x) { return grid_sample(x[0], x[1], mode, padding); },
           .shapes = {{1, 2, 3, 4}, {1, 2, 2, 2}},
           .low = -0.95,
           .high = 0.95,
           .kinks = {-0.75, -2.0 / 3, -0.5, -1.0 / 3, -0.25, 0, 0.25, 1.0 / 3, 0.5, 2.0 / 3, 0.75},
           .cast = Cast::Widest});
  rows.push_back(
      {.name = "grid_sample of volumes",
       .call = [](const TensorList& x) { return grid_sample(x[0], x[1]); },
       .shapes = {{1, 2, 2, 3, 2}, {1, 1, 2, 2, 3}},
       .low = -0.95,
       .high = 0.95,
       .kinks = {-0.75, -2.0 / 3, -0.5, -1.0 / 3, -0.25, 0, 0.25, 1.0 / 3, 0.5, 2.0 / 3, 0.75},
       .cast = Cast::Widest});
  rows.push_back({.name = "affine_grid of volumes",
                  .call =
                      [](const TensorList& x) {
                        return affine_grid(x[0], {2, 1, 2, 3, 2});
                      },
                  .shapes = {{2, 3, 4}}});
  rows.push_back({.name = "affine_grid",
                  .call =
                      [](const TensorList& x) {
                        return affine_grid(x[0], {2, 1, 3, 2});
                      },
                  .shapes = {{2, 2, 3}}});
  with_square(rows, {.name = "pixel_shuffle",
                     .call = [](const TensorList& x) { return pixel_shuffle(x[0], 2); },
                     .shapes = {{2, 8, 2, 3}},
                     .reference = picked({2, 2, 4, 6}, [](Dims i) {
                       return Dims{i[0], i[1] * 4 + i[2] % 2 * 2 + i[3] % 2, i[2] / 2, i[3] / 2};
                     })});
  with_square(rows, {.name = "pixel_unshuffle",
                     .call = [](const TensorList& x) { return pixel_unshuffle(x[0], 2); },
                     .shapes = {{2, 4, 6}},
                     .reference = picked({8, 2, 3}, [](Dims i) {
                       return Dims{i[0] / 4, i[1] * 2 + i[0] / 2 % 2, i[2] * 2 + i[0] % 2};
                     })});
}

}  // namespace halftape::testing
