// Element types, their names, their promotion table, and the one switch from a run-time dtype to a
// C++ type.
#pragma once
#include <cstddef>
#include <cstdint>
#include <ostream>
#include <string_view>

#include "halftape/core/check.h"
#include "halftape/core/half.h"

namespace halftape {

enum class Dtype : uint8_t { Bool, UInt8, Int32, Int64, Float16, BFloat16, Float32, Float64 };

inline constexpr Dtype kBool = Dtype::Bool, kUInt8 = Dtype::UInt8, kByte = Dtype::UInt8,
                       kInt32 = Dtype::Int32, kInt = Dtype::Int32, kInt64 = Dtype::Int64,
                       kLong = Dtype::Int64, kFloat16 = Dtype::Float16, kHalf = Dtype::Float16,
                       kBFloat16 = Dtype::BFloat16, kFloat32 = Dtype::Float32,
                       kFloat = Dtype::Float32, kFloat64 = Dtype::Float64, kDouble = Dtype::Float64;

/// "float16", "int64", … as the AMP literature spells them.
std::string_view name(Dtype);
std::ostream& operator<<(std::ostream&, Dtype);

constexpr bool is_floating_point(Dtype d) { return d >= Dtype::Float16; }
constexpr bool is_16bit(Dtype d) { return d == Dtype::Float16 || d == Dtype::BFloat16; }

/// Bytes of one element.
constexpr size_t element_size(Dtype d) {
  constexpr size_t sizes[] = {1, 1, 4, 8, 2, 2, 4, 8};
  return sizes[static_cast<size_t>(d)];
}

/// Distance from 1 to the next larger value; 0 for integers. All tolerances are multiples of this.
constexpr double epsilon(Dtype d) {
  constexpr double eps[] = {0, 0, 0, 0, 0x1p-10, 0x1p-7, 0x1p-23, 0x1p-52};
  return eps[static_cast<size_t>(d)];
}

/// The dtype of an operation on two tensors of these dtypes (PyTorch's table: float16 with bfloat16
/// gives float32).
Dtype promote(Dtype a, Dtype b);

template <class T>
inline constexpr bool is_element = false;
template <class T>
inline constexpr Dtype dtype_of = Dtype::Bool;
#define HALFTAPE_DTYPE(T, D)                  \
  template <>                                 \
  inline constexpr bool is_element<T> = true; \
  template <>                                 \
  inline constexpr Dtype dtype_of<T> = Dtype::D;
HALFTAPE_DTYPE(bool, Bool)
HALFTAPE_DTYPE(uint8_t, UInt8)
HALFTAPE_DTYPE(int32_t, Int32)
HALFTAPE_DTYPE(int64_t, Int64)
HALFTAPE_DTYPE(Half, Float16)
HALFTAPE_DTYPE(BFloat16, BFloat16)
HALFTAPE_DTYPE(float, Float32)
HALFTAPE_DTYPE(double, Float64)
#undef HALFTAPE_DTYPE

template <class T>
struct Type {
  using type = T;
};

/// Calls f(Type<T>{}) with the C++ type of `d`. Usage: visit(d, [&](auto t) { using T = typename
/// decltype(t)::type; … }).
template <class F>
decltype(auto) visit(Dtype d, F&& f) {
  switch (d) {
    case Dtype::Bool:
      return f(Type<bool>{});
    case Dtype::UInt8:
      return f(Type<uint8_t>{});
    case Dtype::Int32:
      return f(Type<int32_t>{});
    case Dtype::Int64:
      return f(Type<int64_t>{});
    case Dtype::Float16:
      return f(Type<Half>{});
    case Dtype::BFloat16:
      return f(Type<BFloat16>{});
    case Dtype::Float32:
      return f(Type<float>{});
    case Dtype::Float64:
      break;
  }
  return f(Type<double>{});
}

/// One element converted: integers truncate towards zero, floats round once, bool is "not zero".
template <class To, class From>
constexpr To convert(From x) {
  if constexpr (std::is_same_v<To, From>) {
    return x;
  } else if constexpr (std::is_same_v<From, Half> || std::is_same_v<From, BFloat16>) {
    return convert<To>(static_cast<float>(x));
  } else if constexpr (std::is_same_v<To, bool>) {
    return x != From(0);
  } else if constexpr (std::is_same_v<To, Half> || std::is_same_v<To, BFloat16>) {
    // Through double, since integers beyond 2^24 would round twice through float. Where double
    // rounds too (beyond 2^53), the digits it cannot hold leave their mark in the last bit that it
    // can.
    if constexpr (std::is_same_v<From, int64_t>) {
      constexpr int64_t exact = int64_t{1} << 53, unit = int64_t{1} << 11;
      if (x > exact || x < -exact) x = (x & -unit) | ((x & (unit - 1)) ? unit : 0);
    }
    if constexpr (std::is_floating_point_v<From>)
      return To(x);
    else
      return To(static_cast<double>(x));
  } else if constexpr (std::is_integral_v<To> && std::is_floating_point_v<From>) {
    // Out-of-range values are undefined in C++; ours saturate, and NaN becomes 0.
    if (!(x == x)) return To(0);
    constexpr double low = static_cast<double>(std::numeric_limits<To>::min());
    constexpr double high = static_cast<double>(std::numeric_limits<To>::max());
    if (static_cast<double>(x) <= low) return std::numeric_limits<To>::min();
    if (static_cast<double>(x) >= high) return std::numeric_limits<To>::max();
    return static_cast<To>(x);
  } else {
    return static_cast<To>(x);
  }
}

}  // namespace halftape
