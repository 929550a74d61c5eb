// Element-wise kernels: one per formula and compute type; dtypes and strides are the loaders'
// business.
#include <algorithm>

#include "halftape/core/formula/binary.h"
#include "halftape/core/formula/unary.h"
#include "halftape/cpu/cpu_backend.h"
#include "halftape/cpu/vector/loop.h"

namespace halftape::cpu {
namespace {

template <class S>
Params<S> narrow(const Params<double>& p) {
  return {convert<S>(p.a), convert<S>(p.b)};
}
template <class S>
Params<S> narrow(const Params<Scalar>& p) {
  return {p.a.as_element<S>(), p.b.as_element<S>()};
}

// Over n lanes, whole chunks. The scalar reading, for integers; the chunk reading otherwise.
template <class Op, class S>
void map_lanes(const S* x, S* y, int64_t n, const Params<S>& p) {
  if constexpr (!std::is_same_v<S, int64_t>)
    for (int64_t i = 0; i < n; i += kLanes) at(y, i) = formula_f<Op>(at(x, i), p);
  else if constexpr (Op::integers)
    for (int64_t i = 0; i < in_chunks(n); ++i) y[i] = formula_f<Op>(x[i], p);
}
template <class Op, class S>
void grad_lanes(const S* g, const S* s, S* dx, int64_t n, const Params<S>& p) {
  for (int64_t i = 0; i < n; i += kLanes) at(dx, i) = formula_df<Op>(at(g, i), at(s, i), p);
}
template <class Op, class S>
void zip_lanes(const S* a, const S* b, S* y, int64_t n) {
  if constexpr (std::is_same_v<S, int64_t>) {
    if constexpr (Op::divides)
      HALFTAPE_CHECK(std::find(b, b + n, S(0)) == b + n, Op::name, ": an integer divided by zero");
    if constexpr (!Op::of_floats)
      for (int64_t i = 0; i < in_chunks(n); ++i) y[i] = Op::f(a[i], b[i]);
  } else if constexpr (!Op::of_integers) {
    for (int64_t i = 0; i < n; i += kLanes) at(y, i) = Op::f(at(a, i), at(b, i));
  }
}

/// From the lanes of the N − 1 inputs to those of the first array. A large transposed input is
/// copied first, tile by tile.
template <class S, size_t N>
void walk(const std::array<const Array*, N>& arrays, BlockFunction<S, N> f) {
  struct FirstIsResult {
    static constexpr bool reads(size_t a) { return a > 0; }
    static constexpr bool writes(size_t a) { return a == 0; }
    static constexpr bool misses(size_t) { return false; }
  };
  constexpr int64_t kWorthACopy = 4096;
  if (arrays[0]->numel() >= kWorthACopy && arrays[0]->contiguous())
    for (size_t a = 1; a < N; ++a) {
      if (arrays[a]->contiguous() || !is_transposed(*arrays[0], *arrays[a])) continue;
      const Array straight(arrays[a]->shape(), arrays[a]->dtype(), arrays[a]->device());
      copy(straight, *arrays[a]);
      std::array<const Array*, N> with = arrays;
      with[a] = &straight;
      return walk<S, N>(with, f);
    }
  each_block<S>(arrays, FirstIsResult(), f);
}

template <class S>
constexpr auto map_table = UnaryOps::table([](auto op) {
  return &map_lanes<typename decltype(op)::type, S>;
});
template <class S>
constexpr auto grad_table = UnaryOps::table([](auto op) {
  return &grad_lanes<typename decltype(op)::type, S>;
});
template <class S>
constexpr auto zip_table = BinaryOps::table([](auto op) {
  return &zip_lanes<typename decltype(op)::type, S>;
});

}  // namespace

void CpuBackend::unary(OpId op, const Array& y, const Array& x, const Params<Scalar>& p) {
  with_compute_type(y.dtype(), [&](auto t) {
    using S = typename decltype(t)::type;
    const auto kernel = map_table<S>[static_cast<size_t>(op)];
    const Params<S> q = narrow<S>(p);
    walk<S, 2>({&y, &x}, [&](const auto& at, int64_t n, int64_t) { kernel(at[1], at[0], n, q); });
  });
}

void CpuBackend::unary_grad(OpId op, const Array& dx, const Array& g, const Array& saved,
                            Params<double> p) {
  with_float_type(dx.dtype(), [&](auto t) {
    using S = typename decltype(t)::type;
    const auto kernel = grad_table<S>[static_cast<size_t>(op)];
    const Params<S> q = narrow<S>(p);
    walk<S, 3>({&dx, &g, &saved},
               [&](const auto& at, int64_t n, int64_t) { kernel(at[1], at[2], at[0], n, q); });
  });
}

void CpuBackend::binary(OpId op, const Array& y, const Array& a, const Array& b) {
  // Comparisons write bool but compare in what the inputs promote to.
  const Dtype type = y.dtype() == kBool ? promote(a.dtype(), b.dtype()) : y.dtype();
  with_compute_type(type, [&](auto t) {
    using S = typename decltype(t)::type;
    const auto kernel = zip_table<S>[static_cast<size_t>(op)];
    walk<S, 3>({&y, &a, &b},
               [&](const auto& at, int64_t n, int64_t) { kernel(at[1], at[2], at[0], n); });
  });
}

void CpuBackend::where(const Array& y, const Array& condition, const Array& a, const Array& b) {
  with_compute_type(y.dtype(), [&](auto t) {
    using S = typename decltype(t)::type;
    walk<S, 4>({&y, &condition, &a, &b}, [](const auto& at, int64_t n, int64_t) {
      for (int64_t i = 0; i < in_chunks(n); ++i) at[0][i] = at[1][i] != S(0) ? at[2][i] : at[3][i];
    });
  });
}

}  // namespace halftape::cpu
