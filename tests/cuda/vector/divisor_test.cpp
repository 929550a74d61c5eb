// Division by a product and a shift, at the ends of its range.
#include "halftape/cuda/vector/divisor.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <vector>

using halftape::cuda::Divisor;

TEST_CASE("a Divisor divides as / and % do, at the limits of 32 and of 64 bits") {
  std::vector<int64_t> divisors, numbers;
  for (int bits = 0; bits < 62; ++bits)
    for (const int64_t near : {-1, 0, 1}) divisors.push_back((int64_t{1} << bits) + near);
  for (const int64_t d : {3, 5, 6, 7, 9, 10, 49, 641, 1000, 65535 * 3, 6700417, 1431655765})
    divisors.push_back(d);
  std::erase_if(divisors, [](int64_t d) { return d < 1; });
  for (const int64_t edge : {int64_t{0}, int64_t{1} << 16, int64_t{1} << 30, int64_t{1} << 31,
                             int64_t{1} << 32, int64_t{1} << 62, INT64_MAX - 2})
    for (int64_t near = -2; near <= 2; ++near) numbers.push_back(std::max<int64_t>(0, edge + near));
  std::mt19937_64 dice(1);
  int64_t wrong = 0;
  for (const int64_t d : divisors) {
    const Divisor by(d);
    const auto check = [&](int64_t n) {
      const Divisor::Result r = by.divide(n);
      wrong += r.quotient != n / d || r.rest != n % d;
    };
    for (const int64_t n : numbers) check(n);
    const int64_t most = INT32_MAX / d * d;  // the last multiple that a product divides
    for (const int64_t n : {d - 1, d, most - 1, most, most + 1}) check(std::max<int64_t>(0, n));
    for (int i = 0; i < 1000; ++i) check(static_cast<int64_t>(dice() >> (1 + dice() % 62)));
    CAPTURE(d);
    CHECK(wrong == 0);
  }
}
