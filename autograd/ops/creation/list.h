// What tensor() accepts: numbers, vectors, and braces around them to any depth.
#pragma once
#include <initializer_list>
#include <ostream>
#include <vector>

#include "halftape/core/array.h"

namespace halftape::detail {

template <class T>
inline constexpr bool is_number = std::is_arithmetic_v<T> || is_element<T>;

/// The dtype in which numbers of this C++ type are held.
template <class T>
constexpr Dtype number_dtype() {
  if constexpr (is_element<T>)
    return dtype_of<T>;
  else
    return std::is_floating_point_v<T> ? kFloat64 : kInt64;
}

/// A number, a list of lists, or a block of numbers copied from a vector. LibTorch's name.
class TensorDataContainer {
 public:
  /// {}: a list of nothing, in the default dtype.
  TensorDataContainer();
  TensorDataContainer(std::initializer_list<TensorDataContainer> list)  // NOLINT: braces
      : TensorDataContainer(std::vector<TensorDataContainer>(list)) {}
  TensorDataContainer(Scalar value) : TensorDataContainer(value, value.kind()) {}  // NOLINT
  template <class T>
  requires is_number<T> TensorDataContainer(T value)  // NOLINT: a number is one
      : TensorDataContainer(scalar_of(value), number_dtype<T>()) {}
  TensorDataContainer(const std::vector<bool>& values);  // NOLINT
  /// std::vector, std::array, std::span: anything contiguous; vectors of vectors are lists.
  template <class R>
  requires requires(const R& r) {
    *r.data();
    r.size();
  }
  TensorDataContainer(const R& values) {  // NOLINT: a vector is one
    using T = std::remove_cvref_t<decltype(*values.data())>;
    if constexpr (is_element<T>)
      assign(values.data(), values.size(), dtype_of<T>);
    else if constexpr (std::is_integral_v<T>) {
      std::vector<int64_t> same(values.size());
      for (size_t i = 0; i < same.size(); ++i) same[i] = as_int64(scalar_of(values.data()[i]));
      *this = same;
    } else
      assign(std::vector<TensorDataContainer>(values.data(), values.data() + values.size()));
  }

  bool is_scalar() const { return kind_ == Kind::Number; }
  bool is_init_list() const { return kind_ == Kind::List; }
  bool is_tensor() const { return kind_ == Kind::Block; }
  /// The number; throws for a list.
  Scalar scalar() const;
  const std::vector<TensorDataContainer>& init_list() const;
  const Array& tensor() const;
  const Shape& sizes() const { return sizes_; }
  /// Of the elements as they were given: int32 for an int, float64 for a double.
  Dtype scalar_type() const { return dtype_; }

  /// The elements in row-major order, converted once. Throws for numbers of a list that do not fit
  /// into the dtype; a block is converted as a cast does.
  Array flatten(Dtype dtype) const;

 private:
  enum class Kind : uint8_t { Number, List, Block };

  template <class T>
  static Scalar scalar_of(T value) {
    if constexpr (std::is_arithmetic_v<T>)
      return value;
    else
      return static_cast<float>(value);
  }
  static int64_t as_int64(Scalar value);
  TensorDataContainer(Scalar value, Dtype dtype)
      : kind_(Kind::Number), dtype_(dtype), scalar_(value) {}
  explicit TensorDataContainer(std::vector<TensorDataContainer> list) { assign(std::move(list)); }
  void assign(std::vector<TensorDataContainer> list);
  void assign(const void* values, size_t count, Dtype dtype);
  template <class T>
  void collect(std::vector<T>& out, Dtype dtype) const;

  Kind kind_ = Kind::List;
  Dtype dtype_;
  Shape sizes_;
  Scalar scalar_;
  std::vector<TensorDataContainer> list_;
  Array block_;
};

/// "{{1, 2}, {3, 4}}".
std::ostream& operator<<(std::ostream&, const TensorDataContainer&);

}  // namespace halftape::detail
