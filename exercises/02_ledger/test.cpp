#include <start.h>

#include <doctest/doctest.h>
#include <halftape/core/half.h>
#include <support/course.h>

#include <array>
#include <string>
#include <vector>

namespace {

using halftape::Half;

using Counts = std::array<int64_t, 5>;

std::string text(const Counts& c) {
  return course::text(c[0], " zeros, ", c[1], " subnormals, ", c[2], " normals, ", c[3], " large, ",
                      c[4], " nonfinite");
}

Counts yours(const std::vector<Half>& numbers) {
  const Ledger counts = ledger(numbers);
  return {counts.zeros, counts.subnormals, counts.normals, counts.large, counts.nonfinite};
}

/// By the exponent bits, as IEEE 754 defines the classes.
Counts right(const std::vector<Half>& numbers) {
  Counts counts{};
  for (const Half number : numbers) {
    const int exponent = number.bits >> 10 & 31, fraction = number.bits & 1023;
    ++counts[exponent == 31 ? 4 : exponent == 30 ? 3 : exponent > 0 ? 2 : fraction > 0 ? 1 : 0];
  }
  return counts;
}

void expect_right(const std::vector<Half>& numbers) {
  const Counts got = yours(numbers), wanted = right(numbers);
  const bool same = got == wanted;
  REQUIRE_MESSAGE(same, course::text("you count ", text(got), "; it should be ", text(wanted)));
}

std::vector<Half> halves(std::initializer_list<uint16_t> bits) {
  std::vector<Half> numbers;
  for (const uint16_t each : bits) {
    numbers.push_back(Half::from_bits(each));
    numbers.push_back(Half::from_bits(each | 0x8000));  // and its negative
  }
  return numbers;
}

}  // namespace

TEST_CASE("2^-14 is normal, the number below it subnormal, and so is the least one") {
  expect_right(halves({0x0400, 0x03ff, 0x0001}));
}

TEST_CASE("2^15 is large and the number below it normal, and 65504 is large") {
  expect_right(halves({0x7800, 0x77ff, 0x7bff}));
}

TEST_CASE("infinities and NaNs are not finite, and in no other class") {
  expect_right(halves({0x7c00, 0x7c01, 0x7e00, 0x7fff}));
}

TEST_CASE("zeros of both signs are zeros, and a class without numbers has none") {
  expect_right(halves({0x0000}));
  expect_right(halves({0x3c00}));
  expect_right({});
}

TEST_CASE("all 65,536 patterns of bits are counted once") {
  std::vector<Half> all;
  for (int bits = 0; bits < 65536; ++bits)
    all.push_back(Half::from_bits(static_cast<uint16_t>(bits)));
  expect_right(all);
}

TEST_CASE("a thousand lists of random bits are counted rightly") {
  course::Random random(2);
  for (int i = 0; i < 1000; ++i) {
    std::vector<Half> numbers(random.below(100));
    for (Half& each : numbers) each = Half::from_bits(static_cast<uint16_t>(random.word()));
    expect_right(numbers);
  }
}
