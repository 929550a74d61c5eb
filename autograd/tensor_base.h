// What can be asked of a tensor: its layout, its place in the graph, its values on the host. The
// operations follow in autograd/tensor.h.
#pragma once
#include <functional>
#include <ostream>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "halftape/autograd/tensor_options.h"
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

/// The memory behind a tensor, as LibTorch's Storage.
class Storage {
 public:
  explicit Storage(BufferPtr buffer) : buffer_(std::move(buffer)) {}
  /// A pointer to the bytes, as LibTorch's.
  struct DataPtr {
    void* bytes;
    void* context;  // as given to the caller's deleter
    void* get() const { return bytes; }
    void* get_context() const { return context; }  // as given to the caller's deleter
  };
  /// The bytes. A write through the pointer raises no version.
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

class GradSlot;
class GradTag;
class Node;
class Tensor;
/// Frees a node, and those that it alone holds, without recursion.
void dispose(Node*) noexcept;

/// Where a gradient flows: output number `output` of `node`. Empty where no gradient is wanted.
struct Edge {
  Ref<Node> node;
  uint32_t output = 0;
  explicit operator bool() const { return static_cast<bool>(node); }
};

namespace detail {
struct TensorImpl;
void dispose(TensorImpl*) noexcept;
}  // namespace detail

/// A shared handle to an array and its history, without operations. Everyone uses Tensor.
class TensorBase {
 public:
  TensorBase() = default;

  bool defined() const { return static_cast<bool>(impl_); }
  /// Makes this handle undefined.
  void reset() { impl_ = {}; }
  /// The numbers without history. Throws when this handle is undefined.
  inline const Array& array() const;

  // Layout
  const Shape& sizes() const { return array().shape(); }
  int64_t size(int64_t dim) const;
  const Strides& strides() const { return array().strides(); }
  int64_t stride(int64_t dim) const;
  int64_t storage_offset() const { return array().offset(); }  // in elements
  int64_t dim() const { return array().dim(); }
  int64_t ndimension() const { return dim(); }
  int64_t numel() const { return array().numel(); }
  Dtype dtype() const { return array().dtype(); }
  Dtype scalar_type() const { return dtype(); }
  size_t element_size() const { return halftape::element_size(dtype()); }
  size_t itemsize() const { return element_size(); }
  size_t nbytes() const { return halftape::byte_count(array().shape(), dtype()); }
  Device device() const { return array().device(); }
  bool is_cuda() const { return device().is_cuda(); }
  bool is_cpu() const { return device().is_cpu(); }
  /// The number of its GPU; −1 on the CPU.
  int64_t get_device() const { return is_cuda() ? device().index() : -1; }
  Layout layout() const { return Layout::Strided; }
  bool is_sparse() const { return false; }
  bool is_complex() const { return false; }
  bool is_signed() const { return dtype() != kBool && dtype() != kUInt8; }
  bool is_same_size(const TensorBase& other) const { return sizes() == other.sizes(); }
  bool is_floating_point() const { return halftape::is_floating_point(dtype()); }
  /// Whether the elements lie in row-major order, or in that of a format; none do whatever the
  /// strides.
  bool is_contiguous() const { return array().contiguous() || numel() == 0; }
  bool is_contiguous(MemoryFormat format) const;
  /// ChannelsLast (ChannelsLast3d) where the strides of four (five) dimensions are those of such a
  /// tensor or of a part of one, otherwise Contiguous.
  MemoryFormat suggest_memory_format() const;
  TensorOptions options() const { return TensorOptions(dtype()).device(device()); }

  // Autograd
  inline bool requires_grad() const;
  bool is_leaf() const;
  /// Made in InferenceMode, and so outside every graph for good.
  bool is_inference() const;
  /// Whether it shares another tensor's bytes as a view of it.
  bool is_view() const;
  /// The node that made this tensor; null for a leaf.
  const Ref<Node>& grad_fn() const;
  /// Where the gradient of this tensor goes: its node, or its accumulator if it is a leaf that
  /// requires grad.
  Edge gradient_edge() const;
  /// Which output of grad_fn() this is.
  int64_t output_nr() const;
  /// Keeps the gradient of a non-leaf in grad(), as if it were a leaf.
  void retain_grad() const;
  /// Whether retain_grad() was called.
  bool retains_grad() const;
  /// `hook` sees the gradient of this tensor as soon as it is complete, before it goes on; what it
  /// returns, if defined, takes its place. Returns a number for remove_hook().
  unsigned register_hook(auto hook) const;
  /// Takes back a hook by the number that its registration gave.
  void remove_hook(unsigned number) const;
  /// `hook` is called with this leaf after each addition to its grad(). Returns a number for
  /// remove_hook().
  unsigned register_post_accumulate_grad_hook(std::function<void(Tensor)> hook) const;
  /// Raised by every in-place write to the bytes.
  uint64_t version() const { return array().version(); }
  uint64_t _version() const { return version(); }
  bool is_same(const TensorBase& other) const { return impl_ == other.impl_; }

  // Values on the host
  /// The only element, converted. Waits for the device. Throws unless numel() == 1.
  /// Throws when T cannot hold the value; fractions are cut off where T is an integer.
  template <class T>
  T item() const {
    if constexpr (std::is_same_v<T, bool>)
      return is_nonzero();
    else if constexpr (std::is_integral_v<T>)
      return narrowed<T>(is_floating_point() ? integer_item() : read_int64(array()));
    else
      return item().to<T>();
  }
  /// As a Scalar, which remembers whether it is an integer and converts to double implicitly.
  Scalar item() const;
  /// The whole memory that this tensor is a view of.
  Storage storage() const { return Storage(array().buffer()); }
  /// True if the only element is not 0.
  bool is_nonzero() const;
  /// Address of the first element of a CPU tensor of this dtype, for reading.
  template <class T>
  requires is_element<T>
  const T* const_data_ptr() const { return host_array("const_data_ptr").template data<T>(); }
  /// The same for writing: counts as an in-place write, so that saved tensors notice.
  template <class T>
  requires is_element<T> T* data_ptr() const {
    const Array& a = host_array("data_ptr");
    a.bump_version();
    a.buffer()->expose();
    return a.template data<T>();
  }
  void* data_ptr() const;
  const void* const_data_ptr() const { return array().raw(); }
  /// Fast access to a CPU tensor of N dimensions, without bounds checks: a[i][j]. Counts as a write
  /// unless T is const. Valid while this tensor lives.
  template <class T, size_t N>
  TensorAccessor<T, N> accessor() const {
    HALFTAPE_CHECK(dim() == N, "accessor: expected ", N, " dimensions, got ", sizes());
    const Array& a = host_array("accessor");
    if constexpr (!std::is_const_v<T>) a.bump_version(), a.buffer()->expose();
    return {a.template data<std::remove_const_t<T>>(), sizes().begin(), strides().begin()};
  }
  template <class T>
  T* mutable_data_ptr() const {
    return data_ptr<T>();
  }
  /// All elements in row-major order, converted.
  template <class T = double>
  std::vector<T> to_vector() const;
  bool is_pinned() const { return defined() && array().buffer()->pinned(); }

  /// The object behind the handle; for the library.
  detail::TensorImpl* impl() const { return impl_.get(); }
  detail::TensorImpl* unsafeGetTensorImpl() const { return impl_.get(); }
  /// True when no other handle shares this tensor and no other array its bytes.
  bool unique() const;

 protected:
  explicit TensorBase(Ref<detail::TensorImpl> impl) : impl_(std::move(impl)) {}
  Ref<detail::TensorImpl> impl_;

 private:
  unsigned add_hook(std::function<Tensor(const Tensor&)> hook) const;
  const Array& host_array(const char* who) const;
  int64_t integer_item() const;  // of a floating-point tensor
  template <class T>
  static T narrowed(int64_t v) {
    HALFTAPE_CHECK(std::in_range<T>(v), "item: value ", v,
                   " cannot be converted to this integer type without overflow");
    return static_cast<T>(v);
  }
};

/// LibTorch's printing: rows of numbers, then "[ CPUFloatType{2,3} ]". Matrices wider than the line
/// are cut into blocks of columns.
std::ostream& operator<<(std::ostream&, const Tensor&);
std::ostream& print(std::ostream&, const Tensor&, int64_t line_width);
/// To std::cout.
void print(const Tensor&, int64_t line_width = 80);
/// "Float", as it stands in a printed tensor's type.
const char* type_name(Dtype);

}  // namespace halftape

#include "halftape/autograd/tensor.h"  // Tensor, and what is inline above
