// A number for each of D dimensions, given as D numbers or as one for all. LibTorch's name.
#pragma once
#include <algorithm>
#include <array>
#include <optional>
#include <ostream>

#include "halftape/core/shape.h"

namespace halftape {

/// D numbers, one for each dimension; made of one number, D times that.
template <size_t D, class T = int64_t>
class ExpandingArray {
 public:
  ExpandingArray(std::initializer_list<T> list)  // NOLINT: as LibTorch, here and below
      : ExpandingArray(std::span(list.begin(), list.size())) {}
  ExpandingArray(const std::vector<T>& values) : ExpandingArray(std::span(values)) {}  // NOLINT
  ExpandingArray(std::span<const T> values) {                                          // NOLINT
    HALFTAPE_CHECK(values.size() == D, "expected ", D, " values, one for each dimension, or one ",
                   "for all; got ", values.size());
    std::copy(values.begin(), values.end(), values_.begin());
  }
  ExpandingArray(const Dims& values) requires std::is_same_v<T, int64_t>  // NOLINT
      : ExpandingArray(std::span<const T>(values.begin(), values.end())) {}
  ExpandingArray(T all) { values_.fill(all); }                         // NOLINT
  ExpandingArray(const std::array<T, D>& values) : values_(values) {}  // NOLINT

  std::array<T, D>& operator*() { return values_; }
  const std::array<T, D>& operator*() const { return values_; }
  std::array<T, D>* operator->() { return &values_; }
  const std::array<T, D>* operator->() const { return &values_; }
  size_t size() const noexcept { return D; }
  operator Dims() const requires std::is_same_v<T, int64_t> {  // NOLINT
    return Dims(std::span<const T>(values_));
  }

 protected:
  std::array<T, D> values_;
};

/// The same with elements that may be std::nullopt, printed as None.
template <size_t D, class T = int64_t>
class ExpandingArrayWithOptionalElem : public ExpandingArray<D, std::optional<T>> {
  using Base = ExpandingArray<D, std::optional<T>>;

 public:
  using Base::Base;
  ExpandingArrayWithOptionalElem(std::initializer_list<T> list)  // NOLINT
      : ExpandingArrayWithOptionalElem(std::vector<T>(list)) {}
  ExpandingArrayWithOptionalElem(const std::vector<T>& values)  // NOLINT
      : Base(std::vector<std::optional<T>>(values.begin(), values.end())) {}
  ExpandingArrayWithOptionalElem(T all) : Base(std::optional<T>(all)) {}  // NOLINT
};

/// "[2, 3]"; the number alone for one dimension.
template <size_t D, class T>
std::ostream& operator<<(std::ostream& out, const ExpandingArray<D, T>& array) {
  const char* before = D == 1 ? "" : "[";
  for (const T& v : *array) {
    out << before;
    if constexpr (requires { v.has_value(); }) {
      if (v)
        out << *v;
      else
        out << "None";
    } else {
      out << v;
    }
    before = ", ";
  }
  return out << (D == 1 ? "" : "]");
}

}  // namespace halftape
