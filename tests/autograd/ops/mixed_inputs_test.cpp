// Ops of several inputs whose dtypes differ, and of numbers at the ends of a dtype's range.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <cmath>
#include <cstdint>
#include <limits>

#include "halftape/tests/support/close.h"
#include "halftape/tests/support/message.h"

using namespace halftape;
using doctest::Contains;
using testing::same_bits;

namespace {

using Doubles = std::vector<double>;
constexpr Dtype kAll[] = {kUInt8,   kInt8,     kInt16,   kInt32,  kInt64,
                          kFloat16, kBFloat16, kFloat32, kFloat64};

}  // namespace

TEST_CASE("sums with a factor or a product are computed in the dtype of all inputs") {
  for (const Dtype first : kAll)
    for (const Dtype second : kAll) {
      CAPTURE(first);
      CAPTURE(second);
      const Tensor a = full({3}, 3, first), b = full({3}, 100, second);
      const Dtype both = result_type(a, b);
      const Tensor x = a.to(both), y = b.to(both);
      CHECK(same_bits(add(a, b, 2), add(x, y, 2)));
      CHECK(same_bits(sub(a, b, 2), sub(x, y, 2)));
      CHECK(same_bits(rsub(a, b, 3), rsub(x, y, 3)));
      CHECK(same_bits(addcmul(a, b, b), addcmul(x, y, y)));
      CHECK(same_bits(addcmul(a, b, a, 2), addcmul(x, y, x, 2)));
      if (!is_floating_point(first) || !is_floating_point(second)) continue;
      CHECK(same_bits(addcdiv(a, b, b, 0.1), addcdiv(x, y, y, 0.1)));
      CHECK(same_bits(lerp(a, b, 0.1), lerp(x, y, 0.1)));
      CHECK(
          same_bits(lerp(a, b, full({3}, 0.1, first)), lerp(x, y, full({3}, 0.1, first).to(both))));
    }
}

TEST_CASE("a float32 sum takes what a half or a byte cannot hold") {
  const Tensor small = full({1}, 1e-3, kFloat16), large = full({1}, 60000.0, kFloat16),
               square = full({1}, 300.0, kFloat16), byte = full({1}, 200, kUInt8);
  CHECK(zeros({1}).add_(small, -1e-5).item() == doctest::Approx(-1e-8).epsilon(1e-3));
  CHECK(zeros({1}).add_(large, 2).item() == 120000);
  CHECK(zeros({1}).addcmul_(square, square).item() == 90000);
  CHECK(zeros({1}).add(byte, 2).item() == 400);
  CHECK(zeros({1}).add(byte, -1).item() == -200);
  CHECK(zeros({1}, kInt64).add(full({1}, 100, kInt8), 2).item() == 200);
  CHECK(lerp(byte, full({1}, 100, kUInt8), full({1}, 0.5)).item() == 150);
  // The gradient of the half is computed in float32, too, and rounded once.
  const Tensor x = zeros({1}).requires_grad_(), g = square.clone().requires_grad_();
  addcmul(x, g, g).backward();
  CHECK(x.grad().item() == 1);
  CHECK(g.grad().dtype() == kFloat16);
  CHECK(g.grad().item() == 600);
}

TEST_CASE("numbers beside a float tensor are multiplied as numbers") {
  constexpr int64_t least = std::numeric_limits<int64_t>::min();
  const Tensor zero = zeros({1}), minus_zero = full({1}, -0.0);
  CHECK((zero - least).item() == 0x1p63);
  CHECK(rsub(zero, 0, least).item() == 0);
  CHECK(rsub(ones({1}), 0, least).item() == 0x1p63);
  CHECK(add(zero, int64_t{1} << 40, int64_t{1} << 40).item() == 0x1p80);
  CHECK(std::signbit((minus_zero - 0).item()));
  CHECK((zeros({1}, kInt64) - least).item<int64_t>() == least);  // as integers do
}

TEST_CASE("a bound that leaves an integer dtype nothing is refused") {
  const Tensor byte = full({1}, 5, kUInt8), small = full({1}, 5, kInt8);
  const auto overflow = Contains("without overflow");
  CHECK_THROWS_WITH_AS(byte.clamp(300), overflow, Error);
  CHECK_THROWS_WITH_AS(small.clamp_min(200), overflow, Error);
  CHECK_THROWS_WITH_AS(small.clamp_max(-200), overflow, Error);
  CHECK_THROWS_WITH_AS(byte.clamp_max(-1), Contains("below all numbers of uint8"), Error);
  CHECK_THROWS_WITH_AS(hardtanh(byte, 300, 400), overflow, Error);
  CHECK_THROWS_WITH_AS(threshold(byte, 9, 300), overflow, Error);
  CHECK(byte.clamp(-5, 300).item() == 5);
  CHECK(small.clamp(-1000, 3).item() == 3);
  CHECK(full({1}, 5.0, kFloat16).clamp(1e6).item() == std::numeric_limits<double>::infinity());
}

TEST_CASE("elu scales what is below zero, whatever the sign of the scale") {
  const Tensor x = tensor(Doubles{-1, 0, 1}, kFloat64).requires_grad_();
  const Tensor y = elu(x, 1.5, 2, -1);
  CHECK(y.detach().to_vector() == Doubles{3 * std::expm1(1.0), 0, 2});
  y.sum().backward();
  CHECK(x.grad()[0].item() == doctest::Approx(-3 * std::exp(1.0)).epsilon(1e-14));
  CHECK(x.grad()[1].item() == -3);
  CHECK(x.grad()[2].item() == 2);
  CHECK(same_bits(elu(x.detach().to(kFloat16), 1.5, 2, -1),
                  elu(x.detach().to(kFloat16).to(kFloat32), 1.5, 2, -1).to(kFloat16)));
}

TEST_CASE("losses and distances of integers are no integers") {
  const Tensor none = zeros({1}, kInt64), one = ones({1}, kInt64);
  CHECK_THROWS_WITH_AS(binary_cross_entropy_with_logits(none, none), Contains("of int64"), Error);
  CHECK_THROWS_WITH_AS(binary_cross_entropy(one, none), Contains("of int64"), Error);
  CHECK(binary_cross_entropy_with_logits(zeros({1}), one).item() ==
        doctest::Approx(std::log(2)).epsilon(1e-6));
  CHECK(pairwise_distance(zeros({1, 2}, kInt64), ones({1, 2}, kInt64)).item() ==
        doctest::Approx(std::sqrt(2)).epsilon(1e-5));
}

TEST_CASE("NaN takes the gradient of maximum and minimum with it") {
  const double nan = std::nan("");
  using Binary = Tensor(const Tensor&, const Tensor&);
  const auto slopes = [](Binary* f, double a, double b) {
    const Tensor x = full({1}, a).requires_grad_(), y = full({1}, b).requires_grad_();
    f(x, y).backward();
    return Doubles{x.grad().item(), y.grad().item()};
  };
  for (Binary* const f : {static_cast<Binary*>(maximum), static_cast<Binary*>(minimum)}) {
    CHECK(slopes(f, nan, 1) == Doubles{1, 0});
    CHECK(slopes(f, 1, nan) == Doubles{0, 1});
    CHECK(slopes(f, nan, nan) == Doubles{1, 0});
  }
  for (Binary* const f : {static_cast<Binary*>(fmax), static_cast<Binary*>(fmin)}) {
    CHECK(slopes(f, nan, 1) == Doubles{0, 1});
    CHECK(slopes(f, 1, nan) == Doubles{1, 0});
  }
}

TEST_CASE("more equal values than float16 can count share the gradient") {
  for (const bool middle : {false, true}) {
    const Tensor x = zeros({70000}, kFloat16).requires_grad_();
    (middle ? median(x) : x.amax()).backward();
    CHECK(same_bits(x.grad(), full({70000}, 1.0 / 70000, kFloat16)));
  }
}
