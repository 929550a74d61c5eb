// Runs: eight neighbours along a dimension, which a thread takes in at once; and the order in which
// a warp joins what its lanes hold. Sums get their fixed order from these two: run r belongs to
// lane r % 32, and lanes are joined as a tree of neighbours.
#pragma once
#include <utility>

#include "halftape/cuda/vector/lanes.cuh"
#include "halftape/cuda/vector/layout.h"

namespace halftape::cuda {

inline constexpr int kWarp = 32;
inline constexpr int64_t kSegment = 1024;  // elements of a line that a warp works through
inline constexpr unsigned kWholeWarp = 0xffffffffu;

/// f(0), …, f(n − 1), one after the other in the code, so that arrays they index stay in registers.
template <int n, class F>
__device__ inline void unrolled(F&& f) {
  [&]<int... i>(std::integer_sequence<int, i...>) { (f(i), ...); }
  (std::make_integer_sequence<int, n>());
}

/// How an operand's elements lie along the dimension that a kernel works along.
struct RunLayout {
  int64_t step;  // bytes from one to the next
  Dtype dtype;
  bool packed;  // every whole run is one aligned piece of memory

  RunLayout() = default;
  /// Operand a of arrays that begin where `starts` says.
  template <int N>
  RunLayout(const Layout<N>& starts, int a, int64_t stride)
      : step(stride * static_cast<int64_t>(element_size(starts.dtype[a]))),
        dtype(starts.dtype[a]),
        packed(packs(dtype) && stride == 1 &&
               reinterpret_cast<uintptr_t>(starts.base[a]) % 16 == 0) {
    for (int d = 0; d < starts.rank; ++d)
      packed = packed && (starts.sizes[d] == 1 || starts.strides[a][d] % 16 == 0);
  }
};

/// x ← the first n elements of the run at this address (all eight if n > 8), then `rest`.
template <class S>
__device__ inline void load_run(S (&x)[kPack], const char* at, const RunLayout& along, int64_t n,
                                S rest) {
  if constexpr (std::is_same_v<S, float>) {
    if (along.packed && n >= kPack) return load_pack(x, at, along.dtype, 0);
  }
  visit(along.dtype, [&](auto t) {
    using T = typename decltype(t)::type;
    unrolled<kPack>([&](int i) {
      x[i] = i < n ? as<S>(*reinterpret_cast<const T*>(at + i * along.step)) : rest;
    });
  });
}
template <class S>
__device__ inline void store_run(const S (&x)[kPack], char* at, const RunLayout& along, int64_t n) {
  if constexpr (std::is_same_v<S, float>) {
    if (along.packed && n >= kPack) return store_pack(x, at, along.dtype, 0);
  }
  visit(along.dtype, [&](auto t) {
    using T = typename decltype(t)::type;
    unrolled<kPack>([&](int i) {
      if (i < n) *reinterpret_cast<T*>(at + i * along.step) = as<T>(x[i]);
    });
  });
}

/// In lane 0: what all lanes of the warp hold, neighbours first. The others hold parts of it.
template <class Op, class S>
__device__ inline S join_lanes(S x) {
  for (int d = 1; d < kWarp; d *= 2) x = Op::step(x, __shfl_down_sync(kWholeWarp, x, d));
  return x;
}

/// i / size with what is left of i; 32-bit division is several times faster.
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
