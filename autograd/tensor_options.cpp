#include "halftape/autograd/tensor_options.h"

#include <atomic>

#include "halftape/core/contract/backend.h"

namespace halftape {
namespace {
std::atomic<Dtype> default_dtype{Dtype::Float32};
std::atomic<int> default_gpu{-1};  // −1: the CPU
}  // namespace

Dtype get_default_dtype() { return default_dtype.load(std::memory_order_relaxed); }
void set_default_dtype(Dtype d) {
  HALFTAPE_CHECK(is_floating_point(d), "set_default_dtype: ", d, " is not a floating-point dtype");
  default_dtype.store(d, std::memory_order_relaxed);
}
Device get_default_device() {
  const int gpu = default_gpu.load(std::memory_order_relaxed);
  return gpu < 0 ? Device() : Device(kCUDA, static_cast<DeviceIndex>(gpu));
}
void set_default_device(Device d) {
  backend(d);  // throws where there is none
  default_gpu.store(d.is_cpu() ? -1 : d.index(), std::memory_order_relaxed);
}

std::ostream& operator<<(std::ostream& out, Layout l) {
  return out << (l == Layout::Strided ? "Strided" : "Sparse");
}

std::ostream& operator<<(std::ostream& out, MemoryFormat format) {
  constexpr const char* names[] = {"Contiguous", "Preserve", "ChannelsLast", "ChannelsLast3d"};
  return out << names[static_cast<size_t>(format)];
}

TensorOptions TensorOptions::layout(std::optional<Layout> l) const {
  HALFTAPE_CHECK(!l || *l == Layout::Strided,
                 "TensorOptions: there are no sparse tensors; leave out layout, or use kStrided");
  return with([&](auto& o) { o.layout_ = l; });
}

TensorOptions TensorOptions::pinned_memory(std::optional<bool> on) const {
  HALFTAPE_CHECK(!on.value_or(false),
                 "TensorOptions: new tensors are not pinned; use x.pin_memory()");
  return with([&](auto& o) { o.pinned_ = on; });
}

TensorOptions TensorOptions::memory_format(std::optional<MemoryFormat> format) const {
  HALFTAPE_CHECK(!format || *format <= MemoryFormat::Preserve, "TensorOptions: memory format ",
                 *format, " is not supported; tensors are row-major, use Contiguous");
  return with([&](auto& o) { o.format_ = format; });
}

TensorOptions TensorOptions::merge_in(const TensorOptions& over) const {
  return with([&](auto& o) {
    if (over.dtype_) o.dtype_ = over.dtype_;
    if (over.device_) o.device_ = over.device_;
    if (over.requires_grad_) o.requires_grad_ = over.requires_grad_;
    if (over.layout_) o.layout_ = over.layout_;
    if (over.pinned_) o.pinned_ = over.pinned_;
    if (over.format_) o.format_ = over.format_;
  });
}

std::ostream& operator<<(std::ostream& out, const TensorOptions& o) {
  const auto field = [&](const char* name, const auto& value, bool given) {
    out << name << '=' << value << (given ? ", " : " (default), ");
  };
  const auto yes = [](bool on) { return on ? "true" : "false"; };
  out << "TensorOptions(";
  field("dtype", o.dtype(), o.has_dtype());
  field("device", o.device(), o.has_device());
  field("layout", o.layout(), o.has_layout());
  field("requires_grad", yes(o.requires_grad()), o.has_requires_grad());
  field("pinned_memory", yes(o.pinned_memory()), o.has_pinned_memory());
  out << "memory_format=";
  if (const auto format = o.memory_format_opt()) return out << *format << ')';
  return out << "(nullopt))";
}

}  // namespace halftape
