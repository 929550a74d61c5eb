// Element-wise kernels: y = f(x…), by packs or by elements. f gets an array of values of the type S
// to compute in, and sets the first.
#pragma once
#include "halftape/cuda/vector/lanes.cuh"
#include "halftape/cuda/vector/layout.h"

namespace halftape::cuda {

/// Operands that are contiguous or one repeated element, of dtypes that are moved in packs.
template <int N>
struct PackedOperands {
  int64_t numel;
  char* base[N];
  Dtype dtype[N];
  bool uniform[N];
};

template <int N, class F>
__global__ void map_packs(PackedOperands<N> a, F f) {
  const int64_t full = a.numel / kPack;
  for (int64_t p = thread_number(); p < full; p += thread_count()) {
    float lanes[N][kPack];
    for (int k = 1; k < N; ++k) {
      if (a.uniform[k]) {
        const float x = load_packed(a.base[k], a.dtype[k]);
        for (int i = 0; i < kPack; ++i) lanes[k][i] = x;
      } else {
        load_pack(lanes[k], a.base[k], a.dtype[k], p);
      }
    }
    for (int i = 0; i < kPack; ++i) {
      float x[N];
      for (int k = 1; k < N; ++k) x[k] = lanes[k][i];
      f(x);
      lanes[0][i] = x[0];
    }
    store_pack(lanes[0], a.base[0], a.dtype[0], p);
  }
  const int64_t i = full * kPack + thread_number();  // the last, incomplete pack
  if (i < a.numel) {
    float x[N];
    for (int k = 1; k < N; ++k) {
      const auto item = static_cast<int64_t>(element_size(a.dtype[k]));
      x[k] = load_packed(a.base[k] + (a.uniform[k] ? 0 : i * item), a.dtype[k]);
    }
    f(x);
    store_packed(a.base[0] + i * static_cast<int64_t>(element_size(a.dtype[0])), a.dtype[0], x[0]);
  }
}

/// Calls g(i, addresses of element i in each array) for this thread's elements.
template <class L, class G>
__device__ void for_elements(const L& a, const G& g) {
  for (int64_t i = thread_number(); i < a.numel; i += thread_count()) {
    char* at[L::kCount];
    a.locate(i, at);
    g(i, at);
  }
}

/// Any strides, any dtypes: element by element.
template <class S, int N, class F>
__global__ void map_elements(Layout<N> a, F f) {
  for_elements(a, [&](int64_t, char* const(&at)[N]) {
    S x[N];
    for (int k = 1; k < N; ++k) x[k] = load<S>(at[k], a.dtype[k]);
    f(x);
    store(at[0], a.dtype[0], x[0]);
  });
}

/// Launches map_packs if the operands can be moved in packs; returns false if not.
template <int N, class F>
bool launch_packs(const char* what, const Queue& q, const Layout<N>& layout, const F& f) {
  PackedOperands<N> packed{layout.numel, {}, {}, {}};
  for (int k = 0; k < N; ++k) {
    packed.base[k] = layout.base[k];
    packed.dtype[k] = layout.dtype[k];
    packed.uniform[k] = k > 0 && layout.uniform(k);
    const bool lies_so = packed.uniform[k] || (layout.contiguous(k) && is_aligned(layout.base[k]));
    if (!packs(layout.dtype[k]) || !lies_so) return false;
  }
  launch_for(q, (layout.numel + kPack - 1) / kPack, what, map_packs<N, F>, packed, f);
  return true;
}

/// arrays[0] ← f of the others. All have one shape.
template <class S, int N, class F>
void map(const char* what, const std::array<const Array*, N>& arrays, const F& f) {
  const Layout<N> layout(arrays);
  if (layout.numel == 0) return;
  const Queue q = queue(*arrays[0]);
  if constexpr (std::is_same_v<S, float>)
    if (launch_packs(what, q, layout, f)) return;
  launch_for(q, layout.numel, what, map_elements<S, N, F>, layout, f);
}

/// Calls f(std::type_identity<Op>{}) with formula `op` of a list. It lets one kernel serve all
/// formulas, where a kernel for each is not worth its size; `op` is the same for all threads.
template <class... Op, class F>
__device__ void with_formula(Ops<Op...>, OpId op, const F& f) {
  OpId at = 0;
  (void)((op == at++ && (f(std::type_identity<Op>{}), true)) || ...);
}

}  // namespace halftape::cuda
