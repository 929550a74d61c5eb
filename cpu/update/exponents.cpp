// Counts numbers by powers of two.
#include "halftape/core/formula/exponents.h"

#include "halftape/cpu/cpu_backend.h"
#include "halftape/cpu/vector/loop.h"

namespace halftape::cpu {

void CpuBackend::count_exponents(const Array& counts, const Array& given) {
  const Array x = given.to_contiguous();
  auto* const totals = static_cast<int64_t*>(counts.raw());
  with_float_type(x.dtype(), [&](auto t) {
    using S = typename decltype(t)::type;
    parallel_ranges(x.numel(), grain(x.numel(), 1), [&](int64_t begin, int64_t end) {
      // Four tables: neighbours, which are often alike, do not wait for each other's count.
      uint32_t tables[4][kExponentSlots] = {};
      Lanes<S> lanes(x.dtype());
      char* at = static_cast<char*>(x.raw()) + begin * lanes.item();
      for (int64_t m; begin < end; begin += m, at += m * lanes.item()) {
        m = Lanes<S>::block(end - begin);
        const S* v = lanes.read(at, 1, m);
        for (int64_t k = 0; k < m; ++k) ++tables[k % 4][exponent_slot(v[k])];
      }
      for (int slot = 0; slot < kExponentSlots; ++slot) {
        int64_t sum = 0;
        for (const auto& table : tables) sum += table[slot];
        if (sum) __atomic_fetch_add(&totals[slot], sum, __ATOMIC_RELAXED);
      }
    });
  });
  counts.bump_version();
}

}  // namespace halftape::cpu
