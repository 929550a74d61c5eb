// Checks that gradients are finite and, in the same walk, divides them by the loss scale.
#include <algorithm>
#include <atomic>
#include <limits>

#include "halftape/core/bit_cast.h"
#include "halftape/cpu/cpu_backend.h"
#include "halftape/cpu/update/values.h"
#include "halftape/cpu/vector/loop.h"

namespace halftape::cpu {
namespace {

template <class T, class S>
float rounded(S x) {
  return static_cast<float>(T(static_cast<float>(x)));
}

/// True if all v[k]·by are finite. Then so are all v[k], since a product with infinity or NaN is
/// never finite. The products replace v[k] if `writes`.
template <bool writes, class S>
bool finite_times(S by, std::conditional_t<writes, S, const S>* v, int64_t n) {
  using Word = typename Mask<S>::Word;
  // Without their sign, the bits of floats are in their order, and those of NaN above infinity's.
  Word largest = 0;
  const auto look = [&](S x) {
    const Word size = bit_cast<Word>(x) & std::numeric_limits<Word>::max();
    largest = size > largest ? size : largest;
  };
  if (by == S(1)) {  // signalling NaNs stay what they are
    for (int64_t k = 0; k < n; ++k) look(v[k]);
  } else {
    for (int64_t k = 0; k < n; ++k) {
      const S x = v[k] * by;
      if constexpr (writes) v[k] = x;
      look(x);
    }
  }
  return largest < bit_cast<Word>(std::numeric_limits<S>::infinity());
}

/// True if all elements are finite, also times `factor`.
bool finite(const Array& x, double factor) {
  std::atomic<bool> found{false};
  with_float_type(x.dtype(), [&](auto t) {
    using S = typename decltype(t)::type;
    each_block<S, 1>({&x}, Use{1, 0}, [&](const auto& lanes, int64_t, int64_t n) {
      if (!finite_times<false>(static_cast<S>(factor), lanes[0], n))
        found.store(true, std::memory_order_relaxed);
    });
  });
  return !found;
}

/// g ← g·inverse; true if all elements were finite before and after.
bool divide(const Array& g, double inverse) {
  std::atomic<bool> found{false};
  with_float_type(g.dtype(), [&](auto t) {
    using S = typename decltype(t)::type;
    each_block<S, 1>({&g}, Use{1, 1}, [&](const auto& lanes, int64_t, int64_t n) {
      S* v = lanes[0];
      bool bad = !finite_times<true>(static_cast<S>(inverse), v, n);
      if (!bad && g.dtype() == kFloat16)  // rounding to 16 bits may overflow once more
        for (int64_t k = 0; k < n; ++k) bad |= !is_finite(rounded<Half>(v[k]));
      if (!bad && g.dtype() == kBFloat16)
        for (int64_t k = 0; k < n; ++k) bad |= !is_finite(rounded<BFloat16>(v[k]));
      if (bad) found.store(true, std::memory_order_relaxed);
    });
  });
  return !found;
}

}  // namespace

void CpuBackend::check(const GradientCheck& c) {
  const double factor = c.inv_scale.defined() ? value(c.inv_scale) : 1;
  int64_t first_bad = -1;
  // A check that divides goes on after a bad gradient: otherwise only a part of the list would be
  // divided.
  for (size_t i = 0; i < c.grads.size() && (first_bad < 0 || c.divides); ++i) {
    const Array& g = c.grads[i];
    if (!g.defined()) continue;
    const bool good = c.divides ? divide(g, factor) : finite(g, factor);
    if (!good && first_bad < 0) first_bad = static_cast<int64_t>(i);
    if (c.divides) g.bump_version();
  }
  if (first_bad < 0) return;
  if (c.found_inf.defined()) fill(c.found_inf, 1);
  if (c.first.defined()) fill(c.first, first_bad);
}

}  // namespace halftape::cpu
