// The third way to walk element-wise: along the innermost dimension by runs of eight, where
// operands bend, or are one number for many elements.
#pragma once
#include "halftape/cuda/vector/reduction.cuh"
#include "halftape/cuda/vector/rows.cuh"

namespace halftape::cuda {

/// N operands that may bend or be one number for many elements, taken in by runs along the
/// innermost dimension; the first is written.
template <int N>
struct RunOperands {
  Rows<N> rows;
  int64_t runs;  // of a row
  float otherwise[N];
  bool given[N];

  /// Undefined arrays are `otherwise` everywhere.
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
        return load_run(x[k], at[k] + first * along.step, along, n, S(0));
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
    store_run(x[0], at[0] + first * along.step, along, n);
  }
}

/// arrays[0] ← f of the others.
template <class S, int N, class F>
void map_by_runs(const char* name, const std::array<Array, N>& arrays,
                 const std::array<float, N>& otherwise, const F& f) {
  if (arrays[0].numel() == 0) return;
  const Queue q = queue(arrays[0]);
  const RunOperands<N> operands(arrays, otherwise);
  launch_for(q, operands.rows.starts.numel * operands.runs, name, map_runs<S, N, F>, operands, f);
}

}  // namespace halftape::cuda
