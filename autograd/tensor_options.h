// The options of factories beside the shape, as LibTorch's TensorOptions.
#pragma once
#include <optional>
#include <ostream>

#include "halftape/core/device.h"
#include "halftape/core/dtype.h"

namespace halftape {

/// The dtype of factories and of integer-to-float conversions: float32 unless set. Process-wide.
Dtype get_default_dtype();
void set_default_dtype(Dtype);
/// The device of factories: the CPU unless set (torch.set_default_device). Process-wide. Throws
/// when the device is not available.
Device get_default_device();
void set_default_device(Device);

/// Strided is the only layout there is; Sparse exists for the error of asking for it.
enum class Layout : uint8_t { Strided, Sparse };
inline constexpr Layout kStrided = Layout::Strided, kSparse = Layout::Sparse;
std::ostream& operator<<(std::ostream&, Layout);

/// The order of elements in memory. New tensors are row-major: Contiguous, and Preserve of a
/// contiguous tensor. x.contiguous() copies into the channels-last forms; asking for a new tensor
/// of them throws.
enum class MemoryFormat : uint8_t { Contiguous, Preserve, ChannelsLast, ChannelsLast3d };
std::ostream& operator<<(std::ostream&, MemoryFormat);

/// dtype (default: get_default_dtype()), device (default: get_default_device()), requires_grad
/// (default: false). A dtype or a device converts to options: zeros({2, 3}, kFloat16). Asking for
/// what this library does not have (sparse layouts, pinned memory, channels-last) throws.
class TensorOptions {
 public:
  TensorOptions() = default;
  TensorOptions(Dtype d) : dtype_(d) {}                       // NOLINT: as LibTorch
  TensorOptions(Device d) : device_(d) {}                     // NOLINT
  TensorOptions(DeviceType d) : device_(Device(d)) {}         // NOLINT
  TensorOptions(Layout l) { *this = layout(l); }              // NOLINT
  explicit TensorOptions(std::string_view d) : device_(d) {}  // "cpu", "cuda:1"
  explicit TensorOptions(MemoryFormat f) { *this = memory_format(f); }

  // Each setter returns a copy with one field changed; an empty optional unsets it.
  TensorOptions dtype(std::optional<Dtype> d) const {
    return with([&](auto& o) { o.dtype_ = d; });
  }
  TensorOptions device(std::optional<Device> d) const {
    return with([&](auto& o) { o.device_ = d; });
  }
  TensorOptions device(DeviceType type, DeviceIndex index = 0) const {
    return device(Device(type, index));
  }
  TensorOptions device_index(DeviceIndex index) const { return device(Device(kCUDA, index)); }
  TensorOptions requires_grad(std::optional<bool> on) const {
    return with([&](auto& o) { o.requires_grad_ = on; });
  }
  TensorOptions layout(std::optional<Layout> l) const;
  TensorOptions pinned_memory(std::optional<bool> on) const;
  TensorOptions memory_format(std::optional<MemoryFormat> format) const;

  Dtype dtype() const { return dtype_or(get_default_dtype()); }
  Device device() const { return device_or(get_default_device()); }
  DeviceIndex device_index() const { return device().index(); }
  bool requires_grad() const { return requires_grad_.value_or(false); }
  Layout layout() const { return Layout::Strided; }
  bool pinned_memory() const { return false; }
  bool is_sparse() const { return false; }

  Dtype dtype_or(Dtype fallback) const { return dtype_.value_or(fallback); }
  Device device_or(Device fallback) const { return device_.value_or(fallback); }
  bool has_dtype() const { return dtype_.has_value(); }
  bool has_device() const { return device_.has_value(); }
  bool has_requires_grad() const { return requires_grad_.has_value(); }
  bool has_layout() const { return layout_.has_value(); }
  bool has_pinned_memory() const { return pinned_.has_value(); }
  bool has_memory_format() const { return format_.has_value(); }
  std::optional<Dtype> dtype_opt() const { return dtype_; }
  std::optional<Device> device_opt() const { return device_; }
  std::optional<bool> requires_grad_opt() const { return requires_grad_; }
  std::optional<Layout> layout_opt() const { return layout_; }
  std::optional<bool> pinned_memory_opt() const { return pinned_; }
  std::optional<MemoryFormat> memory_format_opt() const { return format_; }

  /// The fields of `over`, and of these options where `over` leaves one open.
  TensorOptions merge_in(const TensorOptions& over) const;
  bool operator==(const TensorOptions&) const = default;

 private:
  TensorOptions with(auto change) const {
    TensorOptions o = *this;
    change(o);
    return o;
  }
  std::optional<Dtype> dtype_;
  std::optional<Device> device_;
  std::optional<bool> requires_grad_;
  std::optional<Layout> layout_;
  std::optional<bool> pinned_;
  std::optional<MemoryFormat> format_;
};

/// "TensorOptions(dtype=float32 (default), device=cpu (default), …)", as LibTorch's.
std::ostream& operator<<(std::ostream&, const TensorOptions&);

inline TensorOptions dtype(Dtype d) { return {d}; }
inline TensorOptions device(Device d) { return {d}; }
inline TensorOptions device_index(DeviceIndex index) { return TensorOptions().device_index(index); }
inline TensorOptions requires_grad(bool on = true) { return TensorOptions().requires_grad(on); }
inline TensorOptions layout(Layout l) { return {l}; }
inline TensorOptions memory_format(MemoryFormat f) { return TensorOptions(f); }

}  // namespace halftape
