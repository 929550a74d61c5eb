#include "halftape/autograd/ops/layout/copies.h"

#include "halftape/autograd/ops/layout/dims.h"
#include "halftape/autograd/ops/layout/view.h"
#include "halftape/autograd/ops/reduction/reduce.h"
#include "halftape/autograd/tape/error_scope.h"
#include "halftape/autograd/tape/record.h"

namespace halftape {
namespace {
/// The dimensions of `large` along which `shape` was broadcast.
Dims broadcast_dims(const Shape& large, const Shape& shape) {
  HALFTAPE_CHECK(broadcasts_to(shape, large), "sum_to: ", shape, " does not broadcast to ", large);
  Dims over;
  const int lead = large.size() - shape.size();
  for (int i = 0; i < large.size(); ++i)
    if (i < lead || (shape[i - lead] == 1 && large[i] != 1)) over.push_back(i);
  return over;
}
}  // namespace

Tensor sum_to(const Tensor& x, const Shape& shape) {
  check_defined("sum_to", x);
  if (x.sizes() == shape) return x;
  return detail::reshaped(sum(x, broadcast_dims(x.sizes(), shape), true, x.dtype()), shape);
}

Tensor cast(const Tensor& x, Dtype dtype) {
  check_defined("cast", x);
  if (x.dtype() == dtype) return x;
  return detail::recorded_cast(x, x.array().to(dtype));
}
Tensor detail::recorded_cast(const Tensor& x, Array value) {
  Tensor y =
      record("to", std::move(value), {&x}, [from = x.dtype()](Node&, const Tensor& g) -> Grads {
        Grads d(1);  // braces would copy it
        d[0] = cast(g, from);
        return d;
      });
  const bool widens_gradients = is_narrow(y.dtype()) && !is_narrow(x.dtype());
  if (y.grad_fn()) y.grad_fn()->first.wide = widens_gradients;
  return y;
}

Tensor widened(const Tensor& x) { return cast(x, compute_dtype(x.dtype())); }

Tensor clone(const Tensor& x) {
  check_defined("clone", x);
  return record("clone", x.array().clone(), {&x},
                [](Node&, const Tensor& g) -> Grads { return {g}; });
}

Tensor contiguous(const Tensor& x, MemoryFormat format) {
  check_defined("contiguous", x);
  if (format == MemoryFormat::Contiguous) return x.array().contiguous() ? x : clone(x);
  HALFTAPE_CHECK(format != MemoryFormat::Preserve,
                 "contiguous: memory format Preserve names no order; use clone()");
  const int64_t rank = format == MemoryFormat::ChannelsLast ? 4 : 5;
  HALFTAPE_CHECK(x.dim() == rank, "contiguous: memory format ", format, " is of ", rank,
                 " dimensions; the tensor is ", x.sizes());
  return x.is_contiguous(format) ? x : movedim(clone(movedim(x, 1, -1)), -1, 1);
}

}  // namespace halftape
