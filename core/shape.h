// Shapes and strides: up to ten dimensions, held inline, with checked 64-bit size arithmetic.
#pragma once
#include <array>
#include <cstdint>
#include <initializer_list>
#include <ostream>
#include <span>
#include <type_traits>
#include <vector>

#include "halftape/core/check.h"

namespace halftape {

/// The most dimensions that an array has.
inline constexpr int kMaxDims = 10;

/// A short list of 64-bit integers without heap memory: sizes, strides, or dimension numbers.
class Dims {
 public:
  Dims() {}  // NOLINT: values beyond size() stay uninitialised; most shapes are short
  Dims(std::initializer_list<int64_t> values) : Dims(std::span(values.begin(), values.size())) {}
  Dims(const std::vector<int64_t>& values) : Dims(std::span(values)) {}  // NOLINT: as IntArrayRef
  /// One number is a list of one: zeros(3), x.sum(0).
  template <class T>
  requires(std::is_integral_v<T> && !std::is_same_v<T, bool>) Dims(T value) {  // NOLINT
    push_back(static_cast<int64_t>(value));
  }
  Dims(std::span<const int64_t> values) {  // NOLINT: what slice() gives is a list of its own
    for (int64_t v : values) push_back(v);
  }
  /// That many times the same number.
  static Dims filled(int count, int64_t value) {
    if (count > kMaxDims) too_many();
    Dims d;
    for (int i = 0; i < count; ++i) d[i] = value;
    d.size_ = count;
    return d;
  }

  int size() const { return size_; }
  bool empty() const { return size_ == 0; }
  int64_t operator[](int i) const { return values_[static_cast<size_t>(i)]; }
  int64_t& operator[](int i) { return values_[static_cast<size_t>(i)]; }
  const int64_t* begin() const { return values_.data(); }
  const int64_t* end() const { return values_.data() + size_; }
  int64_t* begin() { return values_.data(); }
  int64_t* end() { return values_.data() + size_; }
  int64_t front() const { return values_[0]; }
  int64_t back() const { return values_[static_cast<size_t>(size_ - 1)]; }
  std::vector<int64_t> vec() const { return {begin(), end()}; }
  /// The numbers from `from` on; valid while this list lives.
  std::span<const int64_t> slice(int from) const& { return slice(from, size_ - from); }
  std::span<const int64_t> slice(int from, int count) const& {
    HALFTAPE_CHECK(0 <= from && 0 <= count && count <= size_ - from, "Dims: ", count,
                   " numbers from ", from, " on, of ", size_);
    return std::span(begin() + from, static_cast<size_t>(count));
  }
  void slice(int, int = 0) && = delete;

  /// As those of std::vector, for at most kMaxDims numbers; one more throws.
  void push_back(int64_t v) {
    if (size_ == kMaxDims) [[unlikely]]
      too_many();
    values_[static_cast<size_t>(size_++)] = v;
  }
  /// Puts v before the number at that place; takes that number out.
  void insert(int at, int64_t v);
  /// Takes out the number at that place.
  void erase(int at);
  /// Whether v is among them.
  bool contains(int64_t v) const;
  bool operator==(const Dims& other) const {
    if (size_ != other.size_) return false;
    for (int i = 0; i < size_; ++i)
      if ((*this)[i] != other[i]) return false;
    return true;
  }

 private:
  [[noreturn]] static void too_many();
  std::array<int64_t, kMaxDims> values_;
  int size_ = 0;
};

using Shape = Dims;
using Strides = Dims;
using IntArrayRef = Dims;

/// "[2, 3]", "[]" for a scalar, as LibTorch prints sizes.
std::ostream& operator<<(std::ostream&, const Dims&);

/// Number of elements; throws, with the shape, when it does not fit 63 bits or a size is negative.
int64_t numel(const Shape&);
/// Row-major strides, in elements; throws as numel().
Strides contiguous_strides(const Shape&);
/// Both at once: fills in `strides`, which has as many dimensions, and returns the number.
int64_t lay_out(const Shape&, Strides& strides);
/// Inline: every kernel asks it for each of its operands.
inline bool is_contiguous(const Shape& shape, const Strides& strides) {
  int64_t expected = 1;
  for (int i = shape.size() - 1; i >= 0; --i) {
    if (shape[i] == 0) return true;
    if (shape[i] != 1 && strides[i] != expected) return shape.contains(0);
    expected *= shape[i];
  }
  return true;
}
/// True if two elements of this layout share one place in memory, as in an expanded tensor. Looks
/// at every element where strides interleave.
bool overlaps_itself(const Shape&, const Strides&);
/// The shape that both broadcast to, by NumPy's rule. Throws with both shapes and the dimension.
Shape broadcast(const char* op, const Shape& a, const Shape& b);
/// Whether `from` broadcasts to exactly `to`.
bool broadcasts_to(const Shape& from, const Shape& to);
/// A dimension number in [-rank, rank) as one in [0, rank); scalars accept 0 and -1.
int wrap_dim(const char* op, int64_t dim, int rank);
/// Wrapped, sorted, without repetition; an empty list means all dimensions.
Dims wrap_dims(const char* op, const Dims& dims, int rank);
/// The shape left after reducing `dims` (wrapped).
Shape reduced_shape(const Shape&, const Dims& dims, bool keepdim);
/// Replaces one -1 by what the number of elements demands; throws when that is impossible.
Shape infer_shape(const char* op, const Shape& wanted, int64_t numel, const Shape& from);

/// Sums and products of sizes that throw where int64 overflows.
[[noreturn]] void size_overflow(int64_t a, const char* op, int64_t b);
inline int64_t checked_mul(int64_t a, int64_t b) {
  int64_t r = 0;
  if (__builtin_mul_overflow(a, b, &r)) [[unlikely]]
    size_overflow(a, " x ", b);
  return r;
}
inline int64_t checked_add(int64_t a, int64_t b) {
  int64_t r = 0;
  if (__builtin_add_overflow(a, b, &r)) [[unlikely]]
    size_overflow(a, " + ", b);
  return r;
}

}  // namespace halftape
