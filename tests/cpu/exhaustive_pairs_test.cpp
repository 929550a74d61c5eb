// Sums, differences, products and quotients of all pairs of 16-bit numbers, each rounded exactly.
// All 2³² pairs take hours of an unoptimised build, so a run takes one slice of 256: the first, or
// the one that HALFTAPE_PAIRS names (0 … 255); HALFTAPE_PAIRS=all takes every one.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdlib>
#include <sstream>
#include <string>

#include "halftape/core/backend.h"
#include "halftape/core/formula/binary.h"

using namespace halftape;

namespace {

constexpr int kAll = 65536, kSlices = 256;

template <class T, class Op>
void check_row(const Array& left, const Array& right, const Array& out) {
  cpu_backend().binary(BinaryOps::index<Op>(), out, left.expand({kAll}), right);
  const auto a = static_cast<double>(left.data<T>()[0]);
  const T *b = right.data<T>(), *y = out.data<T>();
  int64_t wrong = 0;
  std::ostringstream first;
  for (int i = 0; i < kAll; ++i) {
    // Of 53 bits: a second rounding to q does no harm after one to p ≥ 2q + 2 (Figueroa 1995).
    const double e = Op::f(a, static_cast<double>(b[i]));
    const T expected(e);
    const bool nan = std::isnan(static_cast<float>(y[i]));
    // Below 2^-126 the float between has fewer bits, and a tie of bfloat16 may be one of its
    // making.
    const bool tiny = e != 0 && std::abs(e) < 0x1p-126;
    const int apart = std::abs(int{y[i].bits} - int{expected.bits});
    if (std::isnan(e) ? nan : !nan && apart <= (tiny ? 1 : 0)) continue;
    if (wrong++ == 0)
      first << Op::name << " of " << a << " and " << static_cast<double>(b[i]) << ": got "
            << static_cast<double>(y[i]) << ", exactly " << e;
  }
  INFO(first.str());
  CHECK(wrong == 0);
}

template <class T>
void check_pairs() {
  const char* wanted = std::getenv("HALFTAPE_PAIRS");
  const bool all = wanted && std::string(wanted) == "all";
  const int slice = wanted && !all ? std::atoi(wanted) % kSlices : 0;
  const Array left({1}, dtype_of<T>, kCPU), right({kAll}, dtype_of<T>, kCPU),
      out({kAll}, dtype_of<T>, kCPU);
  for (int i = 0; i < kAll; ++i) right.data<T>()[i] = T::from_bits(static_cast<uint16_t>(i));
  // Of every slice one number in each run of 256 neighbours, never the same one: the low digits
  // turn with the high ones.
  for (int high = 0; high < kAll / kSlices; ++high)
    for (int low = 0; low < kSlices; ++low) {
      if (!all && low != (slice + 37 * high) % kSlices) continue;
      left.data<T>()[0] = T::from_bits(static_cast<uint16_t>(high * kSlices + low));
      check_row<T, formula::Add>(left, right, out);
      check_row<T, formula::Sub>(left, right, out);
      check_row<T, formula::Mul>(left, right, out);
      check_row<T, formula::Div>(left, right, out);
    }
}

}  // namespace

TEST_CASE("arithmetic on a slice of all pairs of float16 is exact and then rounded once") {
  check_pairs<Half>();
}
TEST_CASE("arithmetic on a slice of all pairs of bfloat16 is exact and then rounded once") {
  check_pairs<BFloat16>();
}
