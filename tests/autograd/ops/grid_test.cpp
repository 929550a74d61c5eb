// Images through grids: PyTorch's values and gradients, points that are not finite, and errors.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <limits>

#include "halftape/tests/support/close.h"
#include "halftape/tests/support/counted.h"
#include "halftape/tests/support/vectors.h"

using namespace halftape;
namespace F = nn::functional;
using doctest::Contains;
using testing::counting;
using testing::differ;

TEST_CASE("grid_sample gives PyTorch's values and gradients in all its modes") {
  const testing::Vectors torch("grids.txt");
  const std::pair<Interpolation, std::string> modes[] = {{kBilinear, "bilinear"},
                                                         {kNearest, "nearest"}};
  const std::pair<nn::detail::grid_padding_t, std::string> paddings[] = {
      {kZeros, "zeros"}, {kBorder, "border"}, {kReflection, "reflection"}};
  for (const auto& each_mode : modes) {  // pairs: clang 14 captures no structured binding
    for (const auto& each_padding : paddings) {
      const auto mode = each_mode.first;
      const auto padding = each_padding.first;
      for (const bool corners : {false, true}) {
        const std::string name =
            each_mode.second + "/" + each_padding.second + "/" + std::to_string(corners);
        CAPTURE(name);
        const auto check = [&](const std::string& prefix, const Tensor& image, const Tensor& points,
                               Dtype dtype) {
          const Tensor x = image.to(dtype, false, true).requires_grad_(),
                       grid = points.to(dtype, false, true).requires_grad_();
          const Tensor y = F::grid_sample(
              x, grid,
              F::GridSampleFuncOptions().mode(mode).padding_mode(padding).align_corners(corners));
          const testing::Tolerance allowed{.ulps = 8, .eps = 16};
          CHECK(differ(y, torch[prefix + name + "/value"], allowed) == "");
          TensorList g = autograd::grad({y}, {x, grid}, {counting(y)}, {}, false, true);
          CHECK(differ(g[0], torch[prefix + name + "/grad0"], allowed) == "");
          if (!g[1].defined()) g[1] = zeros_like(grid);
          CHECK(differ(g[1], torch[prefix + name + "/grad1"], allowed) == "");
        };
        for (const Dtype dtype : {kFloat64, kFloat32}) {
          check("", torch.tensor("x", {2, 2, 3, 4}), torch.tensor("grid", {2, 2, 5, 2}), dtype);
          check("volume/", torch.tensor("volume", {1, 2, 3, 2, 4}),
                torch.tensor("volume_grid", {1, 2, 2, 3, 3}), dtype);
        }
      }
    }
  }
}

TEST_CASE("affine_grid gives PyTorch's values and gradient") {
  const testing::Vectors torch("grids.txt");
  for (const bool corners : {false, true}) {
    const Tensor theta = torch.tensor("theta", {1, 2, 3}).requires_grad_();
    const Tensor y = F::affine_grid(theta, {1, 1, 3, 4}, corners);
    const std::string name = "affine/" + std::to_string(corners);
    CHECK(differ(y, torch[name + "/value"], {.ulps = 8, .eps = 4}) == "");
    CHECK(differ(autograd::grad({y}, {theta}, {counting(y)})[0], torch[name + "/grad0"],
                 {.ulps = 8, .eps = 4}) == "");

    const Tensor volume = torch.tensor("theta3", {1, 3, 4}).requires_grad_();
    const Tensor y3 = F::affine_grid(volume, {1, 1, 2, 3, 4}, corners);
    CHECK(y3.sizes() == Shape{1, 2, 3, 4, 3});
    CHECK(differ(y3, torch[name + "/volume/value"], {.ulps = 8, .eps = 4}) == "");
    CHECK(differ(autograd::grad({y3}, {volume}, {counting(y3)})[0], torch[name + "/volume/grad0"],
                 {.ulps = 8, .eps = 4}) == "");
  }
}

TEST_CASE("the identity's grid gives the image, and points that are not finite give zeros") {
  const Tensor x = randn({1, 2, 3, 4}, kFloat64);
  const Tensor identity = tensor({{{1.0, 0.0, 0.0}, {0.0, 1.0, 0.0}}}, kFloat64);
  for (const bool corners : {false, true})
    CHECK(differ(grid_sample(x, affine_grid(identity, {1, 2, 3, 4}, corners), kBilinear,
                             GridPadding::Zeros, corners),
                 x, {.eps = 8}) == "");
  const double inf = std::numeric_limits<double>::infinity();
  const Tensor grid =
      tensor({inf, 0.0, 0.0, -inf, std::nan(""), 0.0, 1e300, 1.0}, kFloat64).reshape({1, 2, 2, 2});
  for (const Interpolation mode : {kBilinear, kNearest})
    CHECK(grid_sample(x, grid, mode).abs().sum().item() == 0);
}

TEST_CASE(
    "on the border a point of grid_sample has gradient 0, and NaN counts as the first element") {
  const Tensor image = (arange(9).to(kFloat64) + 5).reshape({1, 1, 3, 3});
  for (const auto padding : {GridPadding::Border, GridPadding::Reflection}) {
    const Tensor grid = tensor({-1.0, 1.0, 1.0, -1.0}, kFloat64).reshape({1, 1, 2, 2});
    grid.requires_grad_();
    grid_sample(image, grid, kBilinear, padding, true).sum().backward();
    CHECK(grid.grad().equal(zeros_like(grid)));
    const Tensor none = tensor({std::nan(""), 0.0}, kFloat64).reshape({1, 1, 1, 2});
    CHECK(grid_sample(image, none, kBilinear, padding, true).item() == 8);
  }
}

TEST_CASE("grid_sample and affine_grid refuse wrong arguments") {
  const Tensor x = randn({1, 2, 3, 4}), grid = randn({1, 2, 2, 2});
  const auto refuses = [](const auto& call, const char* text) {
    CHECK_THROWS_WITH_AS(call(), Contains(text), Error);
  };
  refuses([&] { grid_sample(x[0], grid); }, "grid_sample: input [2, 3, 4] and grid [1, 2, 2, 2]");
  refuses([&] { grid_sample(x, randn({1, 2, 2, 3})); }, "grid [1, 2, 2, 3]; expected");
  refuses([&] { grid_sample(x, grid, kBicubic); }, "mode is neither kBilinear nor kNearest");
  refuses([&] { grid_sample(x, grid.to(kFloat64)); }, "dtypes float32 and float64");
  refuses([&] { F::grid_sample(x, grid, F::GridSampleFuncOptions().padding_mode(kCircular)); },
          "padding_mode is kZeros, kBorder or kReflection");
  refuses(
      [&] {
        affine_grid(randn({2, 3}), {1, 1, 2, 2});
      },
      "2D affine matrices of shape Nx2x3 for size [1, 1, 2, 2]. Got [2, 3]");
  refuses([&] { affine_grid(randn({1, 2, 3}), {1, 1, 2, 2, 2}); }, "shape Nx3x4");
  refuses([&] { affine_grid(randn({1, 2, 3}), {1, 2, 2}); }, "only supports 4D and 5D sizes");
  refuses([&] { affine_grid(randn({1, 2, 3}), {1, 1, 0, 2}); }, "Got [1, 1, 0, 2]");
  refuses([&] { affine_grid(ones({1, 2, 3}, kInt64), {1, 1, 2, 2}); }, "but got int64");
}
