// The matrix product in a kernel of our own, for what the library has no algorithm for: any dtypes,
// any strides. The elements of d are summed along k in order, so they depend on nothing else.
#include "halftape/cuda/gemm/gemm.h"

#include <algorithm>

#include "halftape/cuda/vector/lanes.cuh"

namespace halftape::cuda {
namespace {

constexpr int kEdge = 16;             // of a block of threads
constexpr int kEach = 4;              // rows and columns that a thread computes
constexpr int kTile = kEdge * kEach;  // rows and columns that a block computes
constexpr int kDepth = 16;            // of the factors' parts in shared memory

__device__ inline float multiply_add(float a, float b, float c) { return ::fmaf(a, b, c); }
__device__ inline double multiply_add(double a, double b, double c) { return ::fma(a, b, c); }

__device__ inline char* address(const Matrices& x, int64_t i, int64_t row, int64_t column) {
  return x.base + (i * x.next + row * x.down + column * x.right) *
                      static_cast<int64_t>(element_size(x.dtype));
}

template <class S>
__global__ void multiply_tiles(Product p) {
  __shared__ S a[kDepth][kTile + 1];  // transposed; one more, so that its columns are in all banks
  __shared__ S b[kDepth][kTile];
  const int64_t down = (p.m + kTile - 1) / kTile, across = (p.n + kTile - 1) / kTile;
  const int thread = static_cast<int>(threadIdx.x), x = thread % kEdge, y = thread / kEdge;
  const S alpha = static_cast<S>(p.alpha), beta = static_cast<S>(p.beta);
  for (int64_t tile = blockIdx.x; tile < p.count * down * across; tile += gridDim.x) {
    const int64_t i = tile / (down * across), row = tile / across % down * kTile,
                  column = tile % across * kTile;
    S sum[kEach][kEach] = {};
    for (int64_t depth = 0; depth < p.k; depth += kDepth) {
      for (int e = thread; e < kTile * kDepth; e += kEdge * kEdge) {
        const int64_t r = row + e / kDepth, ra = depth + e % kDepth;
        a[e % kDepth][e / kDepth] =
            r < p.m && ra < p.k ? load<S>(address(p.a, i, r, ra), p.a.dtype) : S(0);
        const int64_t rb = depth + e / kTile, c = column + e % kTile;
        b[e / kTile][e % kTile] =
            rb < p.k && c < p.n ? load<S>(address(p.b, i, rb, c), p.b.dtype) : S(0);
      }
      __syncthreads();
      for (int l = 0; l < kDepth; ++l)
#pragma unroll
        for (int r = 0; r < kEach; ++r)
#pragma unroll
          for (int c = 0; c < kEach; ++c)
            sum[r][c] = multiply_add(a[l][y + r * kEdge], b[l][x + c * kEdge], sum[r][c]);
      __syncthreads();
    }
#pragma unroll
    for (int dr = 0; dr < kEach; ++dr) {
#pragma unroll
      for (int dc = 0; dc < kEach; ++dc) {
        const int64_t r = row + y + dr * kEdge, c = column + x + dc * kEdge;
        if (r >= p.m || c >= p.n) continue;
        char* at = address(p.d, i, r, c);
        S v = alpha * sum[dr][dc];
        if (beta != S(0)) v += beta * load<S>(at, p.d.dtype);
        if (p.bias.base) {
          const int64_t item = static_cast<int64_t>(element_size(p.bias.dtype));
          v += load<S>(p.bias.base + c * p.bias.next * item, p.bias.dtype);
        }
        store(at, p.d.dtype, v);
      }
    }
  }
}

}  // namespace

void multiply_in_kernel(const Queue& q, const Product& p) {
  const int64_t tiles = p.count * ((p.m + kTile - 1) / kTile) * ((p.n + kTile - 1) / kTile);
  const int64_t blocks = std::min(tiles, int64_t{8} * q.context.multiprocessors());
  const auto kernel = p.a.dtype == kFloat64 ? multiply_tiles<double> : multiply_tiles<float>;
  launch(q, "gemm", kernel, dim3(static_cast<unsigned>(blocks)), kEdge * kEdge, 0, p);
}

}  // namespace halftape::cuda
