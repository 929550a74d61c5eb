// What a number of a floating dtype is at the ends of that dtype's range.
#pragma once
#include <cstdint>
#include <limits>
#include <type_traits>

#include "halftape/core/bit_cast.h"
#include "halftape/core/dtype.h"

namespace halftape {

/// Large: infinite when doubled, as |x| ≥ 2^15 in float16. Subnormal: below the least normal
/// number, as |x| < 2^-14.
enum class NumberClass : uint8_t { Zero, Subnormal, Normal, Large, Infinite, NaN };
inline constexpr int kNumberClasses = 6;

/// The bits of numbers of type T at the borders of the classes, without the sign.
template <class T>
struct ClassBorders {
  using Word = std::conditional_t<sizeof(T) == 2, uint16_t,
                                  std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>>;
  static constexpr int kFraction = std::is_same_v<T, Half>       ? 10
                                   : std::is_same_v<T, BFloat16> ? 7
                                   : sizeof(T) == 4              ? 23
                                                                 : 52;
  static constexpr Word magnitude = std::numeric_limits<Word>::max() >> 1;
  static constexpr Word least_normal = Word{1} << kFraction;
  static constexpr Word infinite = magnitude >> kFraction << kFraction;
  static constexpr Word large = infinite - least_normal;
};

template <class T>
HALFTAPE_HD constexpr NumberClass number_class(T x) {
  using B = ClassBorders<T>;
  const auto bits = static_cast<typename B::Word>(bit_cast<typename B::Word>(x) & B::magnitude);
  return bits > B::infinite        ? NumberClass::NaN
         : bits == B::infinite     ? NumberClass::Infinite
         : bits >= B::large        ? NumberClass::Large
         : bits >= B::least_normal ? NumberClass::Normal
         : bits > 0                ? NumberClass::Subnormal
                                   : NumberClass::Zero;
}

}  // namespace halftape
