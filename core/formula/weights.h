// What a 16-bit parameter keeps besides its 16 bits, so that updates smaller than half a step of
// its dtype are not rounded away. Near 1, bfloat16 has steps of 2^-7: it loses updates below 2^-8.
#pragma once
#include <cstdint>

#include "halftape/core/bit_cast.h"
#include "halftape/core/dtype.h"
#include "halftape/core/formula/ops.h"

namespace halftape {

/// All four start from `join_weight()`, update in float, and take the result apart with
/// `split_weight()`.
enum class Weights : uint8_t {
  Plain,       // nothing: rounded to nearest
  Master,      // a float32 copy; the parameter is its rounding. Micikevicius et al. 2017,
               // arXiv:1710.03740, section 3.1
  Stochastic,  // nothing but a counter: rounded up or down at random, right on average. Gupta et
               // al. 2015, arXiv:1502.02551
  Kahan,       // what rounding took away, in the parameter's own dtype. Zamirai et al. 2020,
               // arXiv:2010.06192
};

/// One of the two neighbours of x in T, the nearer the likelier, so that the mean is x. `u` is
/// uniform in [0, 1), of 24 bits. From T's largest number on, and for NaN: x as it is.
template <class T>
HALFTAPE_HD float round_stochastically(float x, float u) {
  constexpr int dropped = std::is_same_v<T, Half> ? 13 : 16;  // bits of a float that T has not
  constexpr auto largest = static_cast<float>(traits(dtype_of<T>).largest);
  const uint32_t bits = bit_cast<uint32_t>(x);
  const float size = bit_cast<float>(bits & 0x7fffffffu);
  if (!(size < largest)) return x;
  if (std::is_same_v<T, Half> && size < 0x1p-14f) {  // Half is subnormal here, float is not
    const float steps = size * 0x1p24f;
    const auto down = static_cast<float>(static_cast<int>(steps));
    const float rounded = (steps - down > u ? down + 1 : down) * 0x1p-24f;
    return bit_cast<uint32_t>(x) >> 31 ? -rounded : rounded;
  }
  // A carry out of the fraction runs into the exponent: the next power of two.
  const auto add = static_cast<uint32_t>(u * static_cast<float>(1u << dropped));
  return bit_cast<float>((bits + add) & ~((1u << dropped) - 1));
}

/// The weight that an update starts from. `extra`: the master, u, or what was taken away.
template <Weights W, class S>
HALFTAPE_HD S join_weight(S p, S extra) {
  if constexpr (W == Weights::Master) return extra;
  if constexpr (W == Weights::Kahan) return p + extra;
  return p;
}

/// The updated weight w as parameter and extra. T: the parameter's dtype.
template <Weights W, class T, class S>
HALFTAPE_HD void split_weight(S w, S& p, S& extra) {
  p = w;
  if constexpr (W == Weights::Master) extra = w;
  if constexpr (W == Weights::Stochastic) p = round_stochastically<T>(w, extra);
  if constexpr (W == Weights::Kahan) {
    p = static_cast<float>(T(w));
    extra = p - p == 0 ? w - p : 0;  // an infinite parameter has no remainder
  }
}

}  // namespace halftape
