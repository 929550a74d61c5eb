#include "halftape/amp/tools/exponents.h"

#include <algorithm>
#include <iomanip>
#include <numeric>
#include <string>

#include "halftape/core/contract/backend.h"

namespace halftape::amp {
namespace {

constexpr int kLeast = -126, kMost = 127;  // exponents that have slots of their own

/// The powers of two between which a dtype has normal numbers, and the largest that rounds to 0.
struct Range {
  int vanishes, least, infinite;
};
Range range_of(Dtype dtype) {
  HALFTAPE_CHECK(dtype == kFloat16 || dtype == kBFloat16 || dtype == kFloat32,
                 "ExponentCounts: expected float16, bfloat16 or float32, got ", dtype);
  if (dtype == kFloat16) return {-25, -14, 16};
  return {dtype == kBFloat16 ? -134 : -150, -126, 128};
}

/// Numbers x with |x| < 2^limit; or ≤, if `equal`.
int64_t below(const ExponentCounts& counts, int64_t limit, bool equal) {
  int64_t sum = limit >= kLeast ? counts.slots[0] : 0;
  for (int64_t e = kLeast; e < std::min<int64_t>(limit, kMost + 1); ++e)
    sum += counts.at(static_cast<int>(e));
  if (equal && limit >= kLeast && limit <= kMost)
    sum += counts.slots[static_cast<size_t>(2 * (limit + 127) + 1)];
  return sum;
}

}  // namespace

int64_t ExponentCounts::total() const {
  return std::accumulate(slots.begin(), slots.end(), int64_t{0});
}

int64_t ExponentCounts::at(int exponent) const {
  HALFTAPE_CHECK(exponent >= kLeast && exponent <= kMost, "ExponentCounts::at: exponent ", exponent,
                 " is not in [-126, 127]");
  const auto slot = 2 * (static_cast<size_t>(exponent - kLeast) + 1);
  return slots[slot] + slots[slot + 1];
}

int64_t ExponentCounts::vanishing(int shift, Dtype dtype) const {
  return below(*this, int64_t{range_of(dtype).vanishes} - shift, true);
}
int64_t ExponentCounts::subnormal(int shift, Dtype dtype) const {
  return below(*this, int64_t{range_of(dtype).least} - shift, false) - vanishing(shift, dtype);
}
int64_t ExponentCounts::overflowing(int shift, Dtype dtype) const {
  return numbers() - below(*this, int64_t{range_of(dtype).infinite} - shift, false);
}

ExponentCounts& ExponentCounts::operator+=(const ExponentCounts& other) {
  for (size_t i = 0; i < slots.size(); ++i) slots[i] += other.slots[i];
  return *this;
}

ExponentCounts count_exponents(const Tensor& x) {
  HALFTAPE_CHECK(x.defined() && x.is_floating_point(),
                 "count_exponents: expected a tensor of a floating dtype, got ",
                 x.defined() ? name(x.dtype()) : "an undefined one");
  const Array counts = full({kExponentSlots}, 0, kInt64, x.device());
  backend(x.device()).count_numbers(CountBy::Exponent, counts, x.array());
  ExponentCounts result;
  backend(x.device()).read(result.slots.data(), counts);
  return result;
}

std::ostream& operator<<(std::ostream& out, const ExponentCounts& counts) {
  int64_t most = counts.slots[0];
  for (int e = kLeast; e <= kMost; ++e) most = std::max(most, counts.at(e));
  const auto line = [&](const std::string& what, int64_t count) {
    if (count == 0) return;
    const auto width =
        static_cast<size_t>(1 + 39 * static_cast<double>(count) / static_cast<double>(most));
    out << std::setw(8) << what << std::setw(12) << count << "  " << std::string(width, '#')
        << '\n';
  };
  for (int e = kMost; e >= kLeast; --e) line("2^" + std::to_string(e), counts.at(e));
  line("<2^-126", counts.slots[0]);
  return out << "zeros " << counts.zeros() << ", infs " << counts.infs() << ", NaNs "
             << counts.nans() << '\n';
}

}  // namespace halftape::amp
