// What x[mask] and x.index({…}) give: a tensor to read, and places of x to write.
#pragma once
#include <memory>
#include <utility>
#include <vector>

#include "halftape/autograd/tensor.h"

namespace halftape {

/// While it has no name, what is assigned to it goes to where it came from, as in Python:
///
///   x[mask] = y;     x.index_put_({mask}, y)
///   x[mask] += y;    x.index_put_({mask}, x[mask] + y)
///
/// With a name, `auto y = x[mask]`, it is a tensor as any other: y = z gives the name to z, and
/// y += 1 changes y alone, unless it is a view of x. It keeps x alive.
class Indexed : public Tensor {
 public:
  /// A view, whose elements are those of x.
  explicit Indexed(Tensor view) : Tensor(std::move(view)) {}
  /// A copy of x[indices].
  Indexed(Tensor copy, Tensor x, std::vector<indexing::TensorIndex> indices);
  Indexed(const Indexed&) = default;
  Indexed(Indexed&&) noexcept = default;
  ~Indexed() = default;

  Indexed& operator=(const Indexed&) & = default;
  Indexed& operator=(Indexed&&) & noexcept = default;
  Indexed& operator=(Tensor other) & { return *this = Indexed(std::move(other)); }
  // They return what was assigned, so that a[i] = b[j] = values.
  Tensor operator=(const Tensor& values) &&;  // NOLINT
  Tensor operator=(Scalar value) &&;          // NOLINT

#define HALFTAPE_COMPOUND(op, Operand)                               \
  Tensor& operator op(Operand o)& { return Tensor::operator op(o); } \
  Tensor operator op(Operand o)&& { return std::move(*this) = Tensor::operator op(o); }
  HALFTAPE_COMPOUND(+=, const Tensor&)
  HALFTAPE_COMPOUND(-=, const Tensor&)
  HALFTAPE_COMPOUND(*=, const Tensor&)
  HALFTAPE_COMPOUND(/=, const Tensor&)
  HALFTAPE_COMPOUND(+=, Scalar)
  HALFTAPE_COMPOUND(-=, Scalar)
  HALFTAPE_COMPOUND(*=, Scalar)
  HALFTAPE_COMPOUND(/=, Scalar)
  HALFTAPE_COMPOUND(&=, const Tensor&)
  HALFTAPE_COMPOUND(|=, const Tensor&)
  HALFTAPE_COMPOUND(^=, const Tensor&)
#undef HALFTAPE_COMPOUND

 private:
  Tensor x_;  // undefined: this is a view of it
  std::shared_ptr<const std::vector<indexing::TensorIndex>> indices_;
};

}  // namespace halftape
