// A CheckedScale of one element, and a Transition.
#include <array>

#include "halftape/core/bit_cast.h"
#include "halftape/cpu/fused.h"
#include "halftape/cpu/update/values.h"

namespace halftape::cpu {
namespace {

/// An array of N integers of any dtype.
template <size_t N>
std::array<int64_t, N> numbers(const Array& a) {
  std::array<int64_t, N> n;
  visit(a.dtype(), [&](auto t) {
    const auto* x = static_cast<const typename decltype(t)::type*>(a.raw());
    for (auto& each : n) each = convert<int64_t>(*x), x += a.strides()[0];
  });
  return n;
}
template <size_t N>
void set_numbers(const Array& a, const std::array<int64_t, N>& n) {
  visit(a.dtype(), [&](auto t) {
    using T = typename decltype(t)::type;
    T* x = static_cast<T*>(a.raw());
    for (const int64_t each : n) *x = Scalar(each).as_element<T>(), x += a.strides()[0];
  });
  a.bump_version();
}

}  // namespace

bool scale_one(const CheckedScale& s) {
  if (s.x.numel() != 1) return false;
  const double x = value(s.x);
  const float by = static_cast<float>(value(s.scale));
  const bool wide = s.x.dtype() == kFloat64 || s.y.dtype() == kFloat64;
  set(s.y, wide ? x * by : static_cast<float>(x) * by);
  const double bad = !is_finite(x) ? 1 : s.begins ? 0 : value(s.nonfinite);
  set(s.nonfinite, bad);
  if (s.factor.defined()) set(s.factor, by);
  if (s.inverse.defined()) set(s.inverse, 1 / by);
  if (s.found_inf.defined()) set(s.found_inf, bad);
  if (s.first.defined()) set(s.first, -1);
  return true;
}

void CpuBackend::transition(const Transition& t) {
  const bool bad_loss = t.bad_loss.defined() && value(t.bad_loss) != 0;
  const CheckResult* overflow = nullptr;
  for (const CheckResult& r : t.results)
    if (!overflow && value(r.found_inf) != 0) overflow = &r;
  const Verdict verdict = bad_loss   ? Verdict::BadLoss
                          : overflow ? Verdict::Overflow
                                     : Verdict::Finite;
  const float before = static_cast<float>(value(t.scale));
  const auto trackers = numbers<2>(t.trackers);
  const ScaleState after =
      next(ScaleState{before, static_cast<int32_t>(trackers[0]), static_cast<int32_t>(trackers[1])},
           verdict, t.rule);
  set(t.scale, after.scale);
  t.scale.bump_version();
  set_numbers<2>(t.trackers, {after.growth_tracker, after.overflows});
  if (!t.counts.defined()) return;
  auto counts = bit_cast<ScaleCounts>(numbers<8>(t.counts));
  counts = counted(counts, verdict, before, after.scale);
  if (overflow) {
    counts.list = overflow->list;
    counts.position = static_cast<int64_t>(value(overflow->first));
  }
  set_numbers<8>(t.counts, bit_cast<std::array<int64_t, 8>>(counts));
  if (verdict != Verdict::Finite && counts.skips_in_row == t.warn_after && t.report)
    t.report(counts.skips_in_row, after.scale, bad_loss);
}

}  // namespace halftape::cpu
