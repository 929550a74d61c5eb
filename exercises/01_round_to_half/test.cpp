#include <start.h>

#include <doctest/doctest.h>
#include <halftape/core/half.h>
#include <support/course.h>

#include <cmath>
#include <limits>
#include <string>

namespace {

constexpr uint16_t kInfinity = 0x7c00, kSign = 0x8000;

float value_of(uint16_t bits) { return static_cast<float>(halftape::Half::from_bits(bits)); }

std::string difference(float x, uint16_t got, uint16_t wanted) {
  return course::text("half_of(", x, ") is 0x", std::hex, got, " (", std::dec, value_of(got),
                      "); the nearest half is 0x", std::hex, wanted, " (", value_of(wanted), ")");
}

/// Holds half_of() to the bits, for this value and for its negative.
void expect(float value, uint16_t bits) {
  for (const uint16_t sign : {uint16_t{0}, kSign}) {
    const float x = sign ? -value : value;
    const uint16_t wanted = bits | sign, got = half_of(x);
    REQUIRE_MESSAGE(got == wanted, difference(x, got, wanted));
  }
}

/// The midpoint between the half of these bits and the next larger one. A float holds it exactly.
float midpoint_after(uint16_t bits) {
  if (bits == 0x7bff) return 65520;  // the next one would be 65536
  return (value_of(bits) + value_of(static_cast<uint16_t>(bits + 1))) / 2;
}

}  // namespace

TEST_CASE("every normal half is its own nearest half") {
  for (uint16_t bits = 0x0400; bits < kInfinity; ++bits) expect(value_of(bits), bits);
}

TEST_CASE("so is every subnormal half, and zero keeps its sign") {
  for (uint16_t bits = 0; bits < 0x0400; ++bits) expect(value_of(bits), bits);
}

TEST_CASE("a midpoint between two halves goes to the one whose last bit is 0") {
  for (uint16_t bits = 0; bits < 0x7bff; ++bits)
    expect(midpoint_after(bits), static_cast<uint16_t>(bits + (bits & 1)));
}

TEST_CASE("a float just below or above a midpoint goes to the nearer half") {
  for (uint16_t bits = 0; bits < 0x7bff; ++bits) {
    const float middle = midpoint_after(bits);
    expect(std::nextafter(middle, 0.0f), bits);
    expect(std::nextafter(middle, 1e9f), static_cast<uint16_t>(bits + 1));
  }
}

TEST_CASE("what is less than 65520 is finite, the rest infinite") {
  expect(std::nextafter(65520.0f, 0.0f), 0x7bff);
  expect(65520, kInfinity);
  expect(std::numeric_limits<float>::max(), kInfinity);
  expect(std::numeric_limits<float>::infinity(), kInfinity);
}

TEST_CASE("NaN stays NaN") {
  const uint16_t got = half_of(std::numeric_limits<float>::quiet_NaN());
  CHECK_MESSAGE((got & 0x7fff) > kInfinity,
                course::text("half_of(NaN) is 0x", std::hex, got, ", which is no NaN"));
}
