// Counts numbers by powers of two, and by their class.
#include "halftape/core/formula/exponents.h"

#include "halftape/core/formula/number_class.h"
#include "halftape/cpu/cpu_backend.h"
#include "halftape/cpu/vector/loop.h"

namespace halftape::cpu {
namespace {

/// Other ranges may add to the total at the same time, unless this one is `alone`.
void add_to(int64_t& total, int64_t count, bool alone) {
  if (count == 0) return;
  if (alone)
    total += count;
  else
    __atomic_fetch_add(&total, count, __ATOMIC_RELAXED);
}

void count_exponents(int64_t* totals, const Array& x) {
  with_float_type(x.dtype(), [&](auto t) {
    using S = typename decltype(t)::type;
    parallel_ranges(x.numel(), grain(x.numel(), 1), [&](int64_t begin, int64_t end) {
      const bool alone = end - begin == x.numel();
      // Four tables: neighbours, which are often alike, do not wait for each other's count.
      uint32_t tables[4][kExponentSlots] = {};
      Lanes<S> lanes(x.dtype());
      char* at = static_cast<char*>(x.raw()) + begin * lanes.item();
      uint16_t slots[Lanes<S>::kMost];
      for (int64_t m; begin < end; begin += m, at += m * lanes.item()) {
        m = Lanes<S>::block(end - begin);
        const S* v = lanes.read(at, 1, m);
        for (int64_t k = 0; k < m; ++k) slots[k] = static_cast<uint16_t>(exponent_slot(v[k]));
        int64_t k = 0;
        for (; k + 4 <= m; k += 4)
          for (int j = 0; j < 4; ++j) ++tables[j][slots[k + j]];
        for (; k < m; ++k) ++tables[0][slots[k]];
      }
      for (int slot = 0; slot < kExponentSlots; ++slot) {
        int64_t sum = 0;
        for (const auto& table : tables) sum += table[slot];
        add_to(totals[slot], sum, alone);
      }
    });
  });
}

/// Counts n numbers, so few that a count fits into a word: words are compared, many at once, and as
/// signed ones, for which processors have an instruction.
template <class T>
void count_words(const typename ClassBorders<T>::Word* x, int64_t n, int64_t* classes) {
  using B = ClassBorders<T>;
  using Word = std::make_signed_t<typename B::Word>;
  constexpr auto kLeastNormal = static_cast<Word>(B::least_normal),
                 kLarge = static_cast<Word>(B::large), kInfinite = static_cast<Word>(B::infinite);
  const auto bits_of = [x](int64_t i) { return static_cast<Word>(x[i] & B::magnitude); };
  const auto add = [&](NumberClass c, Word count) {
    classes[static_cast<size_t>(c)] += int64_t{count};
  };
  Word zero = 0, normal = 0, most = 0;  // normal: and above
#pragma GCC unroll 4
  for (int64_t i = 0; i < n; ++i) {
    const Word bits = bits_of(i);
    zero = static_cast<Word>(zero + (bits == 0));
    normal = static_cast<Word>(normal + (bits >= kLeastNormal));
    most = std::max(most, bits);
  }
  Word large = 0, infinite = 0, nan = 0;
  if (most >= kLarge)  // as few are
    for (int64_t i = 0; i < n; ++i) {
      const Word bits = bits_of(i);
      large = static_cast<Word>(large + (bits >= kLarge));
      infinite = static_cast<Word>(infinite + (bits >= kInfinite));
      nan = static_cast<Word>(nan + (bits > kInfinite));
    }
  add(NumberClass::Zero, zero);
  add(NumberClass::Subnormal, static_cast<Word>(n - zero - normal));
  add(NumberClass::Normal, static_cast<Word>(normal - large));
  add(NumberClass::Large, static_cast<Word>(large - infinite));
  add(NumberClass::Infinite, static_cast<Word>(infinite - nan));
  add(NumberClass::NaN, nan);
}

void count_classes(int64_t* totals, const Array& x) {
  visit(x.dtype(), [&]<class T>(Type<T>) {
    if constexpr (is_floating_point(dtype_of<T>)) {
      const auto* words = static_cast<const typename ClassBorders<T>::Word*>(x.raw());
      parallel_ranges(x.numel(), grain(x.numel(), 1), [&](int64_t begin, int64_t end) {
        const bool alone = end - begin == x.numel();
        constexpr int64_t kBlock = 8192;
        int64_t classes[kNumberClasses] = {};
        for (; begin < end; begin += kBlock)
          count_words<T>(words + begin, std::min(kBlock, end - begin), classes);
        for (int c = 0; c < kNumberClasses; ++c) add_to(totals[c], classes[c], alone);
      });
    }
  });
}

}  // namespace

void CpuBackend::count_numbers(CountBy by, const Array& counts, const Array& x) {
  if (!x.contiguous()) return count_numbers(by, counts, x.to_contiguous());
  (by == CountBy::Exponent ? count_exponents : count_classes)(static_cast<int64_t*>(counts.raw()),
                                                              x);
  counts.bump_version();
}

}  // namespace halftape::cpu
