// Arguments at the ends of their meaning: sizes of 0 and 1, factors that change nothing, parts that
// are missing, and numbers that a range, a dtype or a dimension does not have.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <cmath>
#include <limits>
#include <sstream>

#include "halftape/tests/support/close.h"
#include "halftape/tests/support/counted.h"

using namespace halftape;
using testing::counted;
using testing::differ;
using testing::same_bits;

namespace {
using Values = std::vector<double>;
using Sizes = std::vector<int64_t>;
}  // namespace

TEST_CASE("a factor of 1 of any kind leaves a sum as it is") {
  const Tensor x = counted({3}), n = arange(3);
  CHECK(same_bits(add(x, x, 1.0), x + x));
  CHECK(same_bits(sub(x, n, true), x - n));
  CHECK(same_bits(add(n, n, 2), n * 3));
  CHECK(add(x, 2.5, 2).to_vector() == Values{5, 6, 7});
  CHECK(add(n, 3, 2).to_vector() == Values{6, 7, 8});
  CHECK(add(n, 3, 2).dtype() == kInt64);
  CHECK(sub(n, 1.5, 3).to_vector() == Values{-4.5, -3.5, -2.5});
  CHECK(pow(2, n).to_vector() == Values{1, 2, 4});
  CHECK(pow(2, n).dtype() == kInt64);
  CHECK(pow(0.5, n).to_vector() == Values{1, 0.5, 0.25});
}

TEST_CASE("where the bounds of clamp cross, the upper one wins") {
  const Tensor x = counted({4}) - 1;
  CHECK(clamp(x, 2.0, 1.0).to_vector() == Values{1, 1, 1, 1});
  CHECK(clamp(arange(4), 2, 1).to_vector() == Values{1, 1, 1, 1});
  CHECK(clamp(arange(4), 2, 1).dtype() == kInt64);
}

TEST_CASE("layout calls of nothing, of one and of no dimension give the tensor back") {
  const Tensor x = counted({2, 3}), number = full({}, 5.0);
  CHECK(same_bits(movedim(x, Dims{}, Dims{}), x));
  CHECK(same_bits(movedim(number, Dims{}, Dims{}), number));
  CHECK(same_bits(narrow(x, 1, -2, 2), narrow(x, 1, 1, 2)));
  CHECK(same_bits(counted({3}).t(), counted({3})));
  CHECK(same_bits(x.to(x.dtype(), false, true), x));
  CHECK_FALSE(x.to(x.dtype(), false, true).is_same(x));
  const TensorList grid = meshgrid({counted({3})}, "xy");
  REQUIRE(grid.size() == 1);
  CHECK(same_bits(grid[0], counted({3})));
  const auto [values, order] = sort(number);
  CHECK(values.item() == 5);
  CHECK(order.item() == 0);
  CHECK(same_bits(x.where(x > 2, 0), where(x > 2, x, zeros_like(x))));
  CHECK(tensor({}).sizes() == Shape{0});
  CHECK(eye(0, 3).sizes() == Shape{0, 3});
  CHECK(eye(3, 0).sizes() == Shape{3, 0});
}

TEST_CASE("a part without elements is contiguous, and has any view of its size") {
  const Tensor x = zeros({0, 4, 6}).requires_grad_(), part = x.slice(2, 0, 3);
  CHECK(part.is_contiguous());
  CHECK(part.view({0, 12}).sizes() == Shape{0, 12});
  CHECK(part.view({-1}).sizes() == Shape{0});
  part.view({3, 0}).sum().backward();
  CHECK(x.grad().sizes() == x.sizes());
  CHECK_FALSE(zeros({2, 4, 6}).slice(2, 0, 3).is_contiguous());
}

TEST_CASE("an index prints as it is written, and a number of an integer tensor is an index") {
  const auto text = [](const indexing::TensorIndex& index) {
    std::ostringstream out;
    out << index;
    return out.str();
  };
  using indexing::Slice;
  CHECK(text(Slice(1, 5, 2)) == "1:5:2");
  CHECK(text(false) == "false");
  CHECK(text(full({}, 3, kInt64)).starts_with("3\n[ "));
  const Tensor x = counted({3, 2});
  CHECK(same_bits(x.index({full({}, 2, kInt32)}), x[2]));
  CHECK_THROWS_WITH_AS(x.index({full({}, 2.0)}),
                       "index: an index tensor is float32, expected int64, int32 or bool", Error);
}

TEST_CASE("one row of distances, no columns and one pixel have a meaning") {
  CHECK(pdist(zeros({3, 0})).to_vector() == Values{0, 0, 0});
  CHECK(pdist(zeros({1, 4})).sizes() == Shape{0});
  // With aligned corners a side of one pixel is a point: whatever lies beyond folds back onto it.
  const Tensor pixel = full({1, 1, 1, 1}, 7.0);
  const Tensor far = full({1, 1, 2, 2}, 3.5);
  CHECK(grid_sample(pixel, far, kBilinear, GridPadding::Reflection, true).to_vector() ==
        Values{7, 7});
  CHECK(
      affine_grid(tensor({{{1.0, 0.0, 0.5}, {0.0, 1.0, 0.25}}}), {1, 1, 1, 1}, true).to_vector() ==
      Values{0.5, 0.25});
}

TEST_CASE("resizing to the same size copies, and an area is the mean of what it covers") {
  const Tensor x = counted({1, 1, 4});
  const Tensor same = interpolate(x, Sizes{4});
  CHECK(same_bits(same, x));
  CHECK_FALSE(same.is_same(x));
  CHECK(interpolate(x, Sizes{2}, {}, Interpolation::Area).to_vector() == Values{0.5, 2.5});
  CHECK(
      interpolate(counted({1, 1, 2, 2, 2}), Sizes{1, 1, 1}, {}, Interpolation::Area).to_vector() ==
      Values{3.5});
  const Tensor part = interpolate(counted({1, 1, 2, 3}), Sizes{2, 6});  // one dimension grows
  CHECK(part.to_vector() == Values{0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5});
}

TEST_CASE("attention without queries, keys or features is the formula's") {
  const auto attention = [](Shape q, Shape k, Shape v) {
    return scaled_dot_product_attention(ones(q), ones(k), ones(v));
  };
  CHECK(attention({2, 0, 4}, {2, 3, 4}, {2, 3, 4}).sizes() == Shape{2, 0, 4});
  CHECK(attention({0, 3, 4}, {0, 3, 4}, {0, 3, 4}).sizes() == Shape{0, 3, 4});
  CHECK(attention({2, 3, 4}, {2, 3, 4}, {2, 3, 0}).sizes() == Shape{2, 3, 0});
  // Without features all scores are 0: the mean of the values. Without keys the sum is empty.
  CHECK(attention({1, 1, 0}, {1, 2, 0}, {1, 2, 1}).to_vector() == Values{1});
  CHECK(attention({1, 1, 2}, {1, 0, 2}, {1, 0, 1}).to_vector() == Values{0});
  // Values with more leading dimensions than queries and keys.
  const Tensor q = counted({2, 3}) / 5, v = counted({2, 2, 3});
  const Tensor y = scaled_dot_product_attention(q, q, v);
  CHECK(y.sizes() == Shape{2, 2, 3});
  CHECK(differ(y[1], scaled_dot_product_attention(q, q, v[1]), {.eps = 8}) == "");
  // All weights dropped, or each with probability 0.
  manual_seed(1);
  CHECK(scaled_dot_product_attention(q, q, q, {}, 1.0).to_vector() == Values(6, 0));
}

TEST_CASE("mlp_loss without biases is the loss of the products alone") {
  manual_seed(2);
  const Tensor x = randn({5, 4}), target = arange(5).remainder(3);
  const TensorList weights{randn({6, 4}).requires_grad_(), randn({3, 6}).requires_grad_()};
  const auto by_hand = [&] {
    return cross_entropy(linear(relu(linear(x, weights[0])), weights[1]), target);
  };
  const TensorList missing(2);
  for (const TensorList& biases : {TensorList{}, missing}) {
    const Tensor loss = mlp_loss(x, target, weights, biases);
    CHECK(differ(loss, by_hand(), {.eps = 8}) == "");
    const TensorList got = autograd::grad({loss}, weights, {}, true, true),
                     wanted = autograd::grad({by_hand()}, weights, {}, true, true);
    for (size_t i = 0; i < 2; ++i) CHECK(differ(got[i], wanted[i], {.eps = 8}) == "");
    const TensorList again = autograd::grad({got[0].square().sum()}, weights),
                     expected = autograd::grad({wanted[0].square().sum()}, weights);
    for (size_t i = 0; i < 2; ++i) CHECK(differ(again[i], expected[i], {.eps = 8}) == "");
  }
  const NoGradGuard plain;
  CHECK(differ(mlp_loss(x, target, weights, {}), by_hand(), {.eps = 8}) == "");
}

TEST_CASE("the memory format that fits the strides best is suggested") {
  const Tensor x = counted({2, 3, 4, 5, 6}), last = x.permute({0, 2, 3, 4, 1}).contiguous();
  const Tensor channels_last = last.permute({0, 4, 1, 2, 3});
  CHECK(channels_last.is_contiguous(MemoryFormat::ChannelsLast3d));
  CHECK(channels_last.suggest_memory_format() == MemoryFormat::ChannelsLast3d);
  CHECK_FALSE(channels_last.is_contiguous(MemoryFormat::ChannelsLast));
  CHECK_FALSE(x.is_contiguous(MemoryFormat::ChannelsLast3d));
  CHECK(x.suggest_memory_format() == MemoryFormat::Contiguous);
  CHECK(zeros({2, 0, 4, 5, 6}).is_contiguous(MemoryFormat::ChannelsLast3d));
  CHECK(zeros({2, 0, 4, 5}).suggest_memory_format() == MemoryFormat::Contiguous);
  CHECK(counted({1, 3, 4, 5}).expand({2, 3, 4, 5}).suggest_memory_format() ==
        MemoryFormat::Contiguous);
  CHECK(counted({2, 1, 4, 5}).expand({2, 3, 4, 5}).suggest_memory_format() ==
        MemoryFormat::Contiguous);
  CHECK(x.is_contiguous(MemoryFormat::Contiguous));
  CHECK(x.is_contiguous(MemoryFormat::Preserve));
}

TEST_CASE("ctc_loss of targets that repeat and that fill their width") {
  // One frame cannot say two labels; two frames say "1 1" only with a blank between.
  const Tensor even = full({3, 1, 2}, std::log(0.5));
  const auto loss = [&](const Tensor& frames, const Tensor& target) {
    return ctc_loss(frames, target, full({1}, frames.size(0), kInt64),
                    full({1}, target.size(1), kInt64), 0, Reduction::Sum)
        .item();
  };
  CHECK(std::isinf(loss(even.narrow(0, 0, 2), tensor({{1, 1}}))));
  CHECK(loss(even, tensor({{1, 1}})) == doctest::Approx(3 * std::log(2)));  // one path of eight
  CHECK(loss(even, zeros({1, 0}, kInt64)) == doctest::Approx(3 * std::log(2)));
}

TEST_CASE("a batch of ignored targets has gradients of 0") {
  for (const bool recorded : {false, true}) {
    const Tensor x = counted({2, 3}).requires_grad_(), none = full({2}, -100, kInt64);
    const Tensor loss = cross_entropy(x, none);
    CHECK(std::isnan(loss.item()));  // the mean of nothing
    CHECK(autograd::grad({loss}, {x}, {}, recorded, recorded)[0].to_vector() == Values(6, 0));
  }
}

TEST_CASE("a number has the dimensions 0 and -1, and no other") {
  const Tensor number = full({}, 1.5);
  CHECK(softmax(number, -1).item() == 1);
  CHECK_THROWS_WITH_AS(softmax(number, 1), doctest::Contains("dimension 1 is out of range"), Error);
  CHECK_THROWS_WITH_AS(log_softmax(number, -2), doctest::Contains("dimension -2"), Error);
  CHECK_THROWS_WITH_AS(movedim(number, {5}, {7}), doctest::Contains("dimension 5"), Error);
}

TEST_CASE("a whole number beyond int64 is one of floating point") {
  constexpr uint64_t most = UINT64_MAX;
  CHECK(full({1}, most, kFloat64).item() == 0x1p64);
  CHECK((ones({1}, kFloat64) * most).item() == 0x1p64);
  CHECK(full({1}, uint64_t{7}).dtype() == kInt64);
  CHECK_THROWS_AS(full({1}, most, kInt64), Error);
  CHECK_THROWS_AS(tensor(std::vector<uint64_t>{most}), Error);
  CHECK(tensor(std::vector<uint64_t>{7}).item<int64_t>() == 7);
}

TEST_CASE("numbers are drawn from ranges that exist") {
  const Tensor x = zeros({3});
  CHECK_THROWS_WITH_AS(x.uniform_(1, 0), "uniform_: the range from 1 to 0 is none", Error);
  CHECK_THROWS_WITH_AS(x.uniform_(-INFINITY, INFINITY), doctest::Contains("is beyond the largest"),
                       Error);
  CHECK_THROWS_WITH_AS(ones({2}, kFloat16).uniform_(0, 1e5),
                       doctest::Contains("the largest number of float16, 65504"), Error);
  CHECK_THROWS_WITH_AS(ones({2}, kFloat16).uniform_(-4e4, 4e4), doctest::Contains("or its width"),
                       Error);
  CHECK(ones({2}, kFloat16).uniform_(-3e4, 3e4).isfinite().all().item<bool>());
  CHECK_THROWS_WITH_AS(constant_pad_nd(ones({2}, kUInt8), {1}, 300),
                       doctest::Contains("constant_pad_nd"), Error);
  CHECK_THROWS_WITH_AS(x.uniform_(NAN, 1), doctest::Contains("uniform_: the range from nan"),
                       Error);
  CHECK_THROWS_WITH_AS(x.normal_(0, -1), "normal_: the deviation -1 is not at least 0", Error);
  CHECK_THROWS_WITH_AS(nn::init::normal_(x, 0, NAN), doctest::Contains("deviation nan"), Error);
  CHECK(x.to_vector() == Values(3, 0));
  CHECK(x.uniform_(2, 2).to_vector() == Values(3, 2));
}

TEST_CASE("what is infinite stays in the windows that it lies in") {
  constexpr double inf = std::numeric_limits<double>::infinity();
  const Tensor x = tensor({2.0, 4.0, -4.0, 4.0, -inf}, kFloat64).reshape({1, 1, 5});
  CHECK(adaptive_avg_pool1d(x, {4}).to_vector() == Values{3, 0, 0, -inf});
  Tensor map = zeros({1, 1, 8, 8});
  map.index_put_({0, 0, 3, 3}, NAN);
  const Tensor larger = interpolate(map, Sizes{16, 16}, {}, Interpolation::Area);
  CHECK(isnan(larger).sum().item() == 4);
}

TEST_CASE("what is infinite at an edge of an image is not seen from outside it") {
  constexpr double inf = std::numeric_limits<double>::infinity();
  Tensor image = zeros({1, 1, 3, 3});
  image.index_put_({0, 0, 0, 0}, inf);
  for (const Interpolation mode : {Interpolation::Bilinear, Interpolation::Nearest}) {
    const Tensor points = full({1, 1, 1, 2}, -3.0).requires_grad_();
    const Tensor y = grid_sample(image, points, mode);
    CHECK(y.item() == 0);
    if (mode == Interpolation::Nearest) continue;  // whose result does not depend on the points
    y.sum().backward();
    CHECK(points.grad().to_vector() == Values{0, 0});
  }
}

TEST_CASE("a norm over no elements has empty gradients") {
  for (const Shape& shape : {Shape{2, 0}, Shape{2, 0, 3}}) {
    const Shape over = shape.slice(1);
    nn::LayerNorm norm(over);
    const Tensor x = zeros(shape).requires_grad_();
    norm(x).sum().backward();
    rms_norm(x, over, norm->weight).sum().backward();
    CHECK(x.grad().sizes() == x.sizes());
    CHECK(norm->weight.grad().sizes() == over);
  }
}

TEST_CASE("a byte takes -1 for 255, as C does, and no fraction below 0") {
  CHECK(full({1}, -1, kUInt8).item() == 255);
  CHECK(full({1}, -0.5, kUInt8).item() == 0);
  for (const double v : {-1.0, -3.5, 256.0, double{NAN}})
    CHECK_THROWS_WITH_AS(full({1}, v, kUInt8), doctest::Contains("without overflow"), Error);
}

TEST_CASE("ops that have nothing to do give a copy all the same") {
  const Tensor x = counted({1, 4, 2, 2}), m = counted({2, 2});
  for (const Tensor& y : {x.diff(0), pixel_shuffle(x, 1), pixel_unshuffle(x, 1)}) {
    CHECK(same_bits(x, y));
    CHECK(y.const_data_ptr() != x.const_data_ptr());
  }
  CHECK(chain_matmul({m}).const_data_ptr() != m.const_data_ptr());
  const Tensor whole = ones({2}, kInt64);
  CHECK(nan_to_num(whole).const_data_ptr() != whole.const_data_ptr());
}

TEST_CASE("binary_cross_entropy says of a number that it is no probability") {
  const Tensor half = full({2}, 0.5, kCPU), nan = full({2}, std::nan(""), kCPU);
  const auto refused = [](const char* what) {
    return doctest::Contains((std::string(what) + " has numbers outside of [0, 1]").c_str());
  };
  for (const double wrong : {-1e-6, 1.0 + 1e-6, 2.0, HUGE_VAL}) {
    CHECK_THROWS_WITH_AS(binary_cross_entropy(full({2}, wrong, kCPU), half), refused("input"),
                         Error);
    CHECK_THROWS_WITH_AS(binary_cross_entropy(half, full({2}, wrong, kCPU)), refused("target"),
                         Error);
  }
  CHECK(binary_cross_entropy(nan, half).isnan().item<bool>());  // a scaler skips that step
  CHECK(binary_cross_entropy(zeros({2}, kCPU), ones({2}, kCPU)).item() == 100);
}

TEST_CASE(
    "probabilities as a target have a say in the dtype of cross_entropy, class numbers none") {
  const Tensor x = counted({2, 3}, kFloat16);
  for (const Dtype d : {kFloat16, kFloat32, kFloat64})
    CHECK(cross_entropy(x, full({2, 3}, 0.25, d)).dtype() == d);
  CHECK(cross_entropy(x.to(kFloat64), full({2, 3}, 0.25)).dtype() == kFloat64);
  CHECK(cross_entropy(x, arange(2)).dtype() == kFloat16);
}
