// Elements of any dtype, converted to the type to compute in, and rounded once when stored.
#pragma once
#include <bit>

#include "halftape/core/dtype.h"
#include "halftape/cuda/runtime/gpu.h"

namespace halftape::cuda {

inline constexpr int kPack = 8;  // elements that a thread moves at once: 16 bytes of halves

// The conversions of core/half.h by the hardware. A NaN may get other bits.
__device__ inline float to_float(Half h) { return __half2float(__ushort_as_half(h.bits)); }
__device__ inline float to_float(BFloat16 b) {
  return __uint_as_float(static_cast<unsigned>(b.bits) << 16);
}
__device__ inline Half to_half(float x) {
  return Half::from_bits(__half_as_ushort(__float2half_rn(x)));
}
__device__ inline BFloat16 to_bfloat16(float x) {
  return BFloat16::from_bits(__bfloat16_as_ushort(__float2bfloat16_rn(x)));
}

/// convert(), by the hardware where it has the conversion.
template <class To, class From>
__device__ inline To as(From x) {
  if constexpr (std::is_same_v<To, From>)
    return x;
  else if constexpr (requires { to_float(x); })
    return as<To>(to_float(x));
  else if constexpr (std::is_same_v<To, Half> && std::is_same_v<From, float>)
    return to_half(x);
  else if constexpr (std::is_same_v<To, BFloat16> && std::is_same_v<From, float>)
    return to_bfloat16(x);
  else
    return convert<To>(x);
}

template <class S>
__device__ inline S load(const void* at, Dtype d) {
  S x{};
  visit(d, [&](auto t) {
    using T = typename decltype(t)::type;
    x = as<S>(*static_cast<const T*>(at));
  });
  return x;
}
template <class S>
__device__ inline void store(void* at, Dtype d, S x) {
  visit(d, [&](auto t) {
    using T = typename decltype(t)::type;
    *static_cast<T*>(at) = as<T>(x);
  });
}

/// load() and store() as functions of their own, for code that has many of them.
template <class S>
__device__ __noinline__ S load_noinline(const void* at, Dtype d) {
  return load<S>(at, d);
}
template <class S>
__device__ __noinline__ void store_noinline(void* at, Dtype d, S x) {
  store(at, d, x);
}

/// Calls f(Type<T>{}) with an unsigned type of 1, 2, 4 or 8 bytes, or uint4 for 16.
template <class F>
void with_bytes(size_t size, F&& f) {
  if (size == 1)
    f(Type<uint8_t>{});
  else if (size == 2)
    f(Type<uint16_t>{});
  else if (size == 4)
    f(Type<uint32_t>{});
  else if (size == 8)
    f(Type<uint64_t>{});
  else
    f(Type<uint4>{});
}

/// kPack neighbouring elements, which the hardware moves 16 bytes at a time.
template <class T>
struct alignas(sizeof(T) * kPack < 16 ? sizeof(T) * kPack : 16) Pack {
  T v[kPack];
};

/// True if 16 bytes can be moved at once from or to here.
HALFTAPE_HD bool is_aligned(const void* at) { return reinterpret_cast<uintptr_t>(at) % 16 == 0; }

/// True for the three dtypes of training, which are moved in packs.
constexpr bool packs(Dtype d) { return is_16bit(d) || d == kFloat32; }

/// Calls f(Type<T>{}) for one of the three dtypes that are moved in packs.
template <class F>
__device__ inline void with_packed_type(Dtype d, F&& f) {
  if (d == Dtype::Float16)
    f(Type<Half>{});
  else if (d == Dtype::BFloat16)
    f(Type<BFloat16>{});
  else
    f(Type<float>{});
}
/// load() and store() for these three dtypes.
__device__ inline float load_packed(const void* at, Dtype d) {
  float x = 0;
  with_packed_type(
      d, [&](auto t) { x = as<float>(*static_cast<const typename decltype(t)::type*>(at)); });
  return x;
}
__device__ inline void store_packed(void* at, Dtype d, float x) {
  with_packed_type(d, [&](auto t) {
    using T = typename decltype(t)::type;
    *static_cast<T*>(at) = as<T>(x);
  });
}
/// A pack as it lies in memory. A kernel of several arrays fetches all packs before it converts
/// any, so that the loads overlap.
struct RawPack {
  uint4 v[2];  // 16-bit dtypes use the first
};
__device__ inline RawPack fetch_pack(const void* base, Dtype d, int64_t pack) {
  RawPack raw{};
  with_packed_type(d, [&](auto t) {
    using T = typename decltype(t)::type;
    const Pack<T> p = static_cast<const Pack<T>*>(base)[pack];
    if constexpr (sizeof(p) == sizeof(raw))
      raw = std::bit_cast<RawPack>(p);
    else
      raw.v[0] = std::bit_cast<uint4>(p);
  });
  return raw;
}
__device__ inline void unpack(float (&x)[kPack], const RawPack& raw, Dtype d) {
  with_packed_type(d, [&](auto t) {
    using T = typename decltype(t)::type;
    Pack<T> p;
    if constexpr (sizeof(p) == sizeof(raw))
      p = std::bit_cast<Pack<T>>(raw);
    else
      p = std::bit_cast<Pack<T>>(raw.v[0]);
    for (int i = 0; i < kPack; ++i) x[i] = as<float>(p.v[i]);
  });
}
__device__ inline void load_pack(float (&x)[kPack], const void* base, Dtype d, int64_t pack) {
  unpack(x, fetch_pack(base, d, pack), d);
}
__device__ inline void store_pack(const float (&x)[kPack], void* base, Dtype d, int64_t pack) {
  with_packed_type(d, [&](auto t) {
    using T = typename decltype(t)::type;
    Pack<T> p;
    for (int i = 0; i < kPack; ++i) p.v[i] = as<T>(x[i]);
    static_cast<Pack<T>*>(base)[pack] = p;
  });
}

}  // namespace halftape::cuda
