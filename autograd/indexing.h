// What stands between the brackets of PyTorch's x[…]:
//
//   using namespace halftape::indexing;
//   x.index({0, Slice(1, None, 2), "..."})     x[0, 1::2, ...]
//   x.index({rows, columns})                   x[rows, columns], int64 tensors that broadcast
//   x.index_put_({x < 0}, 0)                   x[x < 0] = 0
#pragma once
#include <limits>
#include <ostream>
#include <type_traits>
#include <variant>

#include "halftape/autograd/tensor.h"

namespace halftape {
namespace indexing {

struct EllipsisIndexType {};
/// As many full slices as there are dimensions that nothing else names.
inline constexpr EllipsisIndexType Ellipsis{};
/// A new dimension of size 1; in a Slice, a bound left out.
inline constexpr std::nullopt_t None = std::nullopt;

/// The bounds of a Slice that were left out: those of a negative step, which no tensor takes, too.
inline constexpr int64_t INDEX_MAX = std::numeric_limits<int64_t>::max();
inline constexpr int64_t INDEX_MIN = std::numeric_limits<int64_t>::min();

/// start, start + step, … below stop; negative bounds count from the end, those outside are
/// clipped.
class Slice {
 public:
  Slice(std::optional<int64_t> start = {},  // NOLINT: as LibTorch
        std::optional<int64_t> stop = {}, std::optional<int64_t> step = {})
      : step_(step.value_or(1)) {
    start_ = start.value_or(step_ < 0 ? INDEX_MAX : 0);
    stop_ = stop.value_or(step_ < 0 ? INDEX_MIN : INDEX_MAX);
  }
  int64_t start() const { return start_; }
  int64_t stop() const { return stop_; }
  int64_t step() const { return step_; }
  bool is_full() const { return start_ == 0 && stop_ == INDEX_MAX && step_ == 1; }

 private:
  int64_t start_, stop_, step_;
};

/// One of: None, Ellipsis (or "..."), a number, true or false, a Slice, a tensor. A bool tensor (or
/// one of uint8, with a warning: LibTorch deprecates it) is a mask over as many dimensions as it
/// has; an integer tensor holds numbers, and its shape replaces the dimension. The shapes of
/// several tensors broadcast, and the common shape replaces their dimensions, or comes first where
/// another index stands between them.
class TensorIndex {
 public:
  using Value = std::variant<std::nullopt_t, EllipsisIndexType, int64_t, bool, Slice, Tensor>;
  TensorIndex(std::nullopt_t) : value_(None) {}              // NOLINT: as LibTorch
  TensorIndex(EllipsisIndexType) : value_(Ellipsis) {}       // NOLINT
  TensorIndex(const char* dots);                             // NOLINT
  TensorIndex(Slice slice) : value_(slice) {}                // NOLINT
  TensorIndex(Tensor tensor) : value_(std::move(tensor)) {}  // NOLINT
  template <class T>
  requires std::is_integral_v<T> TensorIndex(T number) : value_(None) {  // NOLINT
    if constexpr (std::is_same_v<T, bool>)
      value_ = number;
    else
      value_ = static_cast<int64_t>(number);
  }
  const Value& value() const { return value_; }
  bool is_none() const { return is<std::nullopt_t>(); }
  bool is_ellipsis() const { return is<EllipsisIndexType>(); }
  bool is_integer() const { return is<int64_t>(); }
  bool is_boolean() const { return is<bool>(); }
  bool is_slice() const { return is<Slice>(); }
  bool is_tensor() const { return is<Tensor>(); }
  /// These throw std::bad_variant_access for an index of another kind.
  int64_t integer() const { return std::get<int64_t>(value_); }
  bool boolean() const { return std::get<bool>(value_); }
  const Slice& slice() const { return std::get<Slice>(value_); }
  const Tensor& tensor() const { return std::get<Tensor>(value_); }

 private:
  template <class T>
  bool is() const {
    return std::holds_alternative<T>(value_);
  }
  Value value_;
};

/// "1:5:2"
std::ostream& operator<<(std::ostream& out, const Slice& slice);
/// As in the program: "None", "...", "3", "true", a slice; a tensor as tensors print.
std::ostream& operator<<(std::ostream& out, const TensorIndex& index);
/// "(0, 1:5:2, ...)"
std::ostream& operator<<(std::ostream& out, const std::vector<TensorIndex>& indices);

}  // namespace indexing

/// x[indices] as in PyTorch: a view unless a tensor is among them. Numbers and slices apply first,
/// so x.index({0, Slice(), t}) picks along the last dimension of x[0]. An index out of range
/// throws. In x.index_put_({…}, value) the value broadcasts to the shape of x.index({…}).
Tensor index(const Tensor& x, const std::vector<indexing::TensorIndex>& indices);

/// x, with x[indices] = values, which broadcast to its shape. With `accumulate` they are added,
/// once for each time a position is named, in a fixed order; otherwise the last value for a
/// position stays. Under autocast: the widest dtype.
Tensor index_put(const Tensor& x, const std::vector<indexing::TensorIndex>& indices,
                 const Tensor& values, bool accumulate = false);
Tensor index_put(const Tensor& x, const std::vector<indexing::TensorIndex>& indices, Scalar value,
                 bool accumulate = false);
/// x.index_put_(…).
inline Tensor& index_put_(Tensor& x, const std::vector<indexing::TensorIndex>& indices,
                          const Tensor& values, bool accumulate = false) {
  return x.index_put_(indices, values, accumulate);
}

/// x, with `src` in the place of slice(x, …) or select(x, …).
Tensor slice_scatter(const Tensor& x, const Tensor& src, int64_t dim = 0,
                     std::optional<int64_t> start = {}, std::optional<int64_t> end = {},
                     int64_t step = 1);
Tensor select_scatter(const Tensor& x, const Tensor& src, int64_t dim, int64_t index);

}  // namespace halftape
