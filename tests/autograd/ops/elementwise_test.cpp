// Element-wise functions beyond the op table: integers and bool, numbers beside tensors, special
// values, and errors.
#include <doctest/doctest.h>

#include <limits>

#include "halftape/tests/support/close.h"
#include "halftape/tests/support/lists.h"
#include "halftape/tests/support/message.h"
#include "halftape/tests/support/nonfinite.h"
#include "halftape/tests/support/ops.h"

using namespace halftape;
using testing::differ;
using testing::has;
using testing::ints, testing::ints_of, testing::points;
using testing::kInf, testing::kNaN;
using testing::message;
using testing::same_bits;

namespace {

using Doubles = std::vector<double>;
using Ints = std::vector<int64_t>;

}  // namespace

TEST_CASE("integers beyond 2^53 are exact beside numbers, in clamp and in comparisons") {
  constexpr int64_t big = (int64_t{1} << 53) + 1;
  const Tensor x = ints({big, -big, 3});
  CHECK(ints_of(x + 1) == Ints{big + 1, -big + 1, 4});
  CHECK(ints_of(x - big) == Ints{0, -2 * big, 3 - big});
  CHECK(ints_of(x * 3) == Ints{3 * big, -3 * big, 9});
  CHECK(ints_of(big - x) == Ints{0, 2 * big, big - 3});
  CHECK(ints_of(affine(x, -1, big + 1)) == Ints{1, 2 * big + 1, big - 2});
  CHECK(ints_of(x.clamp(-big + 1, big - 1)) == Ints{big - 1, -big + 1, 3});
  CHECK(ints_of(x.clamp_max(big - 1)) == Ints{big - 1, -big, 3});
  CHECK(ints_of(hardtanh(x, -big + 1, big - 1)) == Ints{big - 1, -big + 1, 3});
  CHECK(ints_of(threshold(x, big - 1, 0)) == Ints{big, 0, 0});
  CHECK(ints_of(x == big) == Ints{1, 0, 0});
  CHECK(ints_of(x < big + 1) == Ints{1, 1, 1});
  CHECK(ints_of(x > big - 1) == Ints{1, 0, 0});
  CHECK(ints_of(x % 10) == Ints{big % 10, 10 - big % 10, 3});
  CHECK(ints_of(pow(ints({3, -3, 2}), 39)) ==
        Ints{4052555153018976267, -4052555153018976267, int64_t{1} << 39});
  constexpr int64_t root = (int64_t{1} << 30) + 7;
  CHECK(ints_of(square(ints({root}))) == Ints{root * root});
}

TEST_CASE("a number beyond a tensor's integers is compared as it is, and refused as a divisor") {
  for (const Dtype d : {kUInt8, kInt8, kInt16, kInt32}) {
    CAPTURE(d);
    // Each has the low bits of an element: wrapped, it would be taken for that.
    const Tensor x = tensor({5, 44}, kInt64).to(d);
    for (const int64_t wrapped : {(int64_t{1} << 32) + 44, 44 - (int64_t{1} << 32)}) {
      const bool above = wrapped > 0;
      CHECK(ints_of(x == wrapped) == Ints{0, 0});
      CHECK(ints_of(x != wrapped) == Ints{1, 1});
      CHECK(ints_of(x < wrapped) == Ints{above, above});
      CHECK(ints_of(x <= wrapped) == Ints{above, above});
      CHECK(ints_of(x > wrapped) == Ints{!above, !above});
      CHECK(ints_of(x >= wrapped) == Ints{!above, !above});
      const auto refused = [&](const char* op, const std::function<void()>& call) {
        CHECK_THROWS_WITH_AS(call(),
                             doctest::Contains((std::string(op) + ": " + std::to_string(wrapped) +
                                                " is no number of " + std::string(name(d)))
                                                   .c_str()),
                             Error);
      };
      refused("floor_divide", [&] { floor_divide(x, wrapped); });
      refused("div", [&] { div(x, wrapped, "trunc"); });
      refused("remainder", [&] { x % wrapped; });
      refused("remainder", [&] { remainder(Scalar(wrapped), x); });
      refused("fmod", [&] { fmod(x, wrapped); });
      refused("where", [&] { where(x > 9, wrapped, x); });
      CHECK(copysign(x, wrapped).to_vector() ==
            (above ? std::vector<double>{5, 44} : std::vector<double>{-5, -44}));
      CHECK(xlogy(x, (int64_t{1} << 32)).to_vector() ==
            xlogy(x.to(kFloat32), (int64_t{1} << 32)).to_vector());
      CHECK(ints_of((x & wrapped).to(kInt64)) == Ints{5 & wrapped, 44 & wrapped});
    }
    CHECK(ints_of(x == 44) == Ints{0, 1});
  }
  CHECK(ints_of(tensor({255}, kInt64).to(kUInt8) == -1) == Ints{0});
}

TEST_CASE("a 0-dim number is compared in the dtype of the other side, as PyTorch does") {
  for (const Dtype d : {kFloat32, kFloat16, kBFloat16}) {
    const Tensor x = tensor({0.1, 0.3}).to(d), tenth = full({}, 0.1, kFloat64);
    CHECK(x.eq(tenth).equal(tensor({true, false})));
    CHECK(tenth.eq(x).equal(tensor({true, false})));
    CHECK(x.gt(tenth).equal(tensor({false, true})));
    CHECK(tenth.ge(x).equal(tensor({true, false})));
    // With a dimension it counts: the widest dtype decides.
    CHECK_FALSE(x.slice(0, 0, 1).eq(tenth.unsqueeze(0)).item<bool>());
  }
}

TEST_CASE("integers wrap around and never trap") {
  constexpr int64_t low = std::numeric_limits<int64_t>::min(),
                    high = std::numeric_limits<int64_t>::max();
  const Tensor x = ints({low, high});
  CHECK(ints_of(x - 1) == Ints{high, high - 1});
  CHECK(ints_of(-x) == Ints{low, -high});
  CHECK(ints_of(abs(x)) == Ints{low, high});
  CHECK(ints_of(x * x) == Ints{0, 1});
  CHECK(ints_of(floor_divide(x, -1)) == Ints{low, -high});
  CHECK(ints_of(div(x, -1, "trunc")) == Ints{low, -high});
  CHECK(ints_of(x % -1) == Ints{0, 0});
  CHECK(ints_of(fmod(x, -1)) == Ints{0, 0});
  CHECK(ints_of(ints({200}, kUInt8) + 100) == Ints{44});
  CHECK((ints({200}, kUInt8) + 100).dtype() == kUInt8);
  CHECK(ints_of(~ints({200}, kUInt8)) == Ints{55});
}

TEST_CASE("division with a remainder has PyTorch's signs, for integers and floats") {
  const Ints a{7, -7, 7, -7, 6}, b{2, 2, -2, -2, -3};
  for (const Dtype d : {kInt32, kInt64, kFloat16, kFloat32, kFloat64}) {
    CAPTURE(d);
    const Tensor x = ints(a, d), y = ints(b, d);
    CHECK(floor_divide(x, y).dtype() == d);
    CHECK(ints_of(floor_divide(x, y)) == Ints{3, -4, -4, 3, -2});
    CHECK(ints_of(div(x, y, "trunc")) == Ints{3, -3, -3, 3, -2});
    CHECK(ints_of(x % y) == Ints{1, 1, -1, -1, 0});
    CHECK(ints_of(fmod(x, y)) == Ints{1, -1, 1, -1, 0});
    CHECK(ints_of(remainder(7, y)) == Ints{1, 1, -1, -1, -2});
  }
  CHECK(div(ints({7}), ints({2})).item() == 3.5);
  CHECK(div(ints({7}), 2.5, "floor").item() == 2);
  CHECK(div(ints({7}), 2.5, "floor").dtype() == kFloat32);
  // The exact quotient is a little below 10, but rounds to 10.
  CHECK(floor_divide(tensor({1.0}, kFloat64), 0.1).item() == 9);
  const Tensor zero = tensor({0.0, -0.0}, kFloat64);
  CHECK(differ(floor_divide(tensor({1.0, 1.0}, kFloat64), zero), Doubles{kInf, -kInf}, {}) == "");
  CHECK(differ(fmod(tensor({1.0, kInf}, kFloat64), tensor({kInf, 1.0}, kFloat64)), Doubles{1, kNaN},
               {}) == "");
  CHECK(differ(remainder(tensor({1.0, -1.0, kNaN}, kFloat64), 0.0), Doubles{kNaN, kNaN, kNaN},
               {}) == "");
  CHECK(std::signbit(floor_divide(tensor({-0.0}, kFloat64), 2).item<double>()));
}

TEST_CASE("an integer divided by zero throws and leaves the tensor as it was") {
  Tensor x = ints({7, 8});
  for (const auto& f : std::vector<std::function<void()>>{[&] { x % 0; },
                                                          [&] {
                                                            fmod(x, ints({1, 0}));
                                                          },
                                                          [&] { floor_divide(x, 0); },
                                                          [&] {
                                                            div(x, ints({1, 0}), "trunc");
                                                          },
                                                          [&] { x.remainder_(0); }})
    CHECK(has(message(f), "an integer divided by zero"));
  CHECK(ints_of(x) == Ints{7, 8});
}

TEST_CASE("logical ops take every number but 0 as true; bitwise ops take only integers and bool") {
  const Tensor a = tensor({0.0, 2.0, kNaN, -0.0}), b = tensor({1.0, 0.0, 3.0, 0.0});
  CHECK(ints_of(logical_and(a, b)) == Ints{0, 0, 1, 0});
  CHECK(ints_of(logical_or(a, b)) == Ints{1, 1, 1, 0});
  CHECK(ints_of(logical_xor(a, b)) == Ints{1, 1, 0, 0});
  CHECK(ints_of(!a) == Ints{1, 0, 0, 1});
  for (const Tensor& y : {logical_and(a, b), logical_or(a, b), logical_xor(a, b), !a})
    CHECK(y.dtype() == kBool);
  const Tensor m = a > 1, n = b > 0.5;
  for (const Tensor& y : {m & n, m | n, m ^ n, ~m, m & true}) CHECK(y.dtype() == kBool);
  CHECK(ints_of(m & n) == Ints{0, 0, 0, 0});
  CHECK(ints_of(m | n) == Ints{1, 1, 1, 0});
  CHECK(ints_of(m ^ n) == Ints{1, 1, 1, 0});
  CHECK(ints_of(~m) == Ints{1, 0, 1, 1});
  const Tensor x = ints({12, -1}, kInt32);
  CHECK(ints_of(x & 10) == Ints{8, 10});
  CHECK(ints_of(3 | x) == Ints{15, -1});
  CHECK(ints_of(x ^ ints({5, 5})) == Ints{9, -6});
  CHECK((x ^ ints({5, 5})).dtype() == kInt64);
  CHECK((x & m.slice(0, 0, 2)).dtype() == kInt32);
  CHECK(has(message([&] { a& b; }), "bitwise_and: tensors of float32 and float32"));
  CHECK(has(message([&] { ~a; }), "bitwise_not"));
  CHECK(has(message([&] { x | 1.5; }), "bitwise_or"));
  Tensor in_place = m.clone();
  in_place &= n;
  in_place |= m;
  in_place ^= n;
  CHECK(ints_of(in_place) == ints_of(m ^ n));
}

TEST_CASE("bool has no sign: negation and subtraction throw, sums and products are logic") {
  const Tensor m = tensor(std::vector<bool>{true, false});
  for (const auto& f : std::vector<std::function<void()>>{[&] { -m; }, [&] { m - m; },
                                                          [&] { m - 1; }, [&] { 1 - m; },
                                                          [&] {
                                                            ints({1, 2}) - m;
                                                          },
                                                          [&] {
                                                            ints({1, 2}) - true;
                                                          }})
    CHECK(has(message(f), "use ~ or logical_not()"));
  CHECK(has(message([&] { positive(m); }), "positive: not for bool"));
  for (const auto& f : std::vector<std::function<void()>>{
           [&] { fmod(m, m); }, [&] { m % m; }, [&] { pow(m, m); }, [&] { floor_divide(m, m); }})
    CHECK(has(message(f), "not for bool"));
  CHECK((m + m).dtype() == kBool);
  CHECK(ints_of(m + m) == Ints{1, 0});
  CHECK((m + true).dtype() == kBool);
  CHECK((m * true).dtype() == kBool);
  CHECK((m + 1).dtype() == kInt64);
  CHECK(ints_of(m * 3) == Ints{3, 0});
  CHECK((m / m).dtype() == kFloat32);
  CHECK(square(m).dtype() == kInt64);
  CHECK(m.clamp(0, 1).dtype() == kInt64);
}

TEST_CASE("integers keep their dtype where the result is whole and become float where not") {
  const Tensor x = ints({-2, 0, 3}, kInt32);
  for (const Tensor& y : {abs(x), sign(x), square(x), relu(x), floor(x), ceil(x), trunc(x),
                          round(x), clamp(x, -1, 2), pow(x, 3), pow(x, x), relu6(x), maximum(x, x),
                          fmax(x, x), clamp_min(x, x), x % 2, nan_to_num(x), threshold(x, 0, 7)})
    CHECK(y.dtype() == kInt32);
  for (const Tensor& y : {sin(x), exp2(x), frac(x), leaky_relu(x), elu(x), softsign(x), atan2(x, x),
                          hypot(x, x), xlogy(x, x), copysign(x, x), clamp(x, 0.5), pow(x, 0.5),
                          pow(2.5, x), threshold(x, 0.5, 7), deg2rad(x), logit(x)})
    CHECK(y.dtype() == kFloat32);
  CHECK(ints_of(pow(x, 3)) == Ints{-8, 0, 27});
  CHECK(ints_of(pow(2, ints({10, 0, 62}))) == Ints{1024, 1, int64_t{1} << 62});
  CHECK(ints_of(pow(ints({2, 1, -1, -1}), ints({-1, -5, -2, -3}))) == Ints{0, 1, 1, -1});
  CHECK(has(message([&] { pow(x, -1); }), "negative integer power"));
  CHECK(has(message([&] { Tensor(x.clone()).exp_(); }), "result type float32 can't be cast"));
  CHECK(has(message([&] { Tensor(x.clone()).fmod_(2.5); }), "result type float32 can't be cast"));
}

TEST_CASE("a number beside a half tensor keeps the dtype half, and is itself not rounded to half") {
  const Tensor x = tensor({2.0, 5.0}, kFloat16);
  for (const Tensor& y : {x + 0.1, x * 3, x / 3, pow(x, 2.5), pow(2.5, x), fmod(x, 1.5), x % 1.5,
                          xlogy(x, 3.0), xlogy(0.5, x), copysign(x, -1), lerp(x, x, 0.5),
                          add(x, x, 0.1), add(x, 2.0, 0.1), rsub(x, 1.0), clamp(x, 0.1, 3)})
    CHECK(y.dtype() == kFloat16);
  // x is multiplied by 0.1 in float32, not in half.
  CHECK(same_bits(x * 0.1, (x.to(kFloat32) * 0.1).to(kFloat16)));
  CHECK(same_bits(x * -1 * 0, tensor({-0.0, -0.0}, kFloat16)));
}

TEST_CASE("isnan, isinf and isfinite are right in every dtype") {
  for (const Dtype d : {kFloat16, kBFloat16, kFloat32, kFloat64}) {
    const Tensor x = tensor({kNaN, kInf, -kInf, 0.0, 65504.0}, d);
    CHECK(ints_of(isnan(x)) == Ints{1, 0, 0, 0, 0});
    CHECK(ints_of(isinf(x)) == Ints{0, 1, 1, 0, 0});
    CHECK(ints_of(isposinf(x)) == Ints{0, 1, 0, 0, 0});
    CHECK(ints_of(isneginf(x)) == Ints{0, 0, 1, 0, 0});
    CHECK(ints_of(isfinite(x)) == Ints{0, 0, 0, 1, 1});
    const Tensor y = nan_to_num(x);
    CHECK(ints_of(isfinite(y)) == Ints{1, 1, 1, 1, 1});
    CHECK(same_bits(y.slice(0, 2, 3), -y.slice(0, 1, 2)));
    // The next number above the largest is infinite.
    CHECK(ints_of(isinf(y.slice(0, 1, 2) * (1 + epsilon(d)))) == Ints{1});
    CHECK(differ(nan_to_num(x, 1, 2, 3), Doubles{1, 2, 3, 0, x[4].item()}, {}) == "");
  }
  for (const Dtype d : {kBool, kUInt8, kInt64}) {
    const Tensor x = ints({0, 1}, kInt64).to(d);
    CHECK(ints_of(isfinite(x)) == Ints{1, 1});
    CHECK(ints_of(isnan(x)) == Ints{0, 0});
    CHECK(ints_of(isinf(x)) == Ints{0, 0});
  }
}

TEST_CASE("NaN gives NaN where it should, and only fmax and fmin ignore it") {
  const Tensor nan = tensor({kNaN}), one = tensor({1.0});
  for (const Tensor& y : {pow(nan, one),
                          atan2(nan, one),
                          hypot(one, nan),
                          xlogy(tensor({0.0}), nan),
                          fmod(nan, one),
                          nan % one,
                          floor_divide(nan, one),
                          clamp_min(nan, one),
                          clamp_min(one, nan),
                          clamp_max(nan, one),
                          clamp_max(one, nan),
                          copysign(nan, one),
                          lerp(nan, one, 0.3),
                          heaviside(nan, one),
                          prelu(nan, one),
                          clamp(one, kNaN),
                          hardtanh(nan),
                          relu6(nan),
                          hardswish(nan),
                          hardsigmoid(nan),
                          softshrink(nan),
                          hardshrink(nan),
                          threshold(nan, 0, 1),
                          leaky_relu(nan),
                          elu(nan),
                          celu(nan),
                          mish(nan),
                          softplus(nan),
                          log_sigmoid(nan),
                          softsign(nan),
                          round(nan),
                          sinc(nan),
                          sinpi(nan),
                          logit(nan),
                          tanhshrink(nan)})
    CHECK(std::isnan(y.item()));
  CHECK(fmax(nan, one).item() == 1);
  CHECK(fmin(one, nan).item() == 1);
  CHECK(std::isnan(fmax(nan, nan).item()));
  CHECK(xlogy(tensor({0.0}), tensor({0.0})).item() == 0);
}

TEST_CASE("at kinks and ties the gradient is as documented") {
  auto slope = [](const std::function<Tensor(const Tensor&)>& f, const Doubles& at) {
    const Tensor x = tensor(at, kFloat64).requires_grad_();
    f(x).sum().backward();
    return x.grad().to_vector();
  };
  CHECK(slope([](const Tensor& x) { return relu6(x); }, {0, 6}) == Doubles{0, 0});
  CHECK(slope([](const Tensor& x) { return clamp(x, 0, 6); }, {0, 6}) == Doubles{0, 0});
  CHECK(slope([](const Tensor& x) { return clamp(x.to(kFloat16), 0.3, 1); }, {0.3}) == Doubles{0});
  CHECK(slope([](const Tensor& x) { return leaky_relu(x, 0.25); }, {0}) == Doubles{0.25});
  CHECK(slope([](const Tensor& x) { return elu(x, 0.5); }, {0}) == Doubles{0.5});
  CHECK(slope([](const Tensor& x) { return elu(x, 0.5, 2, 3); }, {0, 1}) == Doubles{3, 2});
  CHECK(slope([](const Tensor& x) { return hardswish(x); }, {-3, 3}) == Doubles{0, 1});
  CHECK(slope([](const Tensor& x) { return hardsigmoid(x); }, {-3, 3}) == Doubles{0, 0});
  CHECK(slope([](const Tensor& x) { return clamp_min(x, zeros_like(x)); }, {0}) == Doubles{0.5});
  CHECK(slope([](const Tensor& x) { return atan2(x, zeros_like(x)); }, {0}) == Doubles{0});
  CHECK(slope([](const Tensor& x) { return fmax(x, zeros_like(x)); }, {0, kNaN}) ==
        Doubles{0.5, 0});
  CHECK(slope([](const Tensor& x) { return maximum(x, zeros_like(x)); }, {0}) == Doubles{0.5});
  CHECK(slope([](const Tensor& x) { return pow(x, 0); }, {0, kNaN}) == Doubles{0, 0});
  CHECK(slope([](const Tensor& x) { return pow(x, zeros_like(x)); }, {0}) == Doubles{0});
  CHECK(slope([](const Tensor& x) { return pow(zeros_like(x), x); }, {0, 2}) == Doubles{0, 0});
  CHECK(slope([](const Tensor& x) { return pow(x, zeros_like(x)); }, {kNaN, kInf, 1e-310}) ==
        Doubles{0, 0, 0});
  const auto mixed = [](const Tensor& b) {  // ∂²aᵇ/∂a∂b = aᵇ⁻¹·(1 + b·ln a)
    const Tensor a = tensor({2.0, -4.0, 0.5}, kFloat64).requires_grad_();
    return autograd::grad({pow(a, b).sum()}, {a}, {}, true, true)[0];
  };
  CHECK(slope(mixed, {0, 0, 0}) == Doubles{0.5, -0.25, 2});
  CHECK(slope([](const Tensor& x) { return copysign(x, -ones_like(x)); }, {0, 2, -2}) ==
        Doubles{0, -1, 1});
  CHECK(slope([](const Tensor& x) { return nan_to_num(x); }, {kInf, kNaN, 2}) == Doubles{0, 0, 1});
  CHECK(slope([](const Tensor& x) { return logit(x, 0.25); }, {0.1, 0.5, 0.75}) ==
        Doubles{0, 4, 1 / 0.1875});
  CHECK(slope([](const Tensor& x) { return round(x) * x; }, {2.5, 3.5}) == Doubles{2, 4});
}

TEST_CASE("gradients in half are computed in float32 and rounded once") {
  // 300² is beyond float16's range.
  const Tensor y = tensor({300.0}, kFloat16).requires_grad_(),
               x = tensor({400.0}, kFloat16).requires_grad_();
  atan2(y, x).backward();
  CHECK(differ(y.grad(), Doubles{400.0 / 250000}, {.ulps = 0.5}) == "");
  CHECK(differ(x.grad(), Doubles{-300.0 / 250000}, {.ulps = 0.5}) == "");
  const Tensor a = tensor({3000.0}, kFloat16).requires_grad_(),
               b = tensor({50.0}, kFloat16).requires_grad_();
  (a / b).backward(tensor({30.0}, kFloat16));
  CHECK(differ(b.grad(), Doubles{-30 * 3000.0 / 2500}, {.ulps = 0.5}) == "");
}

TEST_CASE("round takes halves to even, and sinpi and sinc of whole numbers are exactly 0") {
  CHECK(round(tensor({0.5, 1.5, 2.5, -0.5, -1.5}, kFloat64)).to_vector() ==
        Doubles{0, 2, 2, -0.0, -2});
  const Tensor far = tensor({1.0, 1001.0, 65504.0, -3.0}, kFloat16);
  CHECK(sinpi(far).to_vector() == Doubles{0, 0, 0, 0});
  CHECK(sinc(far).to_vector() == Doubles{0, 0, 0, 0});
  CHECK(cospi(far).to_vector() == Doubles{-1, -1, 1, -1});
  CHECK(sinc(zeros({1})).item() == 1);
}

TEST_CASE("where of two numbers has their dtype") {
  const Tensor c = tensor(std::vector<bool>{true, false});
  CHECK(where(c, 1, 2).dtype() == kInt64);
  CHECK(where(c, 1, 2.5).dtype() == kFloat32);
  CHECK(where(c, true, false).dtype() == kBool);
  CHECK(where(c, 1, 2.5).to_vector() == Doubles{1, 2.5});
}

TEST_CASE("sign and heaviside of bools are bools, in place, too") {
  const Tensor x = tensor(std::vector<bool>{true, false, true}), v = ones({3}, kBool);
  CHECK((sign(x).dtype() == kBool && sign(x).equal(x)));
  CHECK((heaviside(x, v).dtype() == kBool && heaviside(x, v).equal(v)));
  CHECK(heaviside(x, zeros({3}, kBool)).equal(x));
  CHECK(heaviside(x, full({3}, 7, kInt64)).to_vector<int64_t>() == Ints{1, 7, 1});
  Tensor y = x.clone();
  CHECK(y.sign_().equal(x));
  CHECK(y.heaviside_(v).equal(v));
}

TEST_CASE("errors of element-wise functions name the op, the values and the way out") {
  const Tensor x = points(), n = ints({1, 2, 3, 4});
  const Tensor none;
  auto says = [](const std::function<void()>& f, const std::string& part) {
    const std::string text = message(f);
    CHECK_MESSAGE(has(text, part), text);
  };
  says([&] { clamp(x, std::nullopt, std::optional<Scalar>()); }, "clamp: at least one");
  says([&] { clamp(x, std::optional<Tensor>()); }, "clamp: at least one");
  says([&] { logit(x, 0.7); }, "logit: eps 0.7");
  says([&] { celu(x, 0); }, "celu: alpha must not be 0");
  says([&] { softplus(x, 0); }, "softplus: beta must not be 0");
  says([&] { hardtanh(x, 2, 1); }, "hardtanh: min_val 2 is above max_val 1");
  says([&] { softshrink(x, -1); }, "softshrink: lambd -1 is negative");
  says([&] { div(x, x, "round"); }, "div: rounding_mode is \"round\"");
  says([&] { add(n, n, 1.5); }, "add: alpha is 1.5, but the tensors are int64");
  says([&] { lerp(n, n, 0.5); }, "lerp: tensors of int64");
  says([&] { addcdiv(n, n, n); }, "addcdiv: int64 divided by int64");
  says([&] { glu(x.reshape({2, 2}).slice(1, 0, 1)); }, "glu: dimension 1 of [2, 1] is odd");
  says([&] { glu(x[0]); }, "glu: a 0-dim tensor");
  says([&] { glu(x, 1); }, "glu");
  says([&] { prelu(x.reshape({2, 2}), ones({3})); }, "prelu: weight [3] for [2, 2]");
  says([&] { prelu(x, ones({4})); }, "prelu: weight [4] for [4]");
  says([&] { fmod(x, ones({3})); }, "fmod");
  says([&] { atan2(x, ones({2, 3})); }, "atan2");
  says([&] { addcmul(x, ones({3}), x); }, "[3]");
  for (const auto& f : std::vector<std::function<void()>>{
           [&] { sin(none); }, [&] { none.floor(); }, [&] { neg(none); }, [&] { clamp(none, 0); },
           [&] { pow(2, none); }, [&] { pow(none, 3); }, [&] { none % 3; }, [&] { fmax(x, none); },
           [&] { lerp(x, none, 0.5); }, [&] { prelu(x, none); }, [&] { nan_to_num(none); },
           [&] { glu(none); }, [&] { isfinite(none); }, [&] { !none; },
           [&] { addcmul(x, x, none); }, [&] { where(none, 1, 2); }, [&] { add(x, none, 2); }})
    says(f, "undefined");
}
