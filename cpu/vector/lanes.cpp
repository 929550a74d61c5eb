// Elements of every dtype into lanes and back.
#include "halftape/cpu/vector/convert.h"
#include "halftape/cpu/vector/loop.h"

namespace halftape::cpu {
namespace {

template <class T, class S>
void load(const void* from, int64_t stride, int64_t n, S* lanes) {
  const T* x = static_cast<const T*>(from);
  if constexpr (std::is_same_v<S, float>)  // most chunks that are copied
    if (n == kLanes && stride == 1) return convert_all(x, kLanes, lanes);
  if (n % kLanes != 0) std::fill_n(lanes + n / kLanes * kLanes, kLanes, S(1));
  if (stride == 1)
    convert_all(x, n, lanes);
  else if (stride == 0)
    std::fill_n(lanes, n, convert<S>(x[0]));
  else
    for (int64_t k = 0; k < n; ++k) lanes[k] = convert<S>(x[k * stride]);
}
template <class T, class S>
void store(const S* lanes, int64_t n, void* to, int64_t stride) {
  T* y = static_cast<T*>(to);
  if constexpr (std::is_same_v<S, float>)
    if (n == kLanes && stride == 1) return convert_all(lanes, kLanes, y);
  if (stride == 1)
    convert_all(lanes, n, y);
  else
    for (int64_t k = 0; k < n; ++k) y[k * stride] = convert<T>(lanes[k]);
}

}  // namespace

#define HALFTAPE_ROW(D, T, ...) &cpu::load<T, S>,
template <class S>
constexpr std::array<Load<S>, std::size(kDtypeTraits)> LaneCopies<S>::load = {
    HALFTAPE_DTYPES(HALFTAPE_ROW)};
#undef HALFTAPE_ROW
#define HALFTAPE_ROW(D, T, ...) &cpu::store<T, S>,
template <class S>
constexpr std::array<Store<S>, std::size(kDtypeTraits)> LaneCopies<S>::store = {
    HALFTAPE_DTYPES(HALFTAPE_ROW)};
#undef HALFTAPE_ROW

template struct LaneCopies<float>;
template struct LaneCopies<double>;
template struct LaneCopies<int64_t>;

}  // namespace halftape::cpu
