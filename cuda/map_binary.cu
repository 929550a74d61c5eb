// Formulas of two arguments, and the choice between two.
#include "halftape/core/formula/binary.h"

#include "halftape/cuda/cuda_backend.h"
#include "halftape/cuda/vector/map.cuh"

namespace halftape::cuda {
namespace {

/// A formula of packs: a kernel for each.
template <class Op>
struct Value {
  __device__ void operator()(float (&x)[3]) const { x[0] = Op::f(x[1], x[2]); }
};
/// Formulas of elements: one kernel for those that compare, and one for the others.
template <class S, bool kCompares>
struct AnyValue {
  OpId op;
  __device__ void operator()(S (&x)[3]) const {
    x[0] = x[1];
    with_formula(BinaryOps{}, op, [&](auto o) {
      using Op = typename decltype(o)::type;
      constexpr bool given = std::is_same_v<S, int64_t> ? !Op::of_floats : !Op::of_integers;
      if constexpr (given && Op::compares == kCompares) x[0] = Op::f(x[1], x[2]);
    });
  }
};
template <class S>
struct Choose {
  __device__ void operator()(S (&x)[4]) const { x[0] = x[1] != S(0) ? x[2] : x[3]; }
};

constexpr auto in_packs = BinaryOps::table([](auto o) {
  return +[](const Queue& q, const Layout<3>& layout) {
    using Op = typename decltype(o)::type;
    if constexpr (Op::of_integers || Op::compares)
      return false;
    else
      return launch_packs(Op::name, q, layout, Value<Op>{});
  };
});
constexpr auto names = BinaryOps::table([](auto o) { return decltype(o)::type::name; });
constexpr auto compares = BinaryOps::table([](auto o) { return decltype(o)::type::compares; });

}  // namespace

void CudaBackend::binary(OpId op, const Array& y, const Array& a, const Array& b) {
  const Layout<3> layout({&y, &a, &b});
  if (layout.numel == 0) return;
  const Queue q = queue(y);
  const auto i = static_cast<size_t>(op);
  // Comparisons write bool but compare in what the inputs promote to.
  const Dtype type = y.dtype() == kBool ? promote(a.dtype(), b.dtype()) : y.dtype();
  with_compute_type(type, [&](auto t) {
    using S = typename decltype(t)::type;
    if constexpr (std::is_same_v<S, float>)
      if (in_packs[i](q, layout)) return;
    if (compares[i])
      launch_for(q, layout.numel, names[i], map_elements<S, 3, AnyValue<S, true>>, layout, {op});
    else
      launch_for(q, layout.numel, names[i], map_elements<S, 3, AnyValue<S, false>>, layout, {op});
  });
}

void CudaBackend::where(const Array& y, const Array& condition, const Array& a, const Array& b) {
  with_compute_type(y.dtype(), [&](auto t) {
    using S = typename decltype(t)::type;
    map<S, 4>("where", {&y, &condition, &a, &b}, Choose<S>{});
  });
}

}  // namespace halftape::cuda
