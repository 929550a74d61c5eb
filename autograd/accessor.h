// The bytes of a tensor as Tensor gives them out: elements by index, and the memory as a whole.
#pragma once
#include <span>
#include <utility>

#include "halftape/core/array.h"

namespace halftape {

/// What Tensor::accessor() gives: the last dimension's elements, or accessors of one dimension
/// less.
template <class T, size_t N>
class TensorAccessor {
 public:
  TensorAccessor(T* data, const int64_t* sizes, const int64_t* strides)
      : data_(data), sizes_(sizes), strides_(strides) {}
  T* data() const { return data_; }
  int64_t size(int64_t dim) const { return sizes_[dim]; }
  int64_t stride(int64_t dim) const { return strides_[dim]; }
  Shape sizes() const { return Shape(std::span(sizes_, N)); }
  Strides strides() const { return Strides(std::span(strides_, N)); }
  decltype(auto) operator[](int64_t i) const {
    T* const at = data_ + i * strides_[0];
    if constexpr (N == 1)
      return static_cast<T&>(*at);
    else
      return TensorAccessor<T, N - 1>(at, sizes_ + 1, strides_ + 1);
  }

 private:
  T* data_;
  const int64_t *sizes_, *strides_;
};

/// The memory behind a tensor, in LibTorch's words.
class Storage {
 public:
  explicit Storage(BufferPtr buffer) : buffer_(std::move(buffer)) {}
  struct DataPtr {
    void* bytes;
    void* context;
    void* get() const { return bytes; }
    void* get_context() const { return context; }  // what a deleter of the caller's was given
  };
  DataPtr data_ptr() const {
    buffer_->expose();
    return {buffer_->bytes(), buffer_->context()};
  }
  void* data() const { return data_ptr().get(); }
  size_t nbytes() const { return buffer_->size(); }
  bool is_alias_of(const Storage& other) const { return buffer_ == other.buffer_; }

 private:
  BufferPtr buffer_;
};

}  // namespace halftape
