// Tensor's methods that convert, move and compare, and the new_… factories.
#include <cmath>

#include "halftape/autograd/ops/creation/create.h"
#include "halftape/autograd/ops/elementwise/binary.h"
#include "halftape/autograd/ops/elementwise/compare.h"
#include "halftape/autograd/ops/elementwise/unary.h"
#include "halftape/autograd/ops/layout/view.h"
#include "halftape/autograd/tape/error_scope.h"
#include "halftape/autograd/tape/record.h"

namespace halftape {

Tensor Tensor::to(Dtype dtype, bool, bool copy) const {
  return copy && dtype == this->dtype() ? clone() : cast(*this, dtype);
}
Tensor Tensor::to(Device target, bool non_blocking, bool copy) const {
  if (target == device()) return copy ? clone() : *this;
  return record("to", array().to(target, non_blocking), {this},
                [from = device()](Node&, const Tensor& g) -> Grads { return {g.to(from)}; });
}
Tensor Tensor::pin_memory(Device gpu) const {
  HALFTAPE_CHECK(device().is_cpu(),
                 "pin_memory: only tensors on the CPU can be pinned, not one on ", device());
  if (is_pinned()) return *this;
  return record("pin_memory", array().pinned(gpu), {this},
                [](Node&, const Tensor& g) -> Grads { return {g}; });
}
Tensor Tensor::to(Device device, Dtype dtype, bool non_blocking, bool copy) const {
  const Tensor there = to(device, non_blocking).to(dtype);
  return copy && there.is_same(*this) ? clone() : there;
}
Tensor Tensor::to(const TensorOptions& o, bool non_blocking, bool copy) const {
  HALFTAPE_CHECK(!o.requires_grad(),
                 "to(options) expects unset requires_grad flag, but got options.requires_grad set "
                 "as true; call requires_grad_() on the result");
  return to(o.device_or(device()), o.dtype_or(dtype()), non_blocking, copy);
}
Tensor Tensor::to(const Tensor& other, bool non_blocking, bool copy) const {
  return to(other.device(), other.dtype(), non_blocking, copy);
}

Tensor Tensor::new_empty(const Shape& shape, const TensorOptions& o) const {
  return empty(shape, options().merge_in(o));
}
Tensor Tensor::new_empty_strided(const Shape& shape, const Strides& strides,
                                 const TensorOptions& o) const {
  return empty_strided(shape, strides, options().merge_in(o));
}
Tensor Tensor::new_zeros(const Shape& shape, const TensorOptions& o) const {
  return zeros(shape, options().merge_in(o));
}
Tensor Tensor::new_ones(const Shape& shape, const TensorOptions& o) const {
  return ones(shape, options().merge_in(o));
}
Tensor Tensor::new_full(const Shape& shape, Scalar value, const TensorOptions& o) const {
  return full(shape, value, options().merge_in(o));
}

bool Tensor::equal(const Tensor& o) const {
  if (sizes() != o.sizes() || dtype() != o.dtype()) return false;
  return numel() == 0 || eq(o).to(kInt64).sum().item<int64_t>() == numel();
}

Tensor Tensor::isclose(const Tensor& o, double rtol, double atol, bool equal_nan) const {
  const ErrorScope scope("isclose", *this, o);
  HALFTAPE_CHECK(rtol >= 0 && atol >= 0, "isclose: the tolerances rtol = ", rtol,
                 " and atol = ", atol, " must not be negative");
  const Tensor a = detach().to(kFloat64), b = o.detach().to(kFloat64);
  const Tensor allowed = b.abs() * rtol + atol;
  // Written so that NaN and infinite differences fail; equal infinities are close.
  Tensor close =
      halftape::maximum(detach() == o.detach(), ((a - b).abs() <= allowed) * (allowed < INFINITY));
  if (equal_nan) close = halftape::maximum(close, (a != a) * (b != b));
  return close;
}

bool Tensor::allclose(const Tensor& o, double rtol, double atol, bool equal_nan) const {
  const ErrorScope scope("allclose", *this, o);
  const Tensor close = isclose(o, rtol, atol, equal_nan);
  return close.to(kInt64).sum().item<int64_t>() == close.numel();
}

}  // namespace halftape
