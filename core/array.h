// Bytes with a layout. Copying an Array copies the handle, never the bytes. No operators, no
// history.
#pragma once
#include "halftape/core/buffer.h"
#include "halftape/core/dtype.h"
#include "halftape/core/scalar.h"
#include "halftape/core/shape.h"

namespace halftape {

/// Bytes of contiguous elements. Throws when they do not fit 63 bits, when a size is negative, and
/// when the dtype does not exist.
size_t byte_count(const Shape& shape, Dtype dtype);

/// A strided view of a Buffer: what kernels work on.
class Array {
 public:
  Array() = default;
  /// Uninitialised, contiguous. Throws as byte_count(), and OutOfMemoryError.
  Array(const Shape& shape, Dtype dtype, Device device);
  Array(BufferPtr buffer, const Shape& shape, const Strides& strides, int64_t offset, Dtype dtype);

  bool defined() const { return static_cast<bool>(buffer_); }
  const Shape& shape() const { return shape_; }
  const Strides& strides() const { return strides_; }
  int64_t offset() const { return offset_; }  // in elements
  int dim() const { return shape_.size(); }
  int64_t size(int i) const { return shape_[i]; }
  int64_t numel() const { return numel_; }
  Dtype dtype() const { return dtype_; }
  Device device() const { return buffer_->device(); }
  bool contiguous() const { return is_contiguous(shape_, strides_); }

  /// Address of the first element; only meaningful to code that runs on device().
  void* raw() const {
    return static_cast<char*>(buffer_->bytes()) +
           offset_ * static_cast<int64_t>(element_size(dtype_));
  }
  template <class T>
  requires is_element<T> T* data() const {
    HALFTAPE_CHECK(dtype_of<T> == dtype_, "data: elements of ", dtype_of<T>,
                   " were asked of an array of ", dtype_);
    return static_cast<T*>(raw());
  }

  const BufferPtr& buffer() const { return buffer_; }
  uint64_t version() const { return buffer_->version(); }
  void bump_version() const { buffer_->bump_version(); }
  /// Nobody else holds the bytes: they may be written without anybody noticing.
  bool unique(int64_t own_handles = 1) const { return buffer_->unique(own_handles); }

  // Views: same bytes, another layout.
  Array as_strided(const Shape& shape, const Strides& strides, int64_t offset) const;
  Array expand(const Shape& shape) const;
  Array transpose(int a, int b) const;
  Array permute(const Dims& order) const;
  Array slice(int dim, int64_t start, int64_t end, int64_t step = 1) const;
  Array select(int dim, int64_t index) const;
  Array unsqueeze(int dim) const;
  Array squeeze(int dim) const;
  /// The same elements in another shape, without moving bytes; false when strides do not allow it.
  bool try_view(const Shape& shape, Array& out) const;
  /// view() where the strides allow it, otherwise a contiguous copy seen in that shape.
  Array reshape(const Shape& shape) const;

  /// Itself when contiguous, otherwise a contiguous copy.
  Array to_contiguous() const;
  Array clone() const;
  /// Itself when it has this dtype, otherwise a converted copy (rounded once).
  Array to(Dtype dtype) const;
  /// Itself when it is there. With `non_blocking`, a copy from pinned memory, or to the host, where
  /// the memory is then pinned, may still be under way.
  Array to(Device device, bool non_blocking = false) const;
  /// A copy, on the host, in memory that the GPU reads and writes by itself.
  Array pinned(Device gpu) const;

 private:
  BufferPtr buffer_;
  Shape shape_;
  Strides strides_;
  int64_t offset_ = 0;
  int64_t numel_ = 0;
  Dtype dtype_ = Dtype::Float32;
};

/// The addresses of an array's first byte, and behind its last one.
struct Extent {
  uintptr_t begin, end;
  bool meets(const Extent& o) const { return begin < o.end && o.begin < end; }
};
/// Of an array that has elements, and no stride below 0, as all tensors'.
Extent extent(const Array& x);

Array empty_like(const Array& a);
Array empty_like(const Array& a, Dtype dtype);
Array full(const Shape& shape, Scalar value, Dtype dtype, Device device);
/// One element read back to the host. Waits for the device.
double read_double(const Array& one);
int64_t read_int64(const Array& one);

}  // namespace halftape
