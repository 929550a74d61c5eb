// Runs, which are eight neighbours along a dimension that one thread loads at once, and the order
// in which a warp joins its lanes. The two fix the order of sums: run r belongs to lane r % 32, and
// lanes are joined as a tree of neighbours.
#pragma once
#include <utility>

#include "halftape/cuda/vector/lanes.cuh"
#include "halftape/cuda/vector/layout.h"

namespace halftape::cuda {

inline constexpr int kWarp = 32;
inline constexpr int64_t kSegment = 1024;  // elements of a line for one warp
inline constexpr unsigned kWholeWarp = 0xffffffffu;

/// Calls f(0), …, f(n − 1), unrolled, so that the arrays that f indexes stay in registers.
template <int n, class F>
__device__ inline void unrolled(F&& f) {
  [&]<int... i>(std::integer_sequence<int, i...>) { (f(i), ...); }
  (std::make_integer_sequence<int, n>());
}

/// An operand's layout along the dimension that a kernel works along.
struct RunLayout {
  int64_t step;  // bytes from one to the next
  Dtype dtype;
  bool packed;  // every whole run is aligned and contiguous

  RunLayout() = default;
  /// Operand a of lines that begin at `starts`; `stride` in elements.
  template <int N>
  RunLayout(const Layout<N>& starts, int a, int64_t stride)
      : step(stride * static_cast<int64_t>(element_size(starts.dtype[a]))),
        dtype(starts.dtype[a]),
        packed(packs(dtype) && stride == 1 && is_aligned(starts.base[a])) {
    for (int d = 0; d < starts.rank; ++d)
      packed = packed && (starts.sizes[d] == 1 || starts.strides[a][d] % 16 == 0);
  }
};

template <class S>
struct Run {
  S x[kPack];
};
/// load_run() and store_run() of any dtype and step, element by element.
template <class S>
__device__ inline Run<S> load_elements(const char* at, Dtype dtype, int64_t step, int64_t n,
                                       S rest) {
  Run<S> run;
  visit(dtype, [&](auto t) {
    using T = typename decltype(t)::type;
    unrolled<kPack>([&](int i) {
      run.x[i] = i < n ? as<S>(*reinterpret_cast<const T*>(at + i * step)) : rest;
    });
  });
  return run;
}
template <class S>
__device__ inline void store_elements(Run<S> run, char* at, Dtype dtype, int64_t step, int64_t n) {
  visit(dtype, [&](auto t) {
    using T = typename decltype(t)::type;
    unrolled<kPack>([&](int i) {
      if (i < n) *reinterpret_cast<T*>(at + i * step) = as<T>(run.x[i]);
    });
  });
}
/// The same as functions of their own: each has hundreds of instructions, which every run of a
/// kernel would repeat.
template <class S>
__device__ __noinline__ Run<S> load_noinline(const char* at, Dtype dtype, int64_t step, int n,
                                             S rest) {
  return load_elements(at, dtype, step, n, rest);
}
template <class S>
__device__ __noinline__ void store_noinline(Run<S> run, char* at, Dtype dtype, int64_t step,
                                            int n) {
  store_elements(run, at, dtype, step, n);
}

/// x ← the first n elements of the run at this address (all eight if n > 8), then `rest`. kInline
/// avoids the call in a kernel to which it would cost registers.
template <bool kInline = false, class S>
__device__ inline void load_run(S (&x)[kPack], const char* at, const RunLayout& layout, int64_t n,
                                S rest) {
  if constexpr (std::is_same_v<S, float>)
    if (layout.packed && n >= kPack) return load_pack(x, at, layout.dtype, 0);
  Run<S> run;
  if constexpr (kInline)
    run = load_elements(at, layout.dtype, layout.step, n, rest);
  else
    run =
        load_noinline(at, layout.dtype, layout.step, static_cast<int>(n < kPack ? n : kPack), rest);
  unrolled<kPack>([&](int i) { x[i] = run.x[i]; });
}
template <bool kInline = false, class S>
__device__ inline void store_run(const S (&x)[kPack], char* at, const RunLayout& layout,
                                 int64_t n) {
  if constexpr (std::is_same_v<S, float>)
    if (layout.packed && n >= kPack) return store_pack(x, at, layout.dtype, 0);
  Run<S> run;
  unrolled<kPack>([&](int i) { run.x[i] = x[i]; });
  if constexpr (kInline)
    store_elements(run, at, layout.dtype, layout.step, n);
  else
    store_noinline(run, at, layout.dtype, layout.step, static_cast<int>(n < kPack ? n : kPack));
}

/// In lane 0, the values of all lanes joined, neighbours first. Other lanes hold parts of it.
template <class Op, class S>
__device__ inline S join_lanes(S x) {
  for (int d = 1; d < kWarp; d *= 2) x = Op::step(x, __shfl_down_sync(kWholeWarp, x, d));
  return x;
}

/// i / size and i % size; a 32-bit division is several times faster.
struct Division {
  int64_t quotient, rest;
  __device__ Division(int64_t i, int64_t size) {
    if (((i | size) >> 32) == 0)
      quotient = static_cast<uint32_t>(i) / static_cast<uint32_t>(size);
    else
      quotient = i / size;
    rest = i - quotient * size;
  }
};

}  // namespace halftape::cuda
