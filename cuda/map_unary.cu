// Formulas of one argument: values and gradients.
#include "halftape/core/formula/unary.h"

#include "halftape/cuda/cuda_backend.h"
#include "halftape/cuda/vector/map.cuh"

namespace halftape::cuda {
namespace {

template <class Op, class S>
struct Value {
  Params<S> p;
  __device__ void operator()(S (&x)[2]) const { x[0] = formula_f<Op>(x[1], p); }
};
template <class Op, class S>
struct Gradient {
  Params<S> p;
  __device__ void operator()(S (&x)[3]) const { x[0] = formula_df<Op>(x[1], x[2], p); }
};

template <class Op, class S>
void value_of(const Array& y, const Array& x, const Params<Scalar>& p) {
  if constexpr (!std::is_same_v<S, int64_t> || Op::integers)
    map<S, 2>(Op::name, {&y, &x}, Value<Op, S>{{p.a.to<S>(), p.b.to<S>()}});
}
template <class Op, class S>
void gradient_of(const Array& dx, const Array& g, const Array& saved, const Params<double>& p) {
  map<S, 3>(Op::name, {&dx, &g, &saved},
            Gradient<Op, S>{{static_cast<S>(p.a), static_cast<S>(p.b)}});
}

template <class S>
constexpr auto values = UnaryOps::table([](auto op) {
  return &value_of<typename decltype(op)::type, S>;
});
template <class S>
constexpr auto gradients = UnaryOps::table([](auto op) {
  return &gradient_of<typename decltype(op)::type, S>;
});

}  // namespace

void CudaBackend::unary(OpId op, const Array& y, const Array& x, const Params<Scalar>& p) {
  with_compute_type(y.dtype(), [&](auto t) {
    values<typename decltype(t)::type>[static_cast<size_t>(op)](y, x, p);
  });
}

void CudaBackend::unary_grad(OpId op, const Array& dx, const Array& g, const Array& saved,
                             Params<double> p) {
  if (dx.dtype() == kFloat64)
    gradients<double>[static_cast<size_t>(op)](dx, g, saved, p);
  else
    gradients<float>[static_cast<size_t>(op)](dx, g, saved, p);
}

}  // namespace halftape::cuda
