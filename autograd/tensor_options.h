// What a factory needs to know beside the shape. Spelled as LibTorch's TensorOptions.
#pragma once
#include <optional>

#include "halftape/core/device.h"
#include "halftape/core/dtype.h"

namespace halftape {

/// dtype (default: get_default_dtype()), device (default: CPU), requires_grad (default: false).
/// A dtype or a device alone is one too: zeros({2, 3}, kFloat16).
class TensorOptions {
 public:
  TensorOptions() = default;
  TensorOptions(Dtype d) : dtype_(d) {}                // NOLINT: as LibTorch
  TensorOptions(Device d) : device_(d) {}              // NOLINT
  TensorOptions(DeviceType d) : device_(Device(d)) {}  // NOLINT
  TensorOptions dtype(Dtype d) const {
    return with([&](auto& o) { o.dtype_ = d; });
  }
  TensorOptions device(Device d) const {
    return with([&](auto& o) { o.device_ = d; });
  }
  TensorOptions requires_grad(bool on) const {
    return with([&](auto& o) { o.requires_grad_ = on; });
  }
  Dtype dtype_or(Dtype fallback) const { return dtype_.value_or(fallback); }
  bool has_dtype() const { return dtype_.has_value(); }
  Device device() const { return device_.value_or(Device()); }
  bool requires_grad() const { return requires_grad_; }

 private:
  template <class F>
  TensorOptions with(F change) const {
    TensorOptions o = *this;
    change(o);
    return o;
  }
  std::optional<Dtype> dtype_;
  std::optional<Device> device_;
  bool requires_grad_ = false;
};

inline TensorOptions dtype(Dtype d) { return {d}; }
inline TensorOptions device(Device d) { return {d}; }
inline TensorOptions requires_grad(bool on = true) { return TensorOptions().requires_grad(on); }

}  // namespace halftape
