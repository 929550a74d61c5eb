// The third way to map, after those of map.cuh: by runs of eight along the innermost dimension, for
// operands that are strided, or one number for many elements.
#pragma once
#include "halftape/cuda/vector/reduction.cuh"
#include "halftape/cuda/vector/rows.cuh"

namespace halftape::cuda {

/// N operands, each of any strides or one number for many elements. The kernel writes the first.
template <int N>
struct RunOperands {
  Rows<N> rows;
  int64_t runs;  // of a row
  float otherwise[N];
  bool given[N];

  /// An undefined array stands for the number in `none`.
  RunOperands(std::array<Array, N> arrays, const std::array<float, N>& none) {
    std::array<const Array*, N> all;
    for (size_t k = 0; k < N; ++k) {
      otherwise[k] = none[k];
      given[k] = arrays[k].defined();
      if (!given[k]) arrays[k] = arrays[0];
      all[k] = &arrays[k];
    }
    const Layout<N> whole(all);
    const int last = whole.rank - 1;
    rows.length = whole.sizes[last];
    rows.starts = whole;
    rows.starts.numel = whole.numel / rows.length;
    rows.starts.rank = last > 0 ? last : 1;
    if (last == 0) rows.starts.sizes[0] = 1;
    for (int k = 0; k < N; ++k) {
      const int64_t step = inner_stride(whole, k);
      if (last == 0) rows.starts.strides[k][0] = 0;
      rows.along[static_cast<size_t>(k)] = RunLayout(rows.starts, k, step);
    }
    runs = (rows.length + kPack - 1) / kPack;
  }
};

template <class S, int N, class F>
__global__ void map_runs(const __grid_constant__ RunOperands<N> a, F f) {
  constexpr bool kInline = std::is_same_v<S, float>;
  for (int64_t i = thread_number(); i < a.rows.starts.numel * a.runs; i += thread_count()) {
    const Division place(i, a.runs);
    const int64_t first = place.rest * kPack, n = a.rows.length - first;
    char* at[N];
    a.rows.starts.locate(place.quotient, at);
    S x[N][kPack];
    unrolled<N - 1>([&](int before) {
      const int k = before + 1;
      const RunLayout& along = a.rows.along[static_cast<size_t>(k)];
      if (a.given[k] && along.step != 0)
        return load_run<kInline>(x[k], at[k] + first * along.step, along, n, S(0));
      const S one = a.given[k] ? load<S>(at[k], along.dtype) : static_cast<S>(a.otherwise[k]);
      unrolled<kPack>([&](int e) { x[k][e] = one; });
    });
    unrolled<kPack>([&](int e) {
      S v[N];
      unrolled<N - 1>([&](int k) { v[k + 1] = x[k + 1][e]; });
      f(v);
      x[0][e] = v[0];
    });
    const RunLayout& along = a.rows.along[0];
    store_run<kInline>(x[0], at[0] + first * along.step, along, n);
  }
}

/// arrays[0] ← f of the others; `otherwise` holds the numbers of undefined ones.
template <class S, int N, class F>
void map_by_runs(const char* name, const std::array<Array, N>& arrays,
                 const std::array<float, N>& otherwise, const F& f) {
  if (arrays[0].numel() == 0) return;
  const Queue q = queue(arrays[0]);
  const RunOperands<N> operands(arrays, otherwise);
  launch_for(q, operands.rows.starts.numel * operands.runs, name, map_runs<S, N, F>, operands, f);
}

}  // namespace halftape::cuda
