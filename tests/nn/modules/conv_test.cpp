// Convolution modules: parameters and how they start, padding modes, options.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <cmath>

#include "halftape/tests/support/close.h"
#include "halftape/tests/support/vectors.h"

using namespace halftape;
namespace F = nn::functional;
using doctest::Contains;
using testing::differ;
using testing::same_bits;

TEST_CASE("a convolution's weight and bias start within one over the root of the fan-in") {
  manual_seed(1);
  const nn::Conv2d conv(nn::Conv2dOptions(8, 6, {3, 5}).groups(2));
  CHECK(conv->weight.sizes() == Shape{6, 4, 3, 5});
  CHECK(conv->bias.sizes() == Shape{6});
  CHECK(conv->weight.requires_grad());
  CHECK(conv->named_parameters().keys() == std::vector<std::string>{"weight", "bias"});
  const double bound = 1 / std::sqrt(4.0 * 15);
  for (const Tensor& p : conv->parameters()) {
    CHECK(p.abs().max().item() <= bound);
    CHECK(p.abs().max().item() > bound / 2);
  }
  CHECK(std::abs(conv->weight.mean().item()) < bound / 8);
  const nn::ConvTranspose2d back(nn::ConvTranspose2dOptions(6, 8, {3, 5}).groups(2));
  CHECK(back->weight.sizes() == Shape{6, 4, 3, 5});
  CHECK(back->bias.sizes() == Shape{8});
  CHECK(back->weight.abs().max().item() <= bound);
  CHECK(nn::Conv1d(nn::Conv1dOptions(2, 3, 4).bias(false))->parameters().size() == 1);
  CHECK(nn::Conv3d(2, 3, 2)->weight.sizes() == Shape{3, 2, 2, 2, 2});
}

TEST_CASE("the modules compute what the functions do") {
  const Tensor line = randn({2, 4, 9}), image = randn({2, 4, 6, 7}), block = randn({1, 2, 4, 5, 4});
  const nn::Conv1d one(nn::Conv1dOptions(4, 6, 3).stride(2).padding(1).groups(2));
  CHECK(same_bits(one(line), conv1d(line, one->weight, one->bias, 2, 1, 1, 2)));
  const nn::Conv2d two(nn::Conv2dOptions(4, 3, {2, 3}).padding({1, 2}).dilation({1, 2}));
  CHECK(same_bits(two(image), conv2d(image, two->weight, two->bias, 1, {1, 2}, {1, 2})));
  CHECK(differ(two(image[0]), two(image)[0], {.ulps = 4, .eps = 8}) == "");
  const nn::Conv3d three(nn::Conv3dOptions(2, 3, 2).bias(false).padding(kValid));
  CHECK(same_bits(three(block), F::conv3d(block, three->weight)));
  const nn::Conv2d same(nn::Conv2dOptions(4, 3, 4).padding(kSame));
  CHECK(same(image).sizes() == Shape{2, 3, 6, 7});
  CHECK(same_bits(same(image), F::conv2d(image, same->weight,
                                         F::Conv2dFuncOptions().bias(same->bias).padding(kSame))));
  const nn::ConvTranspose1d up(nn::ConvTranspose1dOptions(4, 2, 3).stride(2).padding(1));
  CHECK(up(line).sizes() == Shape{2, 2, 17});
  CHECK(same_bits(up(line), conv_transpose1d(line, up->weight, up->bias, 2, 1)));
  CHECK(nn::ConvTranspose3d(2, 3, 2)(block).sizes() == Shape{1, 3, 5, 6, 5});
}

TEST_CASE("a transposed convolution takes the size that it is to give") {
  const Tensor x = randn({1, 4, 3, 5});
  const nn::ConvTranspose2d up(nn::ConvTranspose2dOptions(4, 2, 3).stride(2).padding(1));
  CHECK(up(x).sizes() == Shape{1, 2, 5, 9});
  CHECK(up(x, Dims{6, 9}).sizes() == Shape{1, 2, 6, 9});
  CHECK(up(x, Dims{1, 2, 5, 10}).sizes() == Shape{1, 2, 5, 10});
  CHECK(same_bits(up(x, Dims{6, 10}), conv_transpose2d(x, up->weight, up->bias, 2, 1, 1)));
  CHECK_THROWS_WITH_AS(up(x, Dims{7, 9}), Contains("length 7 of dimension 0 must be from 5 to 6"),
                       Error);
  CHECK_THROWS_WITH_AS(up(x, Dims{6}), Contains("expected 2 lengths, or all 4 sizes"), Error);
}

TEST_CASE("padding modes are PyTorch's, in value and gradient") {
  const testing::Vectors torch("convolutions.txt");
  const std::pair<PadMode, const char*> modes[] = {
      {kZeros, "zeros"}, {kReflect, "reflect"}, {kReplicate, "replicate"}, {kCircular, "circular"}};
  for (const auto& [mode, word] : modes) {
    for (const bool same : {false, true}) {
      nn::Conv2dOptions o(1, 2, {2, 3});
      o.padding_mode(mode);
      if (same)
        o.padding(kSame);
      else
        o.padding({1, 2});
      const nn::Conv2d conv(o);
      conv->to(kFloat64);
      {
        const NoGradGuard no_grad;
        conv->weight.copy_((arange(12, kFloat64) / 8 - 0.5).reshape({2, 1, 2, 3}));
        conv->bias.copy_(tensor({0.5, -1.0}, kFloat64));
      }
      const Tensor x = torch.tensor("module/x", {1, 4, 5}).requires_grad_();
      const std::string name = std::string("module/") + word + (same ? "/same" : "/numbers");
      CAPTURE(name);
      const Tensor y = conv(x);
      CHECK(differ(y, torch[name + "/value"], {.ulps = 8, .eps = 8}) == "");
      const TensorList g = autograd::grad({y}, {x, conv->weight, conv->bias},
                                          {arange(1, y.numel() + 1, kFloat64).reshape(y.sizes())});
      for (size_t i = 0; i < 3; ++i)
        CHECK(differ(g[i], torch[name + "/grad" + std::to_string(i)], {.ulps = 8, .eps = 8}) == "");
    }
  }
}

TEST_CASE("what a convolution module refuses") {
  const auto refuses = [](const auto& call, const char* text) {
    CHECK_THROWS_WITH_AS(call(), Contains(text), Error);
  };
  refuses([] { nn::Conv2d(0, 3, 2); }, "in_channels 0");
  refuses([] { nn::Conv2d(nn::Conv2dOptions(4, 6, 3).groups(3)); },
          "in_channels 4 and out_channels 6 must be divisible by groups 3");
  refuses([] { nn::Conv2d(4, 4, 0); }, "kernel_size [0, 0] must be positive");
  refuses([] { nn::Conv2d(nn::Conv2dOptions(4, 4, 3).padding(kSame).stride(2)); },
          "padding='same' is not supported for strided convolutions");
  refuses([] { nn::Conv2dOptions(4, 4, {1, 2, 3}); }, "expected 2 values");
  refuses([] { nn::ConvTranspose2d(nn::ConvTranspose2dOptions(2, 2, 2).padding_mode(kReflect)); },
          "only kZeros is possible");
  refuses([] { nn::Conv2d(4, 4, 3)(randn({1, 3, 8, 8})); }, "has 3 channels");
}

TEST_CASE("a small network of convolutions learns, also under autocast") {
  for (const bool half : {false, true}) {
    manual_seed(0);
    nn::Sequential net(nn::Conv2d(nn::Conv2dOptions(1, 4, 3).padding(1)), nn::ReLU(),
                       nn::MaxPool2d(2), nn::Conv2d(4, 8, 3), nn::ReLU(), nn::AdaptiveAvgPool2d(1),
                       nn::Flatten(), nn::Linear(8, 2));
    optim::Adam adam(net->parameters(), optim::AdamOptions(0.04));
    // Bright upper or lower halves.
    const Tensor x = randn({32, 1, 8, 8}) * 0.5, target = arange(32) % 2;
    for (int64_t i = 0; i < 32; ++i) x[i].slice(1, i % 2 * 4, i % 2 * 4 + 4).add_(1);
    double first = 0, last = 0;
    for (int step = 0; step < 25; ++step) {
      adam.zero_grad();
      Tensor loss;
      {
        const amp::autocast region(get_default_device().type(), kBFloat16, half);
        loss = F::cross_entropy(net->forward(x), target);
      }
      loss.backward();
      adam.step();
      (step == 0 ? first : last) = loss.item();
    }
    CHECK(first > 0.6);
    CHECK(last < 0.3);
  }
}
