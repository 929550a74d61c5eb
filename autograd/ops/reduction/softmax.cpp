#include "halftape/autograd/ops/reduction/softmax.h"

#include "halftape/autograd/ops/cast_list.h"
#include "halftape/autograd/ops/elementwise/binary.h"
#include "halftape/autograd/ops/elementwise/unary.h"
#include "halftape/autograd/ops/layout/view.h"
#include "halftape/autograd/ops/reduction/reduce.h"
#include "halftape/autograd/tape/error_scope.h"
#include "halftape/autograd/tape/record.h"
#include "halftape/core/contract/backend.h"

namespace halftape {
namespace {

/// Along the last dimension.
Tensor softmax_rows(const char* name, const Tensor& x, bool log) {
  const Array y = empty_like(x.array());
  backend(x.device()).softmax(y, x.array(), log);
  if (!records({&x})) return Tensor(y);
  return record(name, y, {&x}, [log, saved = Saved(y)](Node& self, const Tensor& g) -> Grads {
    if (GradMode::is_enabled()) {
      const Tensor out = saved.tensor(self);
      if (log) return {g - exp(out) * sum(g, {-1}, true)};
      return {out * (g - sum(out * g, {-1}, true))};
    }
    const Array dx = empty_like(g.array());
    backend(g.device()).softmax_grad(dx, g.array(), saved.array(self), log);
    return {Tensor(dx)};
  });
}

Tensor softmax_along(const CastOp& op, const Tensor& in, int64_t dim, std::optional<Dtype> dtype,
                     bool log) {
  const auto [cast_in] = cast_inputs(op.unless(dtype), in);
  const Tensor x = dtype ? cast_in.to(*dtype) : cast_in;
  HALFTAPE_CHECK(x.is_floating_point(), op.name, ": of a tensor of ", x.dtype(),
                 "; pass dtype=kFloat32");
  const int d = wrap_dim(op.name, dim, static_cast<int>(x.dim()));
  if (x.dim() == 0) return squeeze(softmax_rows(op.name, unsqueeze(x, 0), log), 0);
  if (d == x.dim() - 1) return softmax_rows(op.name, x, log);
  return transpose(softmax_rows(op.name, transpose(x, d, -1), log), d, -1);
}

}  // namespace

Tensor softmax(const Tensor& x, int64_t dim, std::optional<Dtype> dtype) {
  return softmax_along(cast_list::softmax, x, dim, dtype, false);
}
Tensor log_softmax(const Tensor& x, int64_t dim, std::optional<Dtype> dtype) {
  return softmax_along(cast_list::log_softmax, x, dim, dtype, true);
}

Tensor softmin(const Tensor& x, int64_t dim, std::optional<Dtype> dtype) {
  const ErrorScope scope("softmin", x);
  return softmax(-x, dim, dtype);
}

}  // namespace halftape
