// The operands of a kernel.
#pragma once
#include <cuda_runtime_api.h>

#include "halftape/core/contract/collapsed.h"
#include "halftape/core/formula/ops.h"
#include "halftape/cuda/vector/divisor.h"

namespace halftape::cuda {

/// N arrays of one shape with at most kMaxDims dimensions. Kernels write the first.
template <int N>
struct Layout {
  static constexpr int kCount = N;
  int64_t numel = 0;
  int rank = 0;
  Divisor sizes[kMaxDims];
  int64_t strides[N][kMaxDims];  // in bytes
  char* base[N];
  Dtype dtype[N];

  Layout() = default;
  explicit Layout(const std::array<const Array*, N>& arrays) {
    const CollapsedDims<N> m(arrays);
    numel = arrays[0]->numel();
    rank = m.shape.size();
    sizes[0] = m.shape[0];  // there is one at least
    for (int d = 1; d < rank; ++d) sizes[d] = m.shape[d];
    for (int a = 0; a < N; ++a) {
      const auto k = static_cast<size_t>(a);
      base[a] = m.operands[k].base;
      dtype[a] = arrays[k]->dtype();
      strides[a][0] = m.operands[k].strides[0];
      for (int d = 1; d < rank; ++d) strides[a][d] = m.operands[k].strides[d];
    }
  }

  /// True if the elements of operand a are contiguous.
  bool contiguous(int a) const {
    return rank == 1 &&
           (sizes[0] <= 1 || strides[a][0] == static_cast<int64_t>(element_size(dtype[a])));
  }
  /// True if operand a is one element, repeated.
  bool uniform(int a) const { return rank == 1 && strides[a][0] == 0; }

  /// at ← the address of element i, in row-major order, in each array.
  __device__ void locate(int64_t i, char* (&at)[N]) const {
    for (int a = 0; a < N; ++a) at[a] = base[a];
#pragma unroll 1  // nine divisions in a row would be most of a kernel's code
    for (int d = rank - 1; d > 0; --d) {
      const Divisor::Result part = sizes[d].divide(i);
      for (int a = 0; a < N; ++a) at[a] += part.rest * strides[a][d];
      i = part.quotient;
    }
    for (int a = 0; a < N; ++a) at[a] += i * strides[a][0];
  }
};

}  // namespace halftape::cuda
