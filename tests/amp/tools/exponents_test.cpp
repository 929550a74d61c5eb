// Counts by powers of two against casts of the same numbers.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <sstream>

#include "halftape/halftape.h"

using namespace halftape;
using amp::count_exponents;
using amp::ExponentCounts;

namespace {

int64_t many(const Tensor& mask) { return mask.sum().item<int64_t>(); }

}  // namespace

TEST_CASE("what a 16-bit dtype loses of all 16-bit numbers is what casts lose, at every scale") {
  for (const Dtype stored : {kFloat16, kBFloat16}) {
    std::vector<uint16_t> bits(65536);
    for (size_t i = 0; i < bits.size(); ++i) bits[i] = static_cast<uint16_t>(i);
    const Tensor x = from_blob(bits.data(), {65536}, stored).clone();
    const ExponentCounts counts = count_exponents(x);
    const Tensor wide = x.to(kFloat64), numbers = isfinite(wide) & (wide != 0);
    CHECK(counts.total() == 65536);
    CHECK(counts.zeros() == 2);
    CHECK(counts.infs() == 2);
    CHECK(counts.nans() == many(isnan(wide)));
    CHECK(counts.numbers() == many(numbers));
    for (const Dtype target : {kFloat16, kBFloat16})
      for (int shift = -45; shift <= 45; ++shift) {
        CAPTURE(stored);
        CAPTURE(target);
        CAPTURE(shift);
        const Tensor scaled = wide * std::ldexp(1.0, shift), kept = scaled.to(target).to(kFloat64);
        const double least = target == kFloat16 ? 0x1p-14 : 0x1p-126;
        const Tensor small = abs(scaled) < least;
        CHECK(counts.overflowing(shift, target) == many(numbers & isinf(kept)));
        if (stored == kBFloat16 && target == kBFloat16) continue;  // below 2^-126 is one slot
        CHECK(counts.vanishing(shift, target) == many(numbers & (kept == 0)));
        CHECK(counts.subnormal(shift, target) == many(numbers & small & (kept != 0)));
      }
  }
}

TEST_CASE("what bfloat16 loses of its normal numbers is what casts lose, at every scale") {
  std::vector<uint16_t> bits;
  for (unsigned word = 0x80; word < 0x7f80; ++word) bits.push_back(static_cast<uint16_t>(word));
  const auto n = static_cast<int64_t>(bits.size());
  const Tensor x = from_blob(bits.data(), {n}, kBFloat16).clone(), wide = x.to(kFloat64);
  const ExponentCounts counts = count_exponents(x);
  for (int shift = -270; shift <= 10; shift += 7) {
    CAPTURE(shift);
    const Tensor scaled = wide * std::ldexp(1.0, shift);
    const Tensor kept = scaled.to(kBFloat16).to(kFloat64);
    CHECK(counts.vanishing(shift, kBFloat16) == many(kept == 0));
    CHECK(counts.subnormal(shift, kBFloat16) == many((scaled < 0x1p-126) & (kept != 0)));
    CHECK(counts.overflowing(shift, kBFloat16) == many(isinf(kept)));
  }
}

TEST_CASE("float32 and float64 numbers at the edges of float16") {
  const float tie = 0x1p-25f;
  const Tensor x =
      tensor({tie, -tie, std::nextafter(tie, 1.0f), std::nextafter(tie, 0.0f), 0x1p-14f,
              std::nextafter(0x1p-14f, 0.0f), 65504.0f, 65536.0f, -0.0f, 0x1p-149f});
  for (const Dtype dtype : {kFloat32, kFloat64}) {
    const ExponentCounts counts = count_exponents(x.to(dtype));
    CHECK(counts.total() == 10);
    CHECK(counts.zeros() == 1);
    CHECK(counts.vanishing(0) == 4);  // the ties round to even, which is 0
    CHECK(counts.vanishing(1) == 1);
    CHECK(counts.vanishing(40, kFloat32) == 0);
    CHECK(counts.subnormal(0) == 2);
    CHECK(counts.overflowing(0) == 1);
    CHECK(counts.overflowing(1) == 2);
    CHECK(counts.overflowing(-1) == 0);
    CHECK(counts.at(-25) == 3);
    CHECK(counts.at(15) == 1);
  }
  const Tensor beyond = tensor({1e300, -1e300, 1e-300}, TensorOptions().dtype(kFloat64));
  CHECK(count_exponents(beyond).overflowing(0) == 2);
  CHECK(count_exponents(beyond).vanishing(0) == 1);
}

TEST_CASE("counts of two tensors add, and print") {
  ExponentCounts counts = count_exponents(tensor({1.0, 1.5, 0.0}));
  counts += count_exponents(tensor({4.0, std::numeric_limits<double>::infinity()}));
  CHECK(counts ==
        count_exponents(tensor({4.0, 1.0, 1.5, 0.0, std::numeric_limits<double>::infinity()})));
  std::ostringstream text;
  text << counts << count_exponents(zeros({0}));
  CHECK(text.str() ==
        "     2^2           1  ####################\n"
        "     2^0           2  ########################################\n"
        "zeros 1, infs 1, NaNs 0\n"
        "zeros 0, infs 0, NaNs 0\n");
}

TEST_CASE("only tensors of floating dtypes are counted, and shifts may be anything") {
  CHECK_THROWS_WITH_AS(count_exponents(ones({2}).to(kInt64)), doctest::Contains("got int64"),
                       Error);
  CHECK_THROWS_WITH_AS(count_exponents(Tensor()), doctest::Contains("undefined"), Error);
  const ExponentCounts counts = count_exponents(tensor({1.0, 2.0}));
  CHECK_THROWS_WITH_AS(counts.vanishing(0, kInt32), doctest::Contains("got int32"), Error);
  CHECK_THROWS_WITH_AS(counts.at(128), doctest::Contains("128"), Error);
  CHECK(counts.vanishing(std::numeric_limits<int>::min()) == 2);
  CHECK(counts.overflowing(std::numeric_limits<int>::max()) == 2);
}
