// The same arrays on both devices, to compare the GPU's kernels with the CPU's.
#pragma once
#include <cmath>
#include <cstring>
#include <sstream>
#include <string>

#include "halftape/core/contract/backend.h"

namespace halftape::testing {

/// All bytes of an array's buffer, including those outside its elements.
inline Array bytes_of(const Array& a) {
  return {a.buffer(), {static_cast<int64_t>(a.buffer()->size())}, {1}, 0, kUInt8};
}

/// A copy on the GPU in the same layout, including the bytes between the elements.
inline Array on_gpu(const Array& a) {
  if (!a.defined()) return {};
  const Array from = bytes_of(a), to(from.shape(), kUInt8, kCUDA);
  backend(kCUDA).copy_across(to, from, false);
  return {to.buffer(), a.shape(), a.strides(), a.offset(), a.dtype()};
}
inline Array on_cpu(const Array& a) {
  const Array from = bytes_of(a), to(from.shape(), kUInt8, kCPU);
  backend(kCUDA).copy_across(to, from, false);
  return {to.buffer(), a.shape(), a.strides(), a.offset(), a.dtype()};
}
/// A copy on the CPU in the same layout.
inline Array twin(const Array& a) {
  if (!a.defined()) return {};
  const Array from = bytes_of(a), to = from.clone();
  return {to.buffer(), a.shape(), a.strides(), a.offset(), a.dtype()};
}

/// Empty if both hold the same numbers, including those between the elements, within `ulps` of the
/// larger number, or `slack`. NaN equals NaN.
inline std::string differ_on_gpu(const Array& gpu, const Array& cpu, double ulps = 0,
                                 double slack = 0) {
  const Array back = on_cpu(gpu);
  if (back.buffer()->size() != cpu.buffer()->size()) return "other sizes";
  // A buffer of the CPU is rounded up; what follows the bytes of one made on the GPU is unknown.
  const size_t n = gpu.buffer()->size();
  if (std::memcmp(bytes_of(back).raw(), bytes_of(cpu).raw(), n) == 0) return {};
  const auto whole = [n](const Array& x) {
    const auto count = static_cast<int64_t>(n / element_size(x.dtype()));
    return Array(x.buffer(), {count}, {1}, 0, x.dtype()).to(kFloat64);
  };
  const Array u = whole(back), v = whole(cpu);
  for (int64_t i = 0; i < u.numel(); ++i) {
    const double x = u.data<double>()[i], y = v.data<double>()[i];
    if ((x == y && std::signbit(x) == std::signbit(y)) || (std::isnan(x) && std::isnan(y)))
      continue;
    const double size = std::max(std::abs(x), std::abs(y));
    if (is_floating_point(cpu.dtype()) && std::isfinite(size) &&
        std::abs(x - y) <= std::max(ulps * std::max(epsilon(cpu.dtype()) * size, 1e-7), slack))
      continue;
    std::ostringstream text;
    text.precision(17);
    text << "the buffer's element " << i << " is " << x << " on the GPU, " << y << " on the CPU";
    return text.str();
  }
  // Equal values with other bits: a NaN, or an integer that a double cannot hold.
  return is_floating_point(cpu.dtype()) ? "" : "other bits";
}

}  // namespace halftape::testing
