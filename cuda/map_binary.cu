// Formulas of two arguments, and the choice between two.
#include "halftape/core/formula/binary.h"

#include "halftape/cuda/cuda_backend.h"
#include "halftape/cuda/vector/map.cuh"

namespace halftape::cuda {
namespace {

template <class Op, class S>
struct Value {
  __device__ void operator()(S (&x)[3]) const { x[0] = Op::f(x[1], x[2]); }
};
template <class S>
struct Choose {
  __device__ void operator()(S (&x)[4]) const { x[0] = x[1] != S(0) ? x[2] : x[3]; }
};

template <class Op, class S>
void value_of(const Array& y, const Array& a, const Array& b) {
  if constexpr (std::is_same_v<S, int64_t> ? !Op::of_floats : !Op::of_integers)
    map<S, 3>(Op::name, {&y, &a, &b}, Value<Op, S>{});
}

template <class S>
constexpr auto values = BinaryOps::table([](auto op) {
  return &value_of<typename decltype(op)::type, S>;
});

}  // namespace

void CudaBackend::binary(OpId op, const Array& y, const Array& a, const Array& b) {
  // Comparisons write bool but compare in what the inputs promote to.
  const Dtype type = y.dtype() == kBool ? promote(a.dtype(), b.dtype()) : y.dtype();
  with_compute_type(
      type, [&](auto t) { values<typename decltype(t)::type>[static_cast<size_t>(op)](y, a, b); });
}

void CudaBackend::where(const Array& y, const Array& condition, const Array& a, const Array& b) {
  with_compute_type(y.dtype(), [&](auto t) {
    using S = typename decltype(t)::type;
    map<S, 4>("where", {&y, &condition, &a, &b}, Choose<S>{});
  });
}

}  // namespace halftape::cuda
