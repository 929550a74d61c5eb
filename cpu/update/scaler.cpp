// What a GradScaler does with a loss, and its transition.
#include <array>
#include <bit>

#include "halftape/core/contract/skips.h"
#include "halftape/core/machine/warn.h"
#include "halftape/cpu/cpu_backend.h"
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
    for (const int64_t each : n) *x = Scalar(each).to<T>(), x += a.strides()[0];
  });
  a.bump_version();
}

}  // namespace

void CpuBackend::scale_loss(const LossScaling& s) {
  if (s.loss.numel() != 1) return Backend::scale_loss(s);
  const double loss = value(s.loss);
  const float by = static_cast<float>(value(s.scale));
  const bool wide = s.loss.dtype() == kFloat64 || s.scaled.dtype() == kFloat64;
  set(s.scaled, wide ? loss * by : static_cast<float>(loss) * by);
  const double bad = !is_finite(loss) ? 1 : s.begins ? 0 : value(s.bad_loss);
  set(s.bad_loss, bad);
  if (s.factor.defined()) set(s.factor, by);
  if (s.inverse.defined()) set(s.inverse, 1 / by);
  if (s.found_inf.defined()) set(s.found_inf, bad);
  if (s.first.defined()) set(s.first, -1);
}

void CpuBackend::scaler_update(const ScalerUpdate& u, const ScalerLaw& law) {
  const bool bad_loss = u.bad_loss.defined() && value(u.bad_loss) != 0;
  const ScalerFinding* overflow = nullptr;
  for (const ScalerFinding& f : u.findings)
    if (!overflow && value(f.found_inf) != 0) overflow = &f;
  const Verdict verdict = bad_loss   ? Verdict::BadLoss
                          : overflow ? Verdict::Overflow
                                     : Verdict::Finite;
  const float before = static_cast<float>(value(u.scale));
  const auto trackers = numbers<2>(u.trackers);
  const ScalerState after = next(
      ScalerState{before, static_cast<int32_t>(trackers[0]), static_cast<int32_t>(trackers[1])},
      verdict, law);
  set(u.scale, after.scale);
  u.scale.bump_version();
  set_numbers<2>(u.trackers, {after.growth_tracker, after.overflows});
  if (!u.counts.defined()) return;
  auto counts = std::bit_cast<ScalerCounts>(numbers<8>(u.counts));
  counts = counted(counts, verdict, before, after.scale);
  if (overflow) {
    counts.optimizer = overflow->optimizer;
    counts.parameter = static_cast<int64_t>(value(overflow->first));
  }
  set_numbers<8>(u.counts, std::bit_cast<std::array<int64_t, 8>>(counts));
  if (verdict != Verdict::Finite && counts.skips_in_row == u.warn_after)
    warn(tell_skips("GradScaler", counts.skips_in_row, after.scale, bad_loss));
}

}  // namespace halftape::cpu
