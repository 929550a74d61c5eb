// int8 and int16: arithmetic that wraps around, promotion, the lowest numbers, text, conversions.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

#include <halftape/halftape.h>

#include "halftape/tests/support/lists.h"
#include "halftape/tests/support/message.h"
#include "halftape/tests/support/printed.h"

using namespace halftape;
using testing::has;
using testing::ints_of;
using testing::message;
using testing::printed;

namespace {

using Ints = std::vector<int64_t>;
Tensor chars(const std::vector<int8_t>& v) { return tensor(v); }
Tensor shorts(const std::vector<int16_t>& v) { return tensor(v); }

}  // namespace

TEST_CASE("int8 and int16 are made from vectors, numbers and ranges") {
  CHECK(chars({1, -2}).dtype() == kInt8);
  CHECK(shorts({1, -2}).dtype() == kShort);
  CHECK(chars({1, -2}).element_size() == 1);
  CHECK(shorts({1, -2}).itemsize() == 2);
  CHECK(tensor({1, 2}, kChar).dtype() == kInt8);
  CHECK(tensor({1, 2}, kInt8).to_vector<int8_t>() == std::vector<int8_t>{1, 2});
  CHECK(arange(-3, 3, 2, kInt16).to_vector<int16_t>() == std::vector<int16_t>{-3, -1, 1});
  CHECK(ints_of(full({2}, -128, kInt8)) == Ints{-128, -128});
  CHECK(ints_of(zeros({1}, kInt16)) == Ints{0});
  CHECK(chars({-7}).item<int8_t>() == -7);
  CHECK(chars({-7}).is_signed());
  CHECK_FALSE(chars({-7}).is_floating_point());
  CHECK(has(message([] { full({1}, 128, kInt8); }), "int8 without overflow: 128"));
  CHECK(has(message([] { full({1}, -129, kInt8); }), "int8 without overflow: -129"));
  CHECK(has(message([] { full({1}, 32768, kInt16); }), "int16 without overflow"));
  CHECK(has(message([] { full({1}, std::nan(""), kInt8); }), "int8 without overflow"));
  CHECK(has(message([] { tensor({300, -1000}, kUInt8); }), "uint8 without overflow: 300"));
  CHECK(has(message([] { tensor({{1}, {40000}}, kInt16); }), "int16 without overflow: 40000"));
  CHECK(full({1}, -128.9, kInt8).item<int>() == -128);  // truncated first
  CHECK_THROWS_AS(tensor(200).item<int8_t>(), Error);
  int8_t bytes[] = {3, -4, 5};
  CHECK(ints_of(from_blob(bytes, {3}, TensorOptions(kInt8).device(kCPU))) == Ints{3, -4, 5});
}

TEST_CASE("int8 and int16 wrap around, at their lowest numbers too") {
  const Tensor low = chars({-128, 127});
  CHECK(ints_of(low + 1) == Ints{-127, -128});
  CHECK((low + 1).dtype() == kInt8);
  CHECK(ints_of(low * low) == Ints{0, 1});
  CHECK(ints_of(-low) == Ints{-128, -127});
  CHECK(ints_of(abs(low)) == Ints{-128, 127});
  CHECK(ints_of(square(shorts({-32768, 256}))) == Ints{0, 0});
  CHECK(ints_of(div(low, chars({-1, -1}), "floor")) == Ints{-128, -127});
  CHECK(ints_of(div(low, -1, "trunc")) == Ints{-128, -127});
  CHECK(ints_of(remainder(low, -1)) == Ints{0, 0});
  CHECK(ints_of(fmod(shorts({-32768}), -1)) == Ints{0});
  CHECK(ints_of(floor_divide(shorts({-32768}), shorts({-1}))) == Ints{-32768});
  if (low.device() == kCPU) {
    CHECK(has(message([&] { floor_divide(low, 0); }), "zero"));
    CHECK(has(message([&] { remainder(low, chars({0, 1})); }), "zero"));
  }
  CHECK(div(low, 2).dtype() == kFloat32);
  CHECK(ints_of(pow(chars({2, -2}), 7)) == Ints{-128, -128});
  CHECK(ints_of(~low) == Ints{127, -128});
  CHECK(ints_of(low & chars({127, 15})) == Ints{0, 15});
  CHECK(ints_of(low ^ chars({-1, -1})) == Ints{127, -128});
  CHECK(ints_of(sign(low)) == Ints{-1, 1});
  CHECK(ints_of(relu(low)) == Ints{0, 127});
}

TEST_CASE("int8 and int16 promote as in PyTorch") {
  const Tensor c = chars({-1}), s = shorts({-1}), b = ones({1}, kUInt8);
  CHECK((c + b).dtype() == kInt16);
  CHECK(ints_of(c + b + 254) == Ints{254});
  CHECK((c + s).dtype() == kInt16);
  CHECK((b + s).dtype() == kInt16);
  CHECK((s + ones({1}, kInt32)).dtype() == kInt32);
  CHECK((c + ones({1}, kBool)).dtype() == kInt8);
  CHECK((c + ones({1}, kFloat16)).dtype() == kFloat16);
  CHECK((c + 1.5).dtype() == kFloat32);
  CHECK((c + tensor(1, kInt64)).dtype() == kInt8);  // a 0-dim tensor of one kind does not count
  CHECK(cat({c, b}).dtype() == kInt16);
  CHECK(stack({c, s}).dtype() == kInt16);
  CHECK(where(tensor({true}), c, b).dtype() == kInt16);
  CHECK(sum(chars({100, 100})).item<int64_t>() == 200);
  CHECK(prod(shorts({1000, 1000})).item<int64_t>() == 1000000);
  Tensor changed = chars({1});
  CHECK(has(message([&] { changed += 0.5; }), "can't be cast"));
  CHECK(has(message([&] { changed.mul_(ones({1})); }), "can't be cast"));
  CHECK(ints_of(changed += chars({127})) == Ints{-128});
  CHECK(ints_of(changed.add_(changed)) == Ints{0});  // itself on both sides
  CHECK(ints_of(changed.add_(ones({1}, kInt64))) == Ints{1});
  CHECK_FALSE(promote(kInt8, kUInt8) == kUInt8);
  CHECK(has(message([&] { changed.requires_grad_(); }), "floating"));
}

TEST_CASE("floats to int8 and int16 are truncated and saturate; integers wrap") {
  constexpr float inf = std::numeric_limits<float>::infinity();
  const Tensor x = tensor({-2.9f, 127.9f, 300.f, -inf, inf, std::nanf("")}, kFloat32);
  CHECK(ints_of(x.to(kInt8)) == Ints{-2, 127, 127, -128, 127, 0});
  CHECK(ints_of((100 * x).to(kInt16)) == Ints{-290, 12790, 30000, -32768, 32767, 0});
  CHECK(ints_of(x.to(kFloat16).to(kInt8)) == Ints{-2, 127, 127, -128, 127, 0});
  CHECK(ints_of(tensor({200, -200, 65536}, kInt64).to(kInt8)) == Ints{-56, 56, 0});
  CHECK(ints_of(tensor({40000, 255}, kInt32).to(kInt16)) == Ints{-25536, 255});
  CHECK(ints_of(chars({-1}).to(kUInt8)) == Ints{255});
  CHECK(ints_of(chars({-1}).to(kInt64)) == Ints{-1});
  CHECK(chars({-1, 0}).to(kBool).to_vector() == std::vector<double>{1, 0});
  CHECK(chars({-1}).view(kUInt8).item<int>() == 255);
  CHECK(shorts({-1}).view(kInt8).sizes() == Shape{2});
}

TEST_CASE("ops that sort, count, compare and pick take int8 and int16") {
  const Tensor x = chars({3, -1, 3, 0});
  CHECK(ints_of(std::get<0>(sort(x))) == Ints{-1, 0, 3, 3});
  CHECK(ints_of(std::get<0>(_unique2(x))) == Ints{-1, 0, 3});
  CHECK(ints_of(std::get<0>(topk(x, 1))) == Ints{3});
  CHECK(amin(x).item<int>() == -1);
  CHECK(amax(zeros({2}, kInt16) - 5).item<int>() == -5);
  CHECK(argmax(x).item<int64_t>() == 0);
  CHECK(ints_of(cumsum(x, 0)) == Ints{3, 2, 5, 5});
  CHECK(ints_of(nonzero(x).reshape({-1})) == Ints{0, 1, 2});
  CHECK((x == 3).to_vector() == std::vector<double>{1, 0, 1, 0});
  CHECK((x < shorts({0, 0, 0, 0})).to_vector() == std::vector<double>{0, 1, 0, 0});
  CHECK(isfinite(x).all().item<bool>());
  CHECK_FALSE(isinf(x).any().item<bool>());
  CHECK(allclose(x, x));
  CHECK(x.equal(x.clone()));
  CHECK(ints_of(masked_select(x, x > 0)) == Ints{3, 3});
  CHECK(ints_of(x.index({tensor({0, 1})})) == Ints{3, -1});
  CHECK(ints_of(bincount(shorts({1, 1, 0}))) == Ints{1, 2});
  CHECK(ints_of(scatter_add(zeros({2}, kInt8), 0, tensor({1, 1}), chars({100, 100}))) ==
        Ints{0, -56});
  CHECK(ints_of(max_pool1d(x.reshape({1, 1, 4}), 2).reshape({-1})) == Ints{3, 3});
  CHECK(sum(zeros({0}, kInt8)).item<int64_t>() == 0);
  CHECK(has(message([] { mean(zeros({2}, kInt16)); }), "mean: of a tensor of int16"));
  CHECK(has(message([&] { one_hot(x); }), "one_hot"));
}

TEST_CASE("random integers of int8 and int16 cover their ranges and no more") {
  manual_seed(3);
  const Tensor x = randint(-128, 128, {20000}, kInt8);
  CHECK(x.dtype() == kInt8);
  CHECK(amin(x).item<int>() == -128);
  CHECK(amax(x).item<int>() == 127);
  CHECK(amax(empty({20000}, kInt8).random_()).item<int>() == 127);
  CHECK(amin(empty({20000}, kInt8).random_()).item<int>() == 0);
  CHECK(amax(randint(-32768, 32768, {5}, kInt16)).dtype() == kInt16);
  CHECK(has(message([] { randint(0, 129, {1}, kInt8); }), "-128 to 127"));
  CHECK(has(message([] { randint(-32769, 0, {1}, kInt16); }), "-32768 to 32767"));
}

TEST_CASE("int8 and int16 print as numbers") {
  CHECK(printed(chars({65, -7}).cpu()) == " 65\n -7\n[ CPUCharType{2} ]");
  CHECK(printed(tensor(-300, kInt16).cpu()) == "-300\n[ CPUShortType{} ]");
  std::ostringstream braces;
  braces << detail::TensorDataContainer(std::vector<int8_t>{65, 66});
  CHECK(braces.str() == "{65, 66}");
}
