// Elements of every dtype into lanes and back.
#include "halftape/cpu/vector/convert.h"
#include "halftape/cpu/vector/loop.h"

namespace halftape::cpu {
namespace {

template <class T, class S>
void load(const void* from, int64_t stride, int64_t n, S* lanes) {
  const T* x = static_cast<const T*>(from);
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
  if (n == kLanes && stride == 1)
    convert_all(lanes, kLanes, y);
  else if (stride == 1)
    convert_all(lanes, n, y);
  else
    for (int64_t k = 0; k < n; ++k) y[k * stride] = convert<T>(lanes[k]);
}

}  // namespace

template <class S>
constexpr std::array<Load<S>, 8> LaneCopies<S>::load = {
    &cpu::load<bool, S>, &cpu::load<uint8_t, S>,  &cpu::load<int32_t, S>, &cpu::load<int64_t, S>,
    &cpu::load<Half, S>, &cpu::load<BFloat16, S>, &cpu::load<float, S>,   &cpu::load<double, S>};
template <class S>
constexpr std::array<Store<S>, 8> LaneCopies<S>::store = {
    &cpu::store<bool, S>,    &cpu::store<uint8_t, S>, &cpu::store<int32_t, S>,
    &cpu::store<int64_t, S>, &cpu::store<Half, S>,    &cpu::store<BFloat16, S>,
    &cpu::store<float, S>,   &cpu::store<double, S>};

template struct LaneCopies<float>;
template struct LaneCopies<double>;
template struct LaneCopies<int64_t>;

}  // namespace halftape::cpu
