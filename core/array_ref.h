// LibTorch's ArrayRef: how a function of its frontend takes a list.
#pragma once
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <type_traits>
#include <vector>

#include "halftape/core/check.h"
#include "halftape/core/shape.h"

namespace halftape {

/// A view of contiguous elements that somebody else owns.
template <class T>
class ArrayRef {
 public:
  using value_type = T;
  ArrayRef() = default;
  ArrayRef(const T& one) : data_(&one), size_(1) {}  // NOLINT
  ArrayRef(const T* data, size_t size) : data_(data), size_(size) {}
  ArrayRef(const T* begin, const T* end) : data_(begin), size_(static_cast<size_t>(end - begin)) {}
  ArrayRef(const std::vector<T>& v) : data_(v.data()), size_(v.size()) {}        // NOLINT
  ArrayRef(const std::initializer_list<T>& v) : ArrayRef(v.begin(), v.end()) {}  // NOLINT
  const T* data() const { return data_; }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  const T* begin() const { return data_; }
  const T* end() const { return data_ + size_; }
  const T& operator[](size_t i) const { return data_[i]; }
  const T& at(size_t i) const {
    HALFTAPE_CHECK(i < size_, "ArrayRef: element ", i, " of ", size_);
    return data_[i];
  }
  const T& front() const { return data_[0]; }
  const T& back() const { return data_[size_ - 1]; }
  std::vector<T> vec() const { return {begin(), end()}; }
  ArrayRef slice(size_t from, size_t count) const {
    HALFTAPE_CHECK(from <= size_ && count <= size_ - from, "ArrayRef: ", count, " elements from ",
                   from, " on, of ", size_);
    return {data_ + from, count};
  }
  /// The elements from number `from` on.
  ArrayRef slice(size_t from) const { return slice(from, from < size_ ? size_ - from : 0); }
  bool equals(ArrayRef other) const { return vec() == other.vec(); }
  friend bool operator==(ArrayRef a, ArrayRef b) { return a.equals(b); }
  operator Dims() const  // NOLINT: where LibTorch says IntArrayRef
      requires std::is_same_v<T, int64_t> {
    return Dims(std::span(data_, size_));
  }

 private:
  const T* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace halftape
