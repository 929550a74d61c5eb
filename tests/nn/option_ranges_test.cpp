// Options out of their range are refused where a module is made, by name.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <limits>
#include <string>

#include "halftape/tests/support/message.h"
#include "halftape/tests/support/nonfinite.h"

using namespace halftape;
using testing::has;
using testing::kNaN;
using testing::message;

namespace {
constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();
}  // namespace

TEST_CASE("sizes that are 0, negative or of no memory are refused before anything is computed") {
  for (const int64_t n : {int64_t(0), int64_t(-1), kHuge}) {
    CAPTURE(n);
    CHECK_THROWS_AS(nn::Linear(n, n), Error);
    CHECK_THROWS_AS(nn::LSTM(2, n), Error);
    CHECK_THROWS_AS(nn::GRUCell(2, n), Error);
    CHECK_THROWS_AS(nn::MultiheadAttention(n, 1), Error);
    CHECK_THROWS_AS(nn::GroupNorm(2, n), Error);
    CHECK_THROWS_AS(nn::GroupNorm(nn::GroupNormOptions(n, 4).affine(false)), Error);
    CHECK_THROWS_AS(nn::LSTM(nn::LSTMOptions(2, 2).num_layers(n)), Error);
  }
  const auto said = [](auto f) { return message(f); };
  CHECK(has(said([] { nn::RNN(nn::RNNOptions(2, 2).num_layers(kHuge)); }), "is more than 10000"));
  CHECK(has(said([] { nn::FusedMLP(2, 2, kHuge, 2); }), "is more than 9999"));
  CHECK(has(said([] { nn::MultiheadAttention(nn::MultiheadAttentionOptions(4, 2).kdim(0)); }),
            "kdim 0 must be positive"));
}

TEST_CASE("strides, dilations and windows are checked where a layer is made, before products") {
  for (const int64_t n : {int64_t(0), int64_t(-1)}) {
    CHECK_THROWS_AS(nn::Conv2d(nn::Conv2dOptions(1, 1, 3).stride(n)), Error);
    CHECK_THROWS_AS(nn::Conv2d(nn::Conv2dOptions(1, 1, 3).dilation(n)), Error);
    CHECK_THROWS_AS(nn::ConvTranspose2d(nn::ConvTranspose2dOptions(1, 1, 3).stride(n)), Error);
  }
  const Tensor x = ones({1, 1, 6, 6});
  const Tensor places = arange(36, kInt64).reshape({1, 1, 6, 6});
  const nn::Conv2d same(
      nn::Conv2dOptions(1, 1, 3).dilation(kHuge).padding(kSame).padding_mode(kReflect));
  CHECK(has(message([&] { same(x); }), "does not fit 64 bits"));
  const nn::ConvTranspose2d wide(nn::ConvTranspose2dOptions(1, 1, 3).stride(kHuge));
  CHECK(has(message([&] { wide->forward(x, Dims{8, 8}); }), "does not fit 64 bits"));
  const nn::MaxUnpool2d spread(nn::MaxUnpool2dOptions(2).stride(kHuge));
  CHECK(has(message([&] { spread(x, places); }), "does not fit 64 bits"));
  const nn::MaxUnpool2d none(nn::MaxUnpool2dOptions(2).stride(0));
  CHECK(has(message([&] { none(x, places); }), "stride [0, 0] must be positive"));
}

TEST_CASE("fractions are numbers from 0 to 1, and clusters have features that can be counted") {
  for (const double p : {-0.5, 1.5, kNaN}) {
    CAPTURE(p);
    CHECK_THROWS_AS(nn::Dropout{p}, Error);
    CHECK_THROWS_AS(nn::LSTM(nn::LSTMOptions(2, 2).dropout(p)), Error);
    CHECK_THROWS_AS(nn::MultiheadAttention(nn::MultiheadAttentionOptions(4, 2).dropout(p)), Error);
    CHECK_THROWS_AS(nn::BatchNorm1d(nn::BatchNormOptions(2).momentum(p)), Error);
    CHECK_THROWS_AS(nn::InstanceNorm1d(nn::InstanceNormOptions(2).momentum(p)), Error);
  }
  CHECK_NOTHROW(nn::BatchNorm1d(nn::BatchNormOptions(2).momentum(std::nullopt)));
  nn::AdaptiveLogSoftmaxWithLossOptions options(4, 10, {2, 4});
  CHECK(has(message([&] { nn::AdaptiveLogSoftmaxWithLoss{options.div_value(1e-300)}; }),
            "a div_value above 1"));
}
