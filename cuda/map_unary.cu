// Formulas of one argument: values and gradients.
#include "halftape/core/formula/unary.h"

#include "halftape/cuda/cuda_backend.h"
#include "halftape/cuda/vector/map.cuh"

namespace halftape::cuda {
namespace {

/// Formulas of packs: a kernel for each.
template <class Op>
struct Value {
  Params<float> p;
  __device__ void operator()(float (&x)[2]) const { x[0] = formula_f<Op>(x[1], p); }
};
template <class Op>
struct Gradient {
  Params<float> p;
  __device__ void operator()(float (&x)[3]) const { x[0] = formula_df<Op>(x[1], x[2], p); }
};

/// Formulas of elements: one kernel for all.
template <class S>
struct AnyValue {
  OpId op;
  Params<S> p;
  __device__ void operator()(S (&x)[2]) const {
    x[0] = x[1];
    with_formula(UnaryOps{}, op, [&](auto o) {
      using Op = typename decltype(o)::type;
      if constexpr (!std::is_same_v<S, int64_t> || Op::integers) x[0] = formula_f<Op>(x[1], p);
    });
  }
};
template <class S>
struct AnyGradient {
  OpId op;
  Params<S> p;
  __device__ void operator()(S (&x)[3]) const {
    with_formula(UnaryOps{}, op,
                 [&](auto o) { x[0] = formula_df<typename decltype(o)::type>(x[1], x[2], p); });
  }
};

template <template <class> class F, int N>
constexpr auto in_packs = UnaryOps::table([](auto o) {
  using Op = typename decltype(o)::type;
  return +[](const Queue& q, const Layout<N>& layout, const Params<float>& p) {
    return launch_packs(Op::name, q, layout, F<Op>{p});
  };
});
constexpr auto names = UnaryOps::table([](auto o) { return decltype(o)::type::name; });

/// arrays[0] ← Packs<formula>, or Elements, of the others.
template <class S, template <class> class Packs, class Elements, int N>
void map_formula(const std::array<const Array*, N>& arrays, const Elements& f) {
  const Layout<N> layout(arrays);
  if (layout.numel == 0) return;
  const Queue q = queue(*arrays[0]);
  const auto op = static_cast<size_t>(f.op);
  if constexpr (std::is_same_v<S, float>)
    if (in_packs<Packs, N>[op](q, layout, f.p)) return;
  launch_for(q, layout.numel, names[op], map_elements<S, N, Elements>, layout, f);
}

}  // namespace

void CudaBackend::unary(OpId op, const Array& y, const Array& x, const Params<Scalar>& p) {
  with_compute_type(y.dtype(), [&](auto t) {
    using S = typename decltype(t)::type;
    map_formula<S, Value, AnyValue<S>, 2>({&y, &x},
                                          {op, {p.a.as_element<S>(), p.b.as_element<S>()}});
  });
}

void CudaBackend::unary_grad(OpId op, const Array& dx, const Array& g, const Array& saved,
                             Params<double> p) {
  const auto go = [&](auto t) {
    using S = typename decltype(t)::type;
    map_formula<S, Gradient, AnyGradient<S>, 3>({&dx, &g, &saved},
                                                {op, {static_cast<S>(p.a), static_cast<S>(p.b)}});
  };
  dx.dtype() == kFloat64 ? go(Type<double>{}) : go(Type<float>{});
}

}  // namespace halftape::cuda
