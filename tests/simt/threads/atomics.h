// Atomic operations under CUDA's names. They are atomic among OS threads, on which the blocks of a
// grid may run, by loops of compare-and-exchange. Included by simt.h.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <atomic>
#include <bit>
#include <cstdint>
#include <type_traits>

namespace simt {

template <class T, class Change>
T change_atomically(T* address, Change change) {
  static_assert(sizeof(T) == 2 || sizeof(T) == 4 || sizeof(T) == 8);
  using Bits = std::conditional_t<sizeof(T) == 2, std::uint16_t,
                                  std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>>;
  std::atomic_ref<Bits> bits(*reinterpret_cast<Bits*>(address));
  Bits old = bits.load();
  while (!bits.compare_exchange_weak(old, std::bit_cast<Bits>(change(std::bit_cast<T>(old))))) {
  }
  return std::bit_cast<T>(old);
}

template <class T>
inline constexpr bool kAtomicAdd =
    std::is_same_v<T, int> || std::is_same_v<T, unsigned> ||
    std::is_same_v<T, unsigned long long> || std::is_same_v<T, float> ||
    std::is_same_v<T, double> || std::is_same_v<T, __half> || std::is_same_v<T, __half2> ||
    std::is_same_v<T, __nv_bfloat16> || std::is_same_v<T, __nv_bfloat162>;
template <class T>
inline constexpr bool kAtomicInteger =
    std::is_same_v<T, int> || std::is_same_v<T, unsigned> ||
    std::is_same_v<T, unsigned long long> || std::is_same_v<T, long long>;

}  // namespace simt

// Only the overloads that nvcc has: there is no atomicMax on float, for example.
template <class T>
T atomicAdd(T* address, std::type_identity_t<T> value) {
  static_assert(simt::kAtomicAdd<T>, "CUDA has no atomicAdd for this type");
  return simt::change_atomically(address, [=](T old) {
    if constexpr (std::is_same_v<T, int>)
      return int(unsigned(old) + unsigned(value));  // wraps around
    else
      return T(old + value);
  });
}
template <class T>
T atomicSub(T* address, std::type_identity_t<T> value) {
  static_assert(std::is_same_v<T, int> || std::is_same_v<T, unsigned>);
  return simt::change_atomically(address,
                                 [=](T old) { return T(unsigned(old) - unsigned(value)); });
}
template <class T>
T atomicMax(T* address, std::type_identity_t<T> value) {
  static_assert(simt::kAtomicInteger<T>, "CUDA has atomicMax for integers only");
  return simt::change_atomically(address, [=](T old) { return old < value ? value : old; });
}
template <class T>
T atomicMin(T* address, std::type_identity_t<T> value) {
  static_assert(simt::kAtomicInteger<T>, "CUDA has atomicMin for integers only");
  return simt::change_atomically(address, [=](T old) { return value < old ? value : old; });
}
template <class T>
T atomicExch(T* address, std::type_identity_t<T> value) {
  return simt::change_atomically(address, [=](T) { return value; });
}
template <class T>
T atomicCAS(T* address, std::type_identity_t<T> expected, std::type_identity_t<T> value) {
  static_assert(std::is_integral_v<T>, "CUDA has atomicCAS for integers only");
  return simt::change_atomically(address, [=](T old) { return old == expected ? value : old; });
}
template <class T>
T atomicOr(T* address, std::type_identity_t<T> value) {
  static_assert(simt::kAtomicInteger<T>, "CUDA has atomicOr for integers only");
  return simt::change_atomically(address, [=](T old) { return T(old | value); });
}
template <class T>
T atomicAnd(T* address, std::type_identity_t<T> value) {
  static_assert(simt::kAtomicInteger<T>, "CUDA has atomicAnd for integers only");
  return simt::change_atomically(address, [=](T old) { return T(old & value); });
}
template <class T>
T atomicXor(T* address, std::type_identity_t<T> value) {
  static_assert(simt::kAtomicInteger<T>, "CUDA has atomicXor for integers only");
  return simt::change_atomically(address, [=](T old) { return T(old ^ value); });
}
/// ((old >= bound) ? 0 : old + 1): the count of a last block.
inline unsigned atomicInc(unsigned* address, unsigned bound) {
  return simt::change_atomically(address, [=](unsigned old) { return old >= bound ? 0 : old + 1; });
}
