// Sums, differences, products and quotients of all pairs of 16-bit numbers, each rounded exactly.
// All 2³² pairs of both types take a minute and a half, so a run takes one slice of 32: the first,
// or the one that HALFTAPE_PAIRS names (by any number: of 32 in a row each names another one);
// HALFTAPE_PAIRS=all takes every one.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

#include "halftape/core/contract/backend.h"
#include "halftape/core/formula/binary.h"
#include "halftape/cpu/runtime/parallel.h"
#include "halftape/tests/support/nonfinite.h"

using namespace halftape;
using testing::kInf;

namespace {

constexpr int kAll = 65536, kSlices = 32;

/// The double that 16 bits stand for: a sign, some bits of exponent, the rest a fraction.
double value_of(int bits, int fraction) {
  const int magnitude = bits & 0x7fff, exponent = magnitude >> fraction;
  const int bias = (1 << (14 - fraction)) - 1, rest = magnitude & ((1 << fraction) - 1);
  const double v = exponent == 2 * bias + 1 ? (rest ? std::nan("") : kInf)
                   : exponent == 0          ? std::ldexp(rest, 1 - bias - fraction)
                                   : std::ldexp(rest + (1 << fraction), exponent - bias - fraction);
  return bits & 0x8000 ? -v : v;
}

/// For each number of a 16-bit type the reals that round to it: those up to the middles between it
/// and its neighbours; a middle goes to the even one. Past the largest number stands infinity, as
/// far as the next one would be.
struct Nearest {
  std::vector<double> value, low, high;

  explicit Nearest(int fraction) {
    const int infinity = 0x7fff >> fraction << fraction;
    const double beyond = 2 * value_of(infinity - 1, fraction) - value_of(infinity - 2, fraction);
    const auto at = [&](int magnitude) {
      return magnitude == infinity ? beyond : value_of(magnitude, fraction);
    };
    for (int bits = 0; bits < kAll; ++bits) {
      const int m = bits & 0x7fff;
      const bool odd = m % 2, negative = bits & 0x8000;
      double from = m == 0 ? 0 : (at(m - 1) + at(m)) / 2;  // exact: one bit more
      double to = m >= infinity ? kInf : (at(m) + at(m + 1)) / 2;
      if (odd) from = std::nextafter(from, kInf), to = std::nextafter(to, 0);
      value.push_back(value_of(bits, fraction));
      low.push_back(negative ? -to : from);
      high.push_back(negative ? -from : to);
    }
  }

  /// Is `bits` what `exact` rounds to? `slack`: or a neighbour of it.
  bool holds(double exact, int bits, bool slack) const {
    const auto at = static_cast<size_t>(bits);
    if (std::isnan(exact)) return std::isnan(value[at]);
    if (std::isnan(value[at]) || std::signbit(exact) != (bits > 0x7fff)) return false;
    if (low[at] <= exact && exact <= high[at]) return true;
    return slack && ((bits & 0x7fff ? holds(exact, bits - 1, false) : false) ||
                     holds(exact, bits + 1, false));
  }
};

/// What is wrong in `left` op every number; empty if nothing.
template <class T, class Op, class Plain>
std::string wrong(const Nearest& nearest, int left, const Array& right, Plain plain) {
  const Array a({1}, dtype_of<T>, kCPU), out({kAll}, dtype_of<T>, kCPU);
  a.data<T>()[0] = T::from_bits(static_cast<uint16_t>(left));
  cpu_backend().binary(BinaryOps::index<Op>(), out, a.expand({kAll}), right);
  const T* y = out.data<T>();
  const double x = nearest.value[static_cast<size_t>(left)];
  int64_t count = 0;
  std::ostringstream text;
  for (int i = 0; i < kAll; ++i) {
    // Of 53 bits: a second rounding to q does no harm after one to p ≥ 2q + 2 (Figueroa 1995).
    const double z = nearest.value[static_cast<size_t>(i)], exact = plain(x, z);
    // Below 2^-126 the float between has fewer bits, and a tie of bfloat16 may be one of its
    // making.
    const bool tiny = exact != 0 && std::abs(exact) < 0x1p-126;
    if (nearest.holds(exact, y[i].bits, tiny)) continue;
    if (count++ == 0)
      text << Op::name << " of " << x << " and " << z << ": got " << double(y[i]) << ", exactly "
           << exact;
  }
  if (count > 1) text << ", and " << count - 1 << " others of " << x;
  return text.str();
}

template <class T>
void check_pairs(int fraction) {
  const char* wanted = std::getenv("HALFTAPE_PAIRS");
  const bool all = wanted && std::string(wanted) == "all";
  const int slice = wanted && !all ? std::atoi(wanted) % kSlices : 0;
  const Nearest nearest(fraction);
  const Array right({kAll}, dtype_of<T>, kCPU);
  for (int i = 0; i < kAll; ++i) right.data<T>()[i] = T::from_bits(static_cast<uint16_t>(i));
  // A slice has every 32nd of 256 neighbours, and of the next 256 others: low digits turn with high
  // ones.
  std::vector<int> lefts;
  for (int left = 0; left < kAll; ++left)
    if (all || (left + 37 * (left / 256)) % kSlices == slice) lefts.push_back(left);
  std::vector<std::string> found(lefts.size());
  cpu::parallel_for(static_cast<int64_t>(lefts.size()), [&](int64_t i) {
    const auto at = static_cast<size_t>(i);
    const int left = lefts[at];
    found[at] =
        wrong<T, formula::Add>(nearest, left, right, [](double a, double b) { return a + b; }) +
        wrong<T, formula::Sub>(nearest, left, right, [](double a, double b) { return a - b; }) +
        wrong<T, formula::Mul>(nearest, left, right, [](double a, double b) { return a * b; }) +
        wrong<T, formula::Div>(nearest, left, right, [](double a, double b) { return a / b; });
  });
  for (const std::string& text : found) CHECK(text == "");
  if (all) MESSAGE("4 operations on ", static_cast<int64_t>(lefts.size()) * kAll, " pairs");
}

}  // namespace

TEST_CASE("arithmetic on a slice of all pairs of float16 is exact and then rounded once") {
  check_pairs<Half>(10);
}
TEST_CASE("arithmetic on a slice of all pairs of bfloat16 is exact and then rounded once") {
  check_pairs<BFloat16>(7);
}
