// Element types: one table of all dtypes, the dtype to compute in, promotion, and the one switch
// from a run-time dtype to a C++ type.
#pragma once
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <ostream>
#include <string_view>
#include <type_traits>

#include "halftape/core/check.h"
#include "halftape/core/half.h"
#include "halftape/core/host_device.h"

namespace halftape {

// One row per dtype: the enumerator, the C++ type of an element, its names as the AMP literature
// and as LibTorch's types spell it, epsilon and the largest number (0 for integers), and the dtype
// to compute in. An operation on two dtypes gives the later row of the two, see promote().
// clang-format off
#define HALFTAPE_DTYPES(row)                                                                        \
  row(Bool,     bool,     "bool",     "Bool",     0,       0,                       Bool)           \
  row(UInt8,    uint8_t,  "uint8",    "Byte",     0,       0,                       UInt8)          \
  row(Int8,     int8_t,   "int8",     "Char",     0,       0,                       Int8)           \
  row(Int16,    int16_t,  "int16",    "Short",    0,       0,                       Int16)          \
  row(Int32,    int32_t,  "int32",    "Int",      0,       0,                       Int32)          \
  row(Int64,    int64_t,  "int64",    "Long",     0,       0,                       Int64)          \
  row(Float16,  Half,     "float16",  "Half",     0x1p-10, 65504,                   Float32)        \
  row(BFloat16, BFloat16, "bfloat16", "BFloat16", 0x1p-7,  0x1.fep127,              Float32)        \
  row(Float32,  float,    "float32",  "Float",    0x1p-23, 0x1.fffffep127,          Float32)        \
  row(Float64,  double,   "float64",  "Double",   0x1p-52, 0x1.fffffffffffffp1023,  Float64)
// clang-format on

enum class Dtype : uint8_t {
#define HALFTAPE_ROW(D, ...) D,
  HALFTAPE_DTYPES(HALFTAPE_ROW)
#undef HALFTAPE_ROW
  // LibTorch's names of at::ScalarType.
  Byte = UInt8,
  Char = Int8,
  Short = Int16,
  Int = Int32,
  Long = Int64,
  Half = Float16,
  Float = Float32,
  Double = Float64,
};

#define HALFTAPE_ROW(D, ...) inline constexpr Dtype k##D = Dtype::D;
HALFTAPE_DTYPES(HALFTAPE_ROW)
#undef HALFTAPE_ROW
inline constexpr Dtype kByte = kUInt8, kChar = kInt8, kShort = kInt16, kInt = kInt32,
                       kLong = kInt64, kHalf = kFloat16, kFloat = kFloat32, kDouble = kFloat64;

/// The row of a dtype in HALFTAPE_DTYPES.
struct DtypeTraits {
  const char* name;         // "float16", "int64", …
  const char* type_name;    // "Half", "Long", …
  double epsilon, largest;  // distance from 1 to the next number; the largest finite one
  Dtype compute;            // in which ops compute
};
inline constexpr DtypeTraits kDtypeTraits[] = {
#define HALFTAPE_ROW(D, T, name, type_name, epsilon, largest, compute) \
  {name, type_name, epsilon, largest, Dtype::compute},
    HALFTAPE_DTYPES(HALFTAPE_ROW)
#undef HALFTAPE_ROW
};
/// Of a number that is no dtype, so that an error can name it.
inline constexpr DtypeTraits kNoDtype{"no dtype", "None", 0, 0, Dtype::Bool};
constexpr const DtypeTraits& traits(Dtype d) {
  return static_cast<size_t>(d) < std::size(kDtypeTraits) ? kDtypeTraits[static_cast<size_t>(d)]
                                                          : kNoDtype;
}

/// "float16", "int64", … as the AMP literature spells them.
constexpr std::string_view name(Dtype d) { return traits(d).name; }
inline std::ostream& operator<<(std::ostream& out, Dtype d) { return out << name(d); }

/// A C++ type as a value, for visit().
template <class T>
struct Type {
  using type = T;
};

/// Calls f(Type<T>{}) with the C++ type of `d`, on the host or on a device. Usage:
/// visit(d, [&](auto t) { using T = typename decltype(t)::type; … }).
#ifdef __CUDACC__
#pragma nv_exec_check_disable
#endif
template <class F>
HALFTAPE_HD constexpr decltype(auto) visit(Dtype d, F&& f) {
  switch (d) {
#define HALFTAPE_ROW(D, T, ...) \
  case Dtype::D:                \
    return f(Type<T>{});
    HALFTAPE_DTYPES(HALFTAPE_ROW)
#undef HALFTAPE_ROW
  }
  __builtin_unreachable();
}

/// Bytes of one element.
constexpr size_t element_size(Dtype d) {
  return visit(d, []<class T>(Type<T>) { return sizeof(T); });
}

/// Throws unless `d` is in the table: a number from elsewhere can be cast to a Dtype.
inline void check_dtype(Dtype d) {
  HALFTAPE_CHECK(static_cast<size_t>(d) < std::size(kDtypeTraits), "dtype ", static_cast<int>(d),
                 " does not exist; the last one is ", kFloat64, ", dtype ",
                 static_cast<int>(kFloat64));
}

/// Distance from 1 to the next larger value; 0 for integers. All tolerances are multiples of this.
constexpr double epsilon(Dtype d) { return traits(d).epsilon; }

/// A switch and no look at traits(), so that kernels can ask: the table is in the host's memory.
constexpr bool is_floating_point(Dtype d) {
  // NOLINTBEGIN(bugprone-branch-clone): a row for each dtype
  switch (d) {
#define HALFTAPE_ROW(D, T, name, type_name, epsilon, ...) \
  case Dtype::D:                                          \
    return (epsilon) != 0;
    HALFTAPE_DTYPES(HALFTAPE_ROW)
#undef HALFTAPE_ROW
  }
  // NOLINTEND(bugprone-branch-clone)
  return false;
}

/// Calls f(Type<S>{}) with the type in which operations compute on a floating dtype: double or
/// float.
template <class F>
void with_float_type(Dtype d, F&& f) {
  if (d == kFloat64)
    f(Type<double>{});
  else
    f(Type<float>{});
}
/// The same for any dtype: int64_t for integers and bool.
template <class F>
void with_compute_type(Dtype d, F&& f) {
  if (is_floating_point(d))
    with_float_type(d, f);
  else
    f(Type<int64_t>{});
}

/// The dtype in which operations compute on elements of `d`: float32 for the formats that only
/// store, otherwise `d` itself. Operations of several steps round to `d` once, at the end.
constexpr Dtype compute_dtype(Dtype d) { return traits(d).compute; }

/// True for formats that only store: operations load them as compute_dtype() and round the result.
constexpr bool is_narrow(Dtype d) { return compute_dtype(d) != d; }

/// True if updates of a parameter of this dtype get lost without a float32 copy, see Weights.
constexpr bool needs_master_copy(Dtype d) { return is_narrow(d); }

/// True for float16 and bfloat16, which matrix units multiply and kernels load eight at a time.
constexpr bool is_16bit(Dtype d) { return d == kFloat16 || d == kBFloat16; }

/// The dtype of a sum or product of elements: integers add up in int64.
constexpr Dtype sum_dtype(Dtype d) { return is_floating_point(d) ? d : kInt64; }

/// The dtype of an operation on two tensors of these dtypes, as in PyTorch: the later row of
/// HALFTAPE_DTYPES; where neither holds the other, the first that holds both: int16 for uint8 and
/// int8, float32 for two different narrow dtypes.
constexpr Dtype promote(Dtype a, Dtype b) {
  if (a != b && is_narrow(a) && is_narrow(b)) return kFloat32;
  const Dtype later = a < b ? b : a;
  return later == kInt8 && (a == kUInt8 || b == kUInt8) ? kInt16 : later;
}

/// Whether tensors hold this C++ type.
template <class T>
inline constexpr bool is_element = false;
/// The dtype of a C++ type that tensors hold; there is none of any other type.
template <class T>
requires is_element<T>
inline constexpr Dtype dtype_of{};
#define HALFTAPE_ROW(D, T, ...)               \
  template <>                                 \
  inline constexpr bool is_element<T> = true; \
  template <>                                 \
  inline constexpr Dtype dtype_of<T> = Dtype::D;
HALFTAPE_DTYPES(HALFTAPE_ROW)
#undef HALFTAPE_ROW
/// Whether tensors hold this C++ type and only store it, see is_narrow().
template <class T>
inline constexpr bool is_narrow_element = [] {
  if constexpr (is_element<T>) return is_narrow(dtype_of<T>);
  return false;
}();

/// One element converted: integers truncate towards zero, floats round once, bool is "not zero".
template <class To, class From>
constexpr To convert(From x) {
  if constexpr (std::is_same_v<To, From>) {
    return x;
  } else if constexpr (is_narrow_element<From>) {
    return convert<To>(static_cast<float>(x));
  } else if constexpr (std::is_same_v<To, bool>) {
    return x != From(0);
  } else if constexpr (is_narrow_element<To>) {
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
