#include "halftape/core/machine/fma.h"

#include <doctest/doctest.h>

#include <type_traits>

#include "halftape/core/bit_cast.h"

using namespace halftape;

namespace {

/// Numbers of every sign and fraction, with exponents near 0.
template <class T>
class Numbers {
 public:
  T next() {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    const uint64_t mixed = (state_ ^ state_ >> 29) * 0x9E3779B97F4A7C15u;
    if constexpr (std::is_same_v<T, float>)
      return bit_cast<float>(
          static_cast<uint32_t>((mixed >> 32 & 0x807fffffu) | (120 + mixed % 16) << 23));
    else
      return bit_cast<double>((mixed & 0x800fffffffffffffu) | (1016 + (mixed >> 40) % 16) << 52);
  }

 private:
  uint64_t state_ = 1;
};

template <class T>
int differences() {
  Numbers<T> numbers;
  int count = 0;
  for (int i = 0; i < 1'000'000; ++i) {
    const T a = numbers.next(), b = numbers.next();
    // A sum that nearly vanishes shows each digit of the product.
    const T c = i % 2 == 0 ? numbers.next() : -a * b;
    count += bit_cast<uint64_t>(static_cast<double>(fma_in_steps(a, b, c))) !=
             bit_cast<uint64_t>(static_cast<double>(std::fma(a, b, c)));
  }
  return count;
}

}  // namespace

#if !defined(__MINGW32__)  // whose own is not right
TEST_CASE("a multiplication and an addition in steps are rounded once, as by std::fma") {
  CHECK(differences<float>() == 0);
  CHECK(differences<double>() == 0);
}
#endif

TEST_CASE("a product and a sum are rounded once on every system") {
  // Each of these differs from the sum of the rounded product, or is rounded wrongly by two steps.
  CHECK(halftape::fma(1 + 0x1p-23f, 1 + 0x1p-23f, -1.0f) == 0x1p-22f + 0x1p-46f);
  CHECK(halftape::fma(1 + 0x1p-12f, 1 + 0x1p-12f, 0x1p-60f) == 1 + 0x1p-11f + 0x1p-23f);
  CHECK(halftape::fma(1 + 0x1p-52, 1 + 0x1p-52, -1.0) == 0x1p-51 + 0x1p-104);
  CHECK(std::isnan(halftape::fma(0.0f, INFINITY, 1.0f)));
  CHECK(halftape::fma(2.0f, INFINITY, 1.0f) == INFINITY);
}
