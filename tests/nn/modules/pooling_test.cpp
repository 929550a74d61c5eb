// Modules of pooling, padding, folding and resampling: they compute what the functions do.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include "halftape/tests/support/close.h"

using namespace halftape;
namespace F = nn::functional;
using doctest::Contains;
using testing::same_bits;

TEST_CASE("pooling modules compute what the functions do") {
  const Tensor line = randn({2, 3, 9}), image = randn({2, 3, 7, 8}), block = randn({1, 2, 4, 5, 6});
  CHECK(same_bits(nn::MaxPool1d(2)(line), max_pool1d(line, 2)));
  const nn::MaxPool2d two(nn::MaxPool2dOptions({3, 2}).stride({2, 1}).padding(1).ceil_mode(true));
  CHECK(same_bits(two(image), max_pool2d(image, {3, 2}, {2, 1}, 1, 1, true)));
  CHECK(same_bits(two(image[0]), two(image)[0]));
  const auto [y, at] = two->forward_with_indices(image);
  CHECK(same_bits(y, two(image)));
  CHECK(same_bits(at, std::get<1>(max_pool2d_with_indices(image, {3, 2}, {2, 1}, 1, 1, true))));
  CHECK(same_bits(nn::MaxPool3d(nn::MaxPool3dOptions(2).dilation({1, 2, 1}))(block),
                  max_pool3d(block, 2, {}, 0, {1, 2, 1})));

  CHECK(same_bits(nn::AvgPool1d(3)(line), avg_pool1d(line, 3)));
  CHECK(same_bits(
      nn::AvgPool2d(nn::AvgPool2dOptions(3).stride(2).padding(1).count_include_pad(false))(image),
      avg_pool2d(image, 3, 2, 1, false, false)));
  CHECK(same_bits(nn::AvgPool3d(nn::AvgPool3dOptions(2).divisor_override(3))(block),
                  avg_pool3d(block, 2, {}, 0, false, true, 3)));
  CHECK(same_bits(nn::LPPool1d(2, 3)(line.abs()), lp_pool1d(line.abs(), 2, 3)));
  CHECK(same_bits(nn::LPPool2d(nn::LPPool2dOptions(2, 3).stride(1))(image),
                  lp_pool2d(image, 2, 3, 1)));
  CHECK(same_bits(nn::LPPool3d(2, 2)(block), lp_pool3d(block, 2, 2)));
}

TEST_CASE("adaptive pooling keeps the lengths that are left out") {
  const Tensor image = randn({2, 3, 7, 8}), block = randn({1, 2, 4, 5, 6});
  using Two = nn::AdaptiveAvgPool2dOptions;
  CHECK(same_bits(nn::AdaptiveAvgPool2d(3)(image), adaptive_avg_pool2d(image, 3)));
  CHECK(same_bits(nn::AdaptiveAvgPool2d(Two({std::nullopt, 3}))(image),
                  adaptive_avg_pool2d(image, {7, 3})));
  const nn::AdaptiveMaxPool2d largest(nn::AdaptiveMaxPool2dOptions({2, std::nullopt}));
  const auto [y, at] = largest->forward_with_indices(image);
  CHECK(y.sizes() == Shape{2, 3, 2, 8});
  CHECK(same_bits(at, std::get<1>(adaptive_max_pool2d(image, {2, 8}))));
  CHECK(same_bits(largest(image), y));
  CHECK(nn::AdaptiveAvgPool3d(nn::AdaptiveAvgPool3dOptions({1, std::nullopt, 2}))(block).sizes() ==
        Shape{1, 2, 1, 5, 2});
  CHECK(nn::AdaptiveMaxPool3d(2)(block).sizes() == Shape{1, 2, 2, 2, 2});
  CHECK(nn::AdaptiveMaxPool1d(4)(image[0]).sizes() == Shape{3, 7, 4});
  CHECK(nn::AdaptiveAvgPool1d(4)(image[0]).sizes() == Shape{3, 7, 4});
}

TEST_CASE("MaxUnpool finds the size itself, or is told which") {
  const Tensor x = randn({1, 2, 5, 6});
  const nn::MaxPool2d pool(2);
  const nn::MaxUnpool2d unpool(2);
  const auto [y, at] = pool->forward_with_indices(x);
  CHECK(unpool(y, at).sizes() == Shape{1, 2, 4, 6});
  const Tensor back = unpool(y, at, std::vector<int64_t>{5, 6});
  CHECK(same_bits(back, where(back != 0, x, zeros_like(x))));
  CHECK(back.abs().sum().item() > 0);
  CHECK_THROWS_WITH_AS(unpool(y, at, std::vector<int64_t>{7, 6}),
                       Contains("length 7 of dimension 0 must be from 2 to 6"), Error);
  const auto [z, where_z] = nn::MaxPool1d(3)->forward_with_indices(x[0]);
  CHECK(nn::MaxUnpool1d(3)(z, where_z).sizes() == x[0].sizes());
  const auto [v, where_v] = nn::MaxPool3d(2)->forward_with_indices(x);
  CHECK(nn::MaxUnpool3d(2)(v, where_v, std::vector<int64_t>{2, 5, 6}).sizes() == x.sizes());
}

TEST_CASE("Unfold and Fold are each other's derivative") {
  const Tensor x = randn({2, 3, 5, 6}, kFloat64).requires_grad_();
  const nn::Unfold unfold(nn::UnfoldOptions({2, 3}).padding(1).stride({1, 2}).dilation({2, 1}));
  const nn::Fold fold(nn::FoldOptions({5, 6}, {2, 3}).padding(1).stride({1, 2}).dilation({2, 1}));
  const Tensor columns = unfold(x), g = randn(columns.sizes(), kFloat64);
  CHECK(columns.sizes() == Shape{2, 18, 15});
  CHECK(same_bits(autograd::grad({columns}, {x}, {g})[0], fold(g)));
  // Where nothing overlaps they undo each other.
  CHECK(same_bits(F::fold(F::unfold(x, F::UnfoldFuncOptions({5, 2}).stride({5, 2})),
                          F::FoldFuncOptions({5, 6}, {5, 2}).stride({5, 2})),
                  x));
}

TEST_CASE("padding modules frame the last dimensions") {
  const Tensor line = arange(6, kFloat32).reshape({1, 6}), image = randn({2, 3, 4, 5});
  const auto list = [](const Tensor& t) { return t.to_vector(); };
  using Values = std::vector<double>;
  CHECK(list(nn::ReflectionPad1d(2)(line)) == Values{2, 1, 0, 1, 2, 3, 4, 5, 4, 3});
  CHECK(list(nn::ReplicationPad1d(nn::ReplicationPad1dOptions({1, 2}))(line)) ==
        Values{0, 0, 1, 2, 3, 4, 5, 5, 5});
  CHECK(list(nn::CircularPad1d(1)(line)) == Values{5, 0, 1, 2, 3, 4, 5, 0});
  CHECK(list(nn::ZeroPad1d(1)(line)) == Values{0, 0, 1, 2, 3, 4, 5, 0});
  CHECK(list(nn::ConstantPad1d(nn::ConstantPad1dOptions({0, 1}, 7))(line)) ==
        Values{0, 1, 2, 3, 4, 5, 7});
  const std::vector<int64_t> frame{1, 2, 3, 1};
  CHECK(same_bits(nn::ReflectionPad2d(frame)(image), pad(image, frame, kReflect)));
  CHECK(same_bits(nn::ReplicationPad2d(frame)(image), pad(image, frame, kReplicate)));
  CHECK(same_bits(nn::CircularPad2d(frame)(image), pad(image, frame, kCircular)));
  CHECK(same_bits(nn::ZeroPad2d(frame)(image), pad(image, frame)));
  CHECK(same_bits(nn::ConstantPad2d(frame, 1.5)(image), pad(image, frame, kConstant, 1.5)));
  CHECK(nn::ReplicationPad3d(1)(image).sizes() == Shape{2, 5, 6, 7});
  CHECK(nn::ReflectionPad3d(1)(image).sizes() == Shape{2, 5, 6, 7});
  CHECK(nn::CircularPad3d(1)(image).sizes() == Shape{2, 5, 6, 7});
  CHECK(nn::ConstantPad3d(1, 2.0)(image).sizes() == Shape{2, 5, 6, 7});
  CHECK(nn::ZeroPad3d(1)(image).sizes() == Shape{2, 5, 6, 7});
  CHECK_THROWS_WITH_AS(nn::ReflectionPad2d(1)(line[0]),
                       Contains("ReflectionPad2d: input [6] has 1 dimensions"), Error);
  CHECK_THROWS_AS(nn::ReflectionPad1d(6)(line), Error);
}

TEST_CASE("Upsample takes one size or factor for all dimensions") {
  const Tensor image = randn({1, 2, 3, 4});
  using Sizes = std::vector<int64_t>;
  using Factors = std::vector<double>;
  CHECK(same_bits(nn::Upsample(nn::UpsampleOptions().scale_factor(Factors{2}))(image),
                  image.repeat_interleave(2, 2).repeat_interleave(2, 3)));
  CHECK(same_bits(
      nn::Upsample(nn::UpsampleOptions().size(Sizes{5}).mode(kBilinear).align_corners(true))(image),
      interpolate(image, Sizes{5, 5}, {}, kBilinear, true)));
  CHECK(
      same_bits(F::interpolate(image[0], F::InterpolateFuncOptions().size(Sizes{7}).mode(kLinear)),
                interpolate(image[0], Sizes{7}, {}, Interpolation::Linear)));
  CHECK_THROWS_WITH_AS(
      F::interpolate(image, F::InterpolateFuncOptions().size(Sizes{7, 7}).mode(kReLU)),
      Contains("a mode was expected"), Error);
  const Tensor pixels = randn({2, 4, 6});
  CHECK(nn::PixelUnshuffle(2)(pixels).sizes() == Shape{8, 2, 3});
  CHECK(same_bits(nn::PixelShuffle(2)(nn::PixelUnshuffle(2)(pixels)), pixels));
}
