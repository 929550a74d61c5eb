// A number without a dtype: it takes part in an operation without raising the tensor's precision.
#pragma once
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>

#include "halftape/core/dtype.h"

namespace halftape {

/// A boolean, integer or floating point number, remembered as such (LibTorch's Scalar).
class Scalar {
 public:
  Scalar() = default;
  template <class T>
  requires std::is_arithmetic_v<T> Scalar(T v)  // NOLINT: implicit on purpose, `x * 2`
      : float_(static_cast<double>(v)),
        int_(is_whole(v) ? static_cast<int64_t>(v) : 0),
        kind_(std::is_same_v<T, bool> ? kBool
              : is_whole(v)           ? kInt64
                                      : kFloat64) {}
  Dtype kind() const { return kind_; }  // kBool, kInt64 or kFloat64
  bool is_floating_point() const { return kind_ == kFloat64; }
  operator double() const { return float_; }  // NOLINT: implicit on purpose, `2 * x.item()`
  double to_double() const { return float_; }
  int64_t to_int64() const { return as_element<int64_t>(); }  // toLong() throws instead
  // LibTorch's spellings.
  double toDouble() const { return float_; }
  float toFloat() const { return to<float>(); }
  int64_t toLong() const { return to<int64_t>(); }
  int32_t toInt() const { return to<int32_t>(); }
  bool toBool() const { return to<bool>(); }
  bool isFloatingPoint() const { return is_floating_point(); }
  bool isIntegral(bool include_bool) const {
    return kind_ == kInt64 || (include_bool && isBoolean());
  }
  bool isBoolean() const { return kind_ == kBool; }
  Dtype type() const { return kind_; }
  /// Fractions are cut off, and floats rounded. Throws for a number that T cannot hold, as LibTorch
  /// does; infinities and NaN stay what they are in a T that has them.
  template <class T>
  T to() const {
    HALFTAPE_CHECK(holds<T>(), "Scalar: value ", float_,
                   " cannot be converted to this type without overflow");
    return as_element<T>();
  }
  /// As tensors hold it: what is beyond T becomes an infinity, or the integer of T nearest to it;
  /// an integer beyond an integer type wraps around.
  template <class T>
  T as_element() const {
    return is_floating_point() ? convert<T>(float_) : convert<T>(int_);
  }

 private:
  template <class T>
  bool holds() const {
    if constexpr (std::is_same_v<T, bool>) {
      return true;
    } else if constexpr (std::is_integral_v<T>) {
      if (!is_floating_point()) return std::in_range<T>(int_);
      const double cut = std::trunc(float_);
      return cut >= static_cast<double>(std::numeric_limits<T>::min()) &&
             cut < std::ldexp(1.0, std::numeric_limits<T>::digits);
    } else {
      return std::isfinite(convert<double>(as_element<T>())) || !std::isfinite(float_);
    }
  }
  /// An integer that int64 can hold; a larger one, of uint64, is a number of floating point.
  template <class T>
  static constexpr bool is_whole(T v) {
    if constexpr (!std::is_integral_v<T>)
      return false;
    else
      return std::is_signed_v<T> || static_cast<uint64_t>(v) <= uint64_t{INT64_MAX};
  }
  double float_ = 0;
  int64_t int_ = 0;
  Dtype kind_ = kInt64;
};

}  // namespace halftape
