// The 16-bit formats: every value to float and double and back, and rounding at every tie.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "halftape/core/bit_cast.h"
#include "halftape/core/formula/number_class.h"
#include "halftape/core/half.h"
#include "halftape/tests/support/round16.h"

using namespace halftape;
using testing::Format;
using testing::infinity16;
using testing::is_nan16;
using testing::round16;

namespace {

/// The value of a finite bit pattern from the definition of the format.
template <class T>
double value_of(uint16_t bits) {
  constexpr int fraction = Format<T>::fraction, bias = Format<T>::bias;
  const int exponent = (bits & 0x7fff) >> fraction, rest = bits & ((1 << fraction) - 1);
  const double magnitude = exponent ? std::ldexp(1 + std::ldexp(rest, -fraction), exponent - bias)
                                    : std::ldexp(rest, 1 - bias - fraction);
  return bits >> 15 ? -magnitude : magnitude;
}

/// f(lower bits, middle, upper bits) for every pair of neighbouring magnitudes, up to the pair of
/// the largest number and infinity, whose middle is where overflow begins. The middle of two
/// neighbours is exact in float and double; rounding depends on which side of it a number lies.
template <class T, class F>
void every_middle(F f) {
  for (uint16_t low = 0; low < infinity16<T>; ++low) {
    const auto high = static_cast<uint16_t>(low + 1);
    const double step = value_of<T>(low) - (low ? value_of<T>(static_cast<uint16_t>(low - 1)) : 0);
    const double above = high == infinity16<T> ? value_of<T>(low) + step : value_of<T>(high);
    f(low, (value_of<T>(low) + above) / 2, high);
  }
}

template <class T, class Number>
int64_t wrong_around_middles() {
  constexpr Number infinity = std::numeric_limits<Number>::infinity();
  int64_t wrong = 0;
  every_middle<T>([&](uint16_t low, double exact, uint16_t high) {
    const auto middle = static_cast<Number>(exact);
    const Number below = std::nextafter(middle, -infinity),
                 above = std::nextafter(middle, infinity);
    const uint16_t even = low % 2 == 0 ? low : high;
    wrong += T(below).bits != low;
    wrong += T(middle).bits != even;
    wrong += T(above).bits != high;
    wrong += T(-below).bits != (low | 0x8000);
    wrong += T(-middle).bits != (even | 0x8000);
    wrong += T(-above).bits != (high | 0x8000);
  });
  return wrong;
}

}  // namespace

TEST_CASE_TEMPLATE("all 65536 patterns survive conversion to float and to double and back", T, Half,
                   BFloat16) {
  int64_t wrong = 0, wrong_value = 0, nans = 0;
  for (uint32_t i = 0; i < 0x10000; ++i) {
    const auto bits = static_cast<uint16_t>(i);
    const T x = T::from_bits(bits);
    const auto as_float = static_cast<float>(x);
    const auto as_double = static_cast<double>(x);
    if (is_nan16<T>(bits)) {
      ++nans;
      wrong += !std::isnan(as_float) || !std::isnan(as_double);
      wrong += !is_nan16<T>(T(as_float).bits) || !is_nan16<T>(T(as_double).bits);
      continue;
    }
    wrong += T(as_float).bits != bits || T(as_double).bits != bits;
    if (std::isinf(as_float))
      wrong_value += (bits & 0x7fff) != infinity16<T>;
    else
      wrong_value += as_double != value_of<T>(bits) ||
                     std::signbit(as_double) != static_cast<bool>(bits >> 15);
  }
  CHECK(wrong == 0);
  CHECK(wrong_value == 0);
  CHECK(nans == 2 * (0x7fff - infinity16<T>));
}

TEST_CASE_TEMPLATE("float rounds to nearest even on both sides of and at every tie", T, Half,
                   BFloat16) {
  CHECK(wrong_around_middles<T, float>() == 0);
}

TEST_CASE_TEMPLATE("double rounds to nearest even on both sides of and at every tie", T, Half,
                   BFloat16) {
  CHECK(wrong_around_middles<T, double>() == 0);
}

TEST_CASE_TEMPLATE("a double just beside a tie is rounded correctly, not by way of float", T, Half,
                   BFloat16) {
  int64_t float_goes_wrong = 0, wrong = 0;
  every_middle<T>([&](uint16_t low, double middle, uint16_t high) {
    // Float cannot tell numbers one part in 2^40 beside the tie from the tie.
    const double above = middle * (1 + 0x1p-40), below = middle * (1 - 0x1p-40);
    wrong += T(above).bits != high || T(below).bits != low;
    float_goes_wrong += T(static_cast<float>(above)).bits != high;
    float_goes_wrong += T(static_cast<float>(below)).bits != low;
  });
  CHECK(wrong == 0);
  // By way of float, each tie is wrong on one side, so this case can fail.
  CHECK(float_goes_wrong == infinity16<T>);
}

TEST_CASE_TEMPLATE("every 4099th of the 2^32 floats rounds as the definition says", T, Half,
                   BFloat16) {
  int64_t wrong = 0;
  for (uint64_t i = 0; i < uint64_t{1} << 32; i += 4099) {
    const auto word = static_cast<uint32_t>(i);
    const auto x = bit_cast<float>(word);
    const uint16_t expected = round16<T>(word), got = T(x).bits;
    wrong += is_nan16<T>(expected) ? !is_nan16<T>(got) : got != expected;
    // Double holds every float, so its own path must agree.
    const uint16_t wide = T(static_cast<double>(x)).bits;
    wrong += is_nan16<T>(expected) ? !is_nan16<T>(wide) : wide != expected;
  }
  CHECK(wrong == 0);
}

TEST_CASE("a conversion by the machine's instructions gives the formula's bits, those of NaN too") {
  int64_t wrong = 0;
  for (uint32_t i = 0; i < 0x10000; ++i) {
    const auto bits = static_cast<uint16_t>(i);
    const float wide = static_cast<float>(Half::from_bits(bits));
    wrong += bit_cast<uint32_t>(wide) != bit_cast<uint32_t>(detail::half_bits_to_float(bits));
  }
  CHECK(wrong == 0);
  for (uint64_t i = 0; i < uint64_t{1} << 32; i += 1021) {
    const auto x = bit_cast<float>(static_cast<uint32_t>(i));
    wrong += Half(x).bits != detail::float_to_half_bits(x);
  }
  CHECK(wrong == 0);
}

TEST_CASE("a product and the sum it goes into are rounded each") {
  volatile float given = 1 + 0x1p-12f;
  const float x = given;
  // x² is 1 + 2^-11 + 2^-24, whose last digit one rounding of x·x + c would keep.
  CHECK(x * x - (1 + 0x1p-11f) == 0);
  CHECK(double{x} * x - (1 + 0x1p-11) == 0x1p-24);
}

TEST_CASE("the limits of the formats are those of their standard") {
  CHECK(static_cast<float>(Half::from_bits(0x7bff)) == 65504);
  CHECK(static_cast<float>(Half::from_bits(0x0400)) == 0x1p-14f);
  CHECK(static_cast<float>(Half::from_bits(0x0001)) == 0x1p-24f);
  CHECK(static_cast<float>(BFloat16::from_bits(0x7f7f)) == 0x1.fep127f);
  CHECK(static_cast<float>(BFloat16::from_bits(0x0001)) == 0x1p-133f);
  CHECK(Half(65520.0).bits == 0x7c00);
  CHECK(Half(std::nextafter(65520.0, 0.0)).bits == 0x7bff);
  CHECK(Half(1e300).bits == 0x7c00);
  CHECK(Half(-1e300).bits == 0xfc00);
  CHECK(Half(1e-300).bits == 0);
  CHECK(Half(-std::numeric_limits<double>::denorm_min()).bits == 0x8000);
  CHECK(BFloat16(1e300).bits == 0x7f80);
  CHECK(BFloat16(std::numeric_limits<float>::max()).bits == 0x7f80);
}

TEST_CASE("a NaN whose payload lies in the dropped bits stays NaN and never becomes infinite") {
  for (const uint32_t word : {0x7f800001u, 0xff800001u, 0x7fffffffu, 0x7f801000u}) {
    CAPTURE(word);
    const auto x = bit_cast<float>(word);
    CHECK(is_nan16<Half>(Half(x).bits));
    CHECK(is_nan16<BFloat16>(BFloat16(x).bits));
  }
  const auto x = bit_cast<double>(uint64_t{0x7ff0000000000001});
  CHECK(is_nan16<Half>(Half(x).bits));
  CHECK(is_nan16<BFloat16>(BFloat16(x).bits));
}

TEST_CASE("halves compare as numbers: the zeros are equal and NaN equals nothing") {
  CHECK(Half(0.0f) == Half(-0.0f));
  CHECK(BFloat16(0.0f) == BFloat16(-0.0f));
  CHECK_FALSE(Half::from_bits(0x7e00) == Half::from_bits(0x7e00));
  CHECK_FALSE(BFloat16::from_bits(0x7fc0) == BFloat16::from_bits(0x7fc0));
  CHECK(Half(1.0f) == Half(1.0));
  CHECK_FALSE(Half(1.0f) == Half(1.001f));
}

TEST_CASE_TEMPLATE("all 65536 patterns are of the class that their value says", T, Half, BFloat16) {
  const double least_normal = std::ldexp(1, 1 - Format<T>::bias);
  int64_t wrong = 0;
  for (uint32_t i = 0; i < 0x10000; ++i) {
    const T x = T::from_bits(static_cast<uint16_t>(i));
    const double v = std::abs(static_cast<double>(x));
    wrong += number_class(x) != (std::isnan(v)                    ? NumberClass::NaN
                                 : std::isinf(v)                  ? NumberClass::Infinite
                                 : v == 0                         ? NumberClass::Zero
                                 : v < least_normal               ? NumberClass::Subnormal
                                 : T(2 * v).bits == infinity16<T> ? NumberClass::Large
                                                                  : NumberClass::Normal);
  }
  CHECK(wrong == 0);
}
