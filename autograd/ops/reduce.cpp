#include "halftape/core/formula/reduce.h"

#include "halftape/autograd/ops/binary.h"
#include "halftape/autograd/ops/reduce.h"
#include "halftape/autograd/ops/view.h"
#include "halftape/autograd/policy.h"
#include "halftape/autograd/record.h"
#include "halftape/core/backend.h"

namespace halftape {
namespace {

/// A reduced tensor seen with its reduced dimensions as 1, so that it broadcasts against the input.
Tensor keep_dims(const Tensor& y, const Shape& in, const Dims& dims) {
  return reshape(y, reduced_shape(in, dims, true));
}

template <class Op>
Array reduce(const Tensor& x, const Dims& dims, Dtype dtype) {
  Array y(reduced_shape(x.sizes(), dims, false), dtype, x.device());
  backend(x.device()).reduce(ReduceOps::index<Op>(), y, x.array(), dims);
  return y;
}

Tensor finish(const Tensor& y, const Shape& in, const Dims& dims, bool keepdim) {
  return keepdim ? keep_dims(y, in, dims) : y;
}

template <class Op>
Tensor extremum(const Tensor& in, const Dims& wanted, bool keepdim) {
  const auto [x] = cast_inputs(Cast::Keep, Op::name, in);
  const Dims dims = wrap_dims(Op::name, wanted, static_cast<int>(x.dim()));
  for (int64_t d : dims)
    HALFTAPE_CHECK(x.size(d) > 0, Op::name, ": dimension ", d, " of ", x.sizes(),
                   " is empty and has no such value");
  const Array y = reduce<Op>(x, dims, x.dtype());
  if (!records({&x})) return finish(Tensor(y), x.sizes(), dims, keepdim);
  const Tensor out = record(
      Op::name, y, {&x}, [x = Saved(x), y = Saved(y), dims](Node& self, const Tensor& g) -> Grads {
        const Tensor from = x.tensor(self);
        const Shape& shape = from.sizes();
        const Tensor hits = (from == keep_dims(y.tensor(self).detach(), shape, dims)).to(g.dtype());
        return {keep_dims(g, shape, dims) * (hits / keep_dims(sum(hits, dims), shape, dims))};
      });
  return finish(out, x.sizes(), dims, keepdim);
}

}  // namespace

Tensor sum(const Tensor& in, const Dims& wanted, bool keepdim, std::optional<Dtype> dtype) {
  const auto [x] = cast_inputs(dtype ? Cast::Keep : Cast::Float32, Sum::name, in);
  const Dims dims = wrap_dims(Sum::name, wanted, static_cast<int>(x.dim()));
  const Dtype out = dtype.value_or(is_floating_point(x.dtype()) ? x.dtype() : kInt64);
  const Tensor y =
      record(Sum::name, reduce<Sum>(x, dims, out), {&x},
             [from = x.sizes(), type = x.dtype(), dims](Node&, const Tensor& g) -> Grads {
               return {expand(keep_dims(g, from, dims), from).to(type)};
             });
  return finish(y, x.sizes(), dims, keepdim);
}

Tensor mean(const Tensor& in, const Dims& wanted, bool keepdim) {
  const auto [x] = cast_inputs(Cast::Keep, "mean", in);
  HALFTAPE_CHECK(x.is_floating_point(), "mean: of a ", x.dtype(),
                 " tensor; convert it with .to(kFloat32) first");
  int64_t count = 1;
  for (int64_t d : wrap_dims("mean", wanted, static_cast<int>(x.dim())))
    count = checked_mul(count, x.size(d));
  // The sum of halves may leave half's range where the mean does not: sum in float32 and round the
  // quotient.
  const Dtype wide = is_16bit(x.dtype()) ? kFloat32 : x.dtype();
  return (sum(x, wanted, keepdim, wide) / count).to(x.dtype());
}

Tensor amax(const Tensor& x, const Dims& dims, bool keepdim) {
  return extremum<Max>(x, dims, keepdim);
}
Tensor amin(const Tensor& x, const Dims& dims, bool keepdim) {
  return extremum<Min>(x, dims, keepdim);
}

Tensor argmax(const Tensor& x, std::optional<int64_t> dim, bool keepdim) {
  HALFTAPE_CHECK(x.numel() > 0, "argmax: the tensor is empty");
  const Tensor in = dim && x.dim() > 0 ? x.detach() : reshape(x.detach(), {-1});
  const int d = dim && x.dim() > 0 ? wrap_dim("argmax", *dim, static_cast<int>(x.dim())) : 0;
  const Array y(reduced_shape(in.sizes(), {d}, false), kInt64, x.device());
  backend(x.device()).argmax(y, in.array(), d);
  if (!keepdim) return Tensor(y);
  return reshape(Tensor(y), dim ? reduced_shape(x.sizes(), x.dim() > 0 ? Dims{d} : Dims{}, true)
                                : Dims::filled(static_cast<int>(x.dim()), 1));
}

}  // namespace halftape
