// Scalars: what kind of number they remember, and that they give back what was put in.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "halftape/core/contract/backend.h"
#include "halftape/tests/support/message.h"
#include "halftape/tests/support/nonfinite.h"

using namespace halftape;
using testing::kInf, testing::kNaN;
using testing::message;

TEST_CASE("a scalar remembers whether it was a bool, an integer or a floating point number") {
  CHECK(Scalar(true).kind() == kBool);
  CHECK(Scalar(1).kind() == kInt64);
  CHECK(Scalar(int64_t{1}).kind() == kInt64);
  CHECK(Scalar(uint8_t{1}).kind() == kInt64);
  CHECK(Scalar('a').kind() == kInt64);
  CHECK(Scalar(1.0f).kind() == kFloat64);
  CHECK(Scalar(1.0).kind() == kFloat64);
  CHECK(Scalar().kind() == kInt64);
  CHECK_FALSE(Scalar(1).is_floating_point());
  CHECK(Scalar(0.5f).is_floating_point());
}

TEST_CASE("a 64-bit integer comes back exactly although double could not hold it") {
  for (const int64_t x : {int64_t{0}, int64_t{-1}, (int64_t{1} << 53) + 1,
                          std::numeric_limits<int64_t>::max(), std::numeric_limits<int64_t>::min()})
    CHECK(Scalar(x).to<int64_t>() == x);
  CHECK(Scalar().to_int64() == 0);
  CHECK(Scalar(0.1).to_double() == 0.1);
  CHECK(Scalar(3).to_double() == 3);
  CHECK(Scalar(true).to_int64() == 1);
}

TEST_CASE("floating point scalars turn into integers as elements do") {
  CHECK(Scalar(2.9).to<int32_t>() == 2);
  CHECK(Scalar(-2.9).to_int64() == -2);
  CHECK(Scalar(1e30).to_int64() == std::numeric_limits<int64_t>::max());
  CHECK(Scalar(-kInf).to_int64() == std::numeric_limits<int64_t>::min());
  CHECK(Scalar(kNaN).to_int64() == 0);
}

TEST_CASE("a floating point scalar beyond a narrow integer saturates as an element does") {
  CHECK(Scalar(300.0).as_element<uint8_t>() == convert<uint8_t>(300.0));
  CHECK(Scalar(-1.0).as_element<uint8_t>() == convert<uint8_t>(-1.0));
  CHECK(Scalar(1e10).as_element<int32_t>() == convert<int32_t>(1e10));
}

TEST_CASE("a scalar that a type cannot hold is refused, as by LibTorch") {
  const auto refused = [](auto f) {
    return message(f).find("without overflow") != std::string::npos;
  };
  CHECK(refused([] { return Scalar(3e9).toInt(); }));
  CHECK(refused([] { return Scalar(int64_t{1} << 40).toInt(); }));
  CHECK(refused([] { return Scalar(-2147483649.).toInt(); }));
  CHECK(refused([] { return Scalar(1e300).toFloat(); }));
  CHECK(refused([] { return Scalar(kNaN).toLong(); }));
  CHECK(refused([] { return Scalar(kInf).toInt(); }));
  CHECK(refused([] { return Scalar(0x1p63).toLong(); }));
  CHECK(refused([] { return Scalar(300).to<int8_t>(); }));
  CHECK(refused([] { return Scalar(-1.0).to<uint8_t>(); }));
  CHECK(refused([] { return Scalar(100000).to<Half>(); }));
  CHECK(Scalar(-0x1p63).toLong() == std::numeric_limits<int64_t>::min());
  CHECK(Scalar(2147483647.5).toInt() == 2147483647);
  CHECK(Scalar(127.9).to<int8_t>() == 127);
  CHECK(Scalar(255).to<uint8_t>() == 255);
  CHECK(Scalar(kInf).toFloat() == kInf);
  CHECK(std::isnan(Scalar(kNaN).toFloat()));
  CHECK(Scalar((1 << 24) + 1).toFloat() == 0x1p24f);
  CHECK(Scalar(65505.0).to<Half>() == Half(65504.0f));  // rounded
  CHECK(Scalar(1e300).toDouble() == 1e300);
  CHECK(Scalar(300).toBool());
}

TEST_CASE("a scalar is true unless it is zero") {
  CHECK(Scalar(0.5).to<bool>());
  CHECK(Scalar(kNaN).to<bool>());
  CHECK(Scalar(-3).to<bool>());
  CHECK_FALSE(Scalar(0).to<bool>());
  CHECK_FALSE(Scalar(-0.0).to<bool>());
  CHECK_FALSE(Scalar(false).to<bool>());
}

TEST_CASE("a scalar is rounded once on its way into an array of any dtype") {
  // Just above the middle of the halves 1 and 1 + 2^-10; rounded to float first, it would go down.
  const double above = 1 + 0x1p-11 + 0x1p-40;
  CHECK(Scalar(above).to<Half>().bits == 0x3c01);
  CHECK(read_double(full({1}, above, kFloat16, kCPU)) == 1 + 0x1p-10);
  CHECK(read_double(full({1}, 1 + 0x1p-8 + 0x1p-40, kBFloat16, kCPU)) == 1 + 0x1p-7);
  CHECK(read_double(full({1}, 0.1, kFloat32, kCPU)) == static_cast<double>(0.1f));
  CHECK(read_double(full({1}, 0.1, kFloat64, kCPU)) == 0.1);
  CHECK(read_int64(full({1}, (int64_t{1} << 53) + 1, kInt64, kCPU)) == (int64_t{1} << 53) + 1);
  CHECK(read_double(full({1}, 7, kBool, kCPU)) == 1);
  CHECK(std::isnan(read_double(full({1}, kNaN, kFloat16, kCPU))));
  CHECK(std::isinf(read_double(full({1}, 1e30, kFloat16, kCPU))));
}

TEST_CASE("an integer scalar beyond 2^53 is rounded once to float32") {
  // Just above the middle of two floats; rounded to double first, it would go down.
  const int64_t above = (int64_t{1} << 54) + (int64_t{1} << 30) + 1;
  CHECK(Scalar(above).to<float>() == static_cast<float>(above));
}

TEST_CASE("a scalar has LibTorch's methods for conversion and kind") {
  const Scalar half = 2.5, three = 3, yes = true;
  CHECK(half.toDouble() == 2.5);
  CHECK(half.toFloat() == 2.5f);
  CHECK(half.toInt() == 2);
  CHECK(three.toLong() == 3);
  CHECK(half.toBool());
  CHECK(half.isFloatingPoint());
  CHECK_FALSE(three.isFloatingPoint());
  CHECK(three.isIntegral(false));
  CHECK(yes.isIntegral(true));
  CHECK_FALSE(yes.isIntegral(false));
  CHECK(yes.isBoolean());
  CHECK(three.type() == kInt64);
}
