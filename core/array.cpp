#include "halftape/core/array.h"

#include <algorithm>

#include "halftape/core/contract/backend.h"

namespace halftape {
namespace {
size_t checked_bytes(int64_t numel, const Shape& shape, Dtype dtype) {
  check_dtype(dtype);
  ptrdiff_t bytes = 0;
  HALFTAPE_CHECK(!__builtin_mul_overflow(numel, static_cast<int64_t>(element_size(dtype)), &bytes),
                 "shape ", shape, " of ", dtype, " has a number of bytes that does not fit ",
                 8 * sizeof(bytes), " bits");
  return static_cast<size_t>(bytes);
}
}  // namespace

size_t byte_count(const Shape& shape, Dtype dtype) {
  return checked_bytes(numel(shape), shape, dtype);
}

Array::Array(const Shape& shape, Dtype dtype, Device device)
    : shape_(shape), strides_(shape), numel_(lay_out(shape, strides_)), dtype_(dtype) {
  buffer_ = backend(device).allocate(checked_bytes(numel_, shape, dtype));
}

Array::Array(BufferPtr buffer, const Shape& shape, const Strides& strides, int64_t offset,
             Dtype dtype)
    : buffer_(std::move(buffer)),
      shape_(shape),
      strides_(strides),
      offset_(offset),
      numel_(halftape::numel(shape)),
      dtype_(dtype) {
  int64_t first = offset, last = offset;  // the furthest elements this layout reaches
  bool far = false;                       // beyond 64 bits
  for (int i = 0; i < shape.size(); ++i) {
    int64_t reach = 0;
    far |= __builtin_mul_overflow(std::max<int64_t>(shape[i], 1) - 1, strides[i], &reach);
    int64_t& furthest = reach < 0 ? first : last;
    far |= __builtin_add_overflow(furthest, reach, &furthest);
  }
  int64_t end = 0;
  far |= __builtin_add_overflow(last, 1, &end);
  far |= __builtin_mul_overflow(end, static_cast<int64_t>(element_size(dtype)), &end);
  HALFTAPE_CHECK(
      numel_ == 0 || (!far && first >= 0 && static_cast<uint64_t>(end) <= buffer_->size()),
      "as_strided: shape ", shape, " with strides ", strides, " and offset ", offset,
      " reaches outside the ", buffer_->size(), " bytes of its buffer");
}

Array Array::as_strided(const Shape& shape, const Strides& strides, int64_t offset) const {
  return {buffer_, shape, strides, offset, dtype_};
}

Array Array::expand(const Shape& shape) const {
  HALFTAPE_CHECK(broadcasts_to(shape_, shape), "expand: ", shape_, " does not broadcast to ",
                 shape);
  Strides strides = Dims::filled(shape.size(), 0);
  const int lead = shape.size() - dim();
  for (int i = 0; i < dim(); ++i)
    strides[lead + i] = shape_[i] == shape[lead + i] ? strides_[i] : 0;
  return {buffer_, shape, strides, offset_, dtype_};
}

Array Array::transpose(int a, int b) const {
  Array out = *this;
  if (dim() == 0) return out;
  std::swap(out.shape_[a], out.shape_[b]);
  std::swap(out.strides_[a], out.strides_[b]);
  return out;
}

Array Array::permute(const Dims& order) const {
  Array out = *this;
  for (int i = 0; i < dim(); ++i) {
    out.shape_[i] = shape_[static_cast<int>(order[i])];
    out.strides_[i] = strides_[static_cast<int>(order[i])];
  }
  return out;
}

Array Array::slice(int d, int64_t start, int64_t end, int64_t step) const {
  HALFTAPE_CHECK(step > 0, "slice: step ", step, " must be positive");
  const int64_t n = shape_[d];
  auto clip = [n](int64_t i) { return std::clamp<int64_t>(i < 0 ? i + n : i, 0, n); };
  const int64_t from = clip(start), to = std::max(clip(end), from);
  Array out = *this;
  out.shape_[d] = to == from ? 0 : (to - from - 1) / step + 1;
  if (out.shape_[d] > 1) out.strides_[d] *= step;  // otherwise the step may be any number
  out.offset_ = offset_ + from * strides_[d];
  out.numel_ = halftape::numel(out.shape_);
  return out;
}

Array Array::select(int d, int64_t index) const {
  const int64_t n = shape_[d], i = index < 0 ? index + n : index;
  HALFTAPE_CHECK(i >= 0 && i < n, "select: index ", index, " is out of range for dimension ", d,
                 " of ", shape_);
  Array out = slice(d, i, i + 1);
  out.shape_.erase(d);
  out.strides_.erase(d);
  return out;
}

Array Array::unsqueeze(int d) const {
  Array out = *this;
  out.strides_.insert(d, d < dim() ? strides_[d] * shape_[d] : 1);
  out.shape_.insert(d, 1);
  return out;
}

Array Array::squeeze(int d) const {
  Array out = *this;
  out.shape_.erase(d);
  out.strides_.erase(d);
  return out;
}

bool Array::try_view(const Shape& shape, Array& out) const {
  Strides strides = contiguous_strides(shape);
  if (!contiguous()) {
    // Walk both shapes from the right: a run of old dimensions that lie behind one another in
    // memory may be cut anew as long as the run's size is matched exactly.
    Shape old;
    Strides steps;
    for (int d = 0; d < dim(); ++d)
      if (shape_[d] != 1) old.push_back(shape_[d]), steps.push_back(strides_[d]);
    int to = shape.size() - 1, from = old.size() - 1;
    while (to >= 0 && from >= 0) {
      int64_t old_run = old[from], new_run = shape[to];
      const int64_t step = steps[from];
      strides[to] = step;
      while (old_run != new_run) {
        if (new_run < old_run) {
          if (--to < 0) return false;
          strides[to] = step * new_run;
          new_run *= shape[to];
        } else {
          if (--from < 0 || steps[from] != step * old_run) return false;
          old_run *= old[from];
        }
      }
      --to, --from;
    }
  }
  out = Array(buffer_, shape, strides, offset_, dtype_);
  return true;
}

Array Array::reshape(const Shape& shape) const {
  Array out;
  if (numel_ > 0 && try_view(shape, out)) return out;
  const Array copy = to_contiguous();
  return {copy.buffer_, shape, contiguous_strides(shape), copy.offset_, dtype_};
}

Array Array::to_contiguous() const { return contiguous() ? *this : clone(); }

Array Array::clone() const {
  Array out(shape_, dtype_, device());
  backend(device()).copy(out, *this);
  return out;
}

Array Array::to(Dtype dtype) const {
  if (dtype == dtype_) return *this;
  Array out(shape_, dtype, device());
  backend(device()).copy(out, *this);
  return out;
}

namespace {
/// Room for the array's elements in host memory that the backend's device reads and writes.
Array in_pinned_memory(const Array& a, Backend& b) {
  return {b.allocate(byte_count(a.shape(), a.dtype()), true), a.shape(),
          contiguous_strides(a.shape()), 0, a.dtype()};
}
}  // namespace

Array Array::pinned(Device gpu) const {
  Array out = in_pinned_memory(*this, backend(gpu));
  backend(kCPU).copy(out, *this);
  return out;
}

Array Array::to(Device target, bool non_blocking) const {
  if (target == device()) return *this;
  // The device that is not the CPU knows how to talk to the host.
  Backend& other = backend(target.is_cpu() ? device() : target);
  Array out = target.is_cpu() && non_blocking ? in_pinned_memory(*this, other)
                                              : Array(shape_, dtype_, target);
  other.copy_across(out, to_contiguous(), non_blocking);
  return out;
}

Extent extent(const Array& x) {
  int64_t last = 0;
  for (int i = 0; i < x.dim(); ++i) last += (x.size(i) - 1) * x.strides()[i];
  const auto at = reinterpret_cast<uintptr_t>(x.raw());
  return {at, at + static_cast<uintptr_t>(last + 1) * element_size(x.dtype())};
}

Array empty_like(const Array& a) { return {a.shape(), a.dtype(), a.device()}; }
Array empty_like(const Array& a, Dtype dtype) { return {a.shape(), dtype, a.device()}; }

Array full(const Shape& shape, Scalar value, Dtype dtype, Device device) {
  Array out(shape, dtype, device);
  backend(device).fill(out, value);
  return out;
}

namespace {
template <class To>
To read_as(const Array& one) {
  HALFTAPE_CHECK(one.numel() == 1, "item: a tensor of shape ", one.shape(), " has ", one.numel(),
                 " elements; item() needs exactly one");
  return visit(one.dtype(), [&](auto t) {
    typename decltype(t)::type value{};
    backend(one.device()).read(&value, one);
    return convert<To>(value);
  });
}
}  // namespace

double read_double(const Array& one) { return read_as<double>(one); }
int64_t read_int64(const Array& one) { return read_as<int64_t>(one); }

}  // namespace halftape
