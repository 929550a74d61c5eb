// Images of other sizes: PyTorch's values, and errors.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include "halftape/tests/support/vector_cases.h"

using namespace halftape;
using doctest::Contains;
using testing::Cases;
using testing::same_bits;

TEST_CASE("interpolate gives PyTorch's values and gradients in all its modes") {
  const testing::Vectors torch("resampling.txt");
  for (int i = 0; i < 20; ++i) {
    CAPTURE(i);
    const Cases c(torch, std::to_string(i));
    const std::vector<double>& about = c.numbers("about");
    const auto mode = static_cast<Interpolation>(static_cast<int>(about[0]));
    const std::vector<double>& to = c.numbers("to");
    std::optional<std::vector<int64_t>> size;
    std::optional<std::vector<double>> factors;
    if (about[1] != 0)
      factors = to;
    else
      size = std::vector<int64_t>(to.begin(), to.end());
    const auto call = [&](const Tensor& x) {
      return interpolate(x, size, factors, mode, about[2] != 0, about[3] != 0);
    };
    CHECK(call(c.x(kFloat32)).sizes() == c.dims("y_shape"));
    c.check(call);
  }
}

TEST_CASE("pixels go to channels and back") {
  const Tensor x = randn({2, 3, 4, 6});
  CHECK(same_bits(pixel_shuffle(pixel_unshuffle(x, 2), 2), x));
  CHECK_THROWS_WITH_AS(pixel_shuffle(x, 2), Contains("3 channels of [2, 3, 4, 6]"), Error);
  CHECK_THROWS_WITH_AS(pixel_shuffle(x, int64_t{1} << 32), Contains("does not fit 64 bits"), Error);
  CHECK_THROWS_WITH_AS(pixel_unshuffle(zeros({1, 0, 0}), int64_t{1} << 32),
                       Contains("does not fit 64 bits"), Error);
  CHECK_THROWS_WITH_AS(pixel_unshuffle(x, 4), Contains("downscale_factor 4"), Error);
}

TEST_CASE("interpolate refuses wrong arguments") {
  const Tensor x = randn({1, 2, 5, 5});
  const auto refuses = [](const auto& call, const char* text) {
    CHECK_THROWS_WITH_AS(call(), Contains(text), Error);
  };
  using Sizes = std::vector<int64_t>;
  using Factors = std::vector<double>;
  refuses([&] { interpolate(x, {}); }, "one of size and scale_factor must be given");
  refuses([&] { interpolate(x, Sizes{2, 2}, Factors{2, 2}); }, "and not both");
  refuses([&] { interpolate(x, Sizes{2, 2, 2}); }, "size [2, 2, 2] has 3 numbers; expected 2");
  refuses([&] { interpolate(x, {}, Factors{2}); }, "1 scale factors for input [1, 2, 5, 5]");
  refuses([&] { interpolate(x, {}, Factors{2, 0.1}); }, "from [5, 5] to [10, 0]");
  refuses(
      [&] {
        interpolate(x, Sizes{2, 2}, {}, kTrilinear);
      },
      "mode trilinear is for 3 dimensions behind the channels, input [1, 2, 5, 5] has 2");
  refuses([&] { interpolate(x, Sizes{2, 2}, {}, kNearest, true); }, "align_corners means nothing");
  refuses([&] { interpolate(randn({5, 5}), Sizes{2}); }, "has 2 dimensions; expected 3, 4 or 5");
}
