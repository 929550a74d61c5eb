// Tensors as the row-major bytes that files hold.
#pragma once
#include <algorithm>
#include <limits>
#include <optional>
#include <string_view>

#include "halftape/autograd/tensor.h"

namespace halftape {

/// The bytes of a contiguous array on the host.
inline std::string_view bytes_of(const Array& a) {
  return {static_cast<const char*>(a.raw()),
          static_cast<size_t>(a.numel()) * element_size(a.dtype())};
}

/// How many bytes such a tensor takes; nothing when they, or the strides of an empty one, exceed 63
/// bits.
inline std::optional<uint64_t> byte_count(Dtype dtype, const Shape& shape) {
  uint64_t bytes = element_size(dtype), strides = bytes;
  bool overflow = false;
  for (const int64_t size : shape) {
    const auto n = static_cast<uint64_t>(size);
    overflow |= __builtin_mul_overflow(bytes, n, &bytes);
    overflow |= __builtin_mul_overflow(strides, std::max<uint64_t>(n, 1), &strides);
  }
  if (overflow || strides > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return {};
  return bytes;
}

/// The position of the first byte that is neither 0 nor 1, which C++ may not read as a bool.
inline std::optional<size_t> find_no_bool(std::string_view bytes) {
  const size_t at = bytes.find_first_not_of(std::string_view("\0\1", 2));
  return at == bytes.npos ? std::nullopt : std::optional(at);
}
/// That of a contiguous array on the host; nothing for dtypes other than bool.
inline std::optional<size_t> find_damaged_bool(const Array& a) {
  return a.dtype() == kBool ? find_no_bool(bytes_of(a)) : std::nullopt;
}

}  // namespace halftape
