// Element-wise kernels: one per formula and compute type; dtypes and strides are the loaders'
// business.
#include <algorithm>

#include "halftape/core/formula/binary.h"
#include "halftape/core/formula/unary.h"
#include "halftape/cpu/kernels.h"
#include "halftape/cpu/loop.h"

namespace halftape::cpu {
namespace {

template <class S>
Params<S> narrow(const Params<double>& p) {
  return {convert<S>(p.a), convert<S>(p.b)};
}
template <class S>
Params<S> narrow(const Params<Scalar>& p) {
  return {p.a.to<S>(), p.b.to<S>()};
}

/// The scalar reading, for integers; the chunk reading otherwise.
template <class Op, class S>
void map_lanes(const S* x, S* y, const Params<S>& p) {
  if constexpr (std::is_same_v<S, int64_t>) {
    if constexpr (works_on_integers<Op>)
      for (int k = 0; k < kLanes; ++k) y[k] = formula_f<Op>(x[k], p);
  } else {
    const auto& in = *reinterpret_cast<const Chunk<S>*>(x);
    *reinterpret_cast<Chunk<S>*>(y) = formula_f<Op>(in, p);
  }
}
template <class Op, class S>
void grad_lanes(const S* g, const S* s, S* dx, const Params<S>& p) {
  const auto& gradient = *reinterpret_cast<const Chunk<S>*>(g);
  const auto& saved = *reinterpret_cast<const Chunk<S>*>(s);
  *reinterpret_cast<Chunk<S>*>(dx) = formula_df<Op>(gradient, saved, p);
}
template <class Op, class S>
void zip_lanes(const S* a, const S* b, S* y) {
  if constexpr (std::is_same_v<S, int64_t>) {
    if constexpr (divides_integers<Op>)
      HALFTAPE_CHECK(std::find(b, b + kLanes, S(0)) == b + kLanes, Op::name,
                     ": an integer divided by zero");
    if constexpr (!needs_floats<Op>)
      for (int k = 0; k < kLanes; ++k) y[k] = Op::f(a[k], b[k]);
  } else if constexpr (!needs_integers<Op>) {
    const auto& left = *reinterpret_cast<const Chunk<S>*>(a);
    const auto& right = *reinterpret_cast<const Chunk<S>*>(b);
    *reinterpret_cast<Chunk<S>*>(y) = Op::f(left, right);
  }
}

/// Reads chunks of the N − 1 inputs, applies `f` to their lanes, writes a chunk of the first array.
template <class S, size_t N, class F>
void run(const std::array<const Array*, N>& arrays, const F& f) {
  std::array<Load<S>, N> loads;
  std::array<int64_t, N> items, steps;
  std::array<char*, N> first;
  bool plain = arrays[0]->numel() <= kTile;
  for (size_t a = 0; a < N; ++a) {
    if (a > 0) loads[a] = loader<S>(arrays[a]->dtype());
    items[a] = static_cast<int64_t>(element_size(arrays[a]->dtype()));
    first[a] = static_cast<char*>(arrays[a]->raw());
    steps[a] = 1;
    plain = plain && arrays[a]->contiguous();
  }
  const Store<S> write = storer<S>(arrays[0]->dtype());
  auto chunks = [&](std::array<char*, N> at, const std::array<int64_t, N>& by, int64_t length) {
    alignas(64) S lanes[N][kLanes];
    for (int64_t i = 0; i < length; i += kLanes) {
      const int n = static_cast<int>(std::min<int64_t>(kLanes, length - i));
      for (size_t a = 1; a < N; ++a) {
        loads[a](at[a], by[a], n, lanes[a]);
        at[a] += kLanes * by[a] * items[a];
      }
      f(lanes);
      write(lanes[0], n, at[0], by[0]);
      at[0] += kLanes * by[0] * items[0];
    }
  };
  if (plain)
    chunks(first, steps, arrays[0]->numel());  // one tile: no walk to plan
  else
    Walk<N>(arrays).run(chunks);
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

void unary(OpId op, const Array& y, const Array& x, const Params<Scalar>& p) {
  with_compute_type(y.dtype(), [&](auto t) {
    using S = typename decltype(t)::type;
    const auto kernel = map_table<S>[static_cast<size_t>(op)];
    const Params<S> q = narrow<S>(p);
    run<S, 2>({&y, &x}, [&](S(*lanes)[kLanes]) { kernel(lanes[1], lanes[0], q); });
  });
}

void unary_grad(OpId op, const Array& dx, const Array& g, const Array& saved, Params<double> p) {
  auto go = [&](auto t) {
    using S = typename decltype(t)::type;
    const auto kernel = grad_table<S>[static_cast<size_t>(op)];
    const Params<S> q = narrow<S>(p);
    run<S, 3>({&dx, &g, &saved},
              [&](S(*lanes)[kLanes]) { kernel(lanes[1], lanes[2], lanes[0], q); });
  };
  if (dx.dtype() == kFloat64)
    go(Type<double>{});
  else
    go(Type<float>{});
}

void binary(OpId op, const Array& y, const Array& a, const Array& b) {
  // Comparisons write bool but compare in what the inputs promote to.
  const Dtype type = y.dtype() == kBool ? promote(a.dtype(), b.dtype()) : y.dtype();
  with_compute_type(type, [&](auto t) {
    using S = typename decltype(t)::type;
    const auto kernel = zip_table<S>[static_cast<size_t>(op)];
    run<S, 3>({&y, &a, &b}, [&](S(*lanes)[kLanes]) { kernel(lanes[1], lanes[2], lanes[0]); });
  });
}

void where(const Array& y, const Array& condition, const Array& a, const Array& b) {
  with_compute_type(y.dtype(), [&](auto t) {
    using S = typename decltype(t)::type;
    run<S, 4>({&y, &condition, &a, &b}, [&](S(*lanes)[kLanes]) {
      for (int k = 0; k < kLanes; ++k)
        lanes[0][k] = lanes[1][k] != S(0) ? lanes[2][k] : lanes[3][k];
    });
  });
}

}  // namespace halftape::cpu
