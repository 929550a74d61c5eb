// Our own kernel of the matrix product, for dtypes and strides without an algorithm in the library.
// An element of d is a sum along k in order, so it depends on nothing else. And ReLU with a bit
// mask, and GELU, for products whose epilogue in the library is not right.
#include "halftape/cuda/gemm/gemm.h"

#include <algorithm>

#include "halftape/core/formula/unary.h"
#include "halftape/cuda/vector/chunk.cuh"
#include "halftape/cuda/vector/map.cuh"
#include "halftape/cuda/vector/runs.cuh"

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
        if (beta != S(0)) v += beta * load_noinline<S>(at, p.d.dtype);
        if (p.bias.base) {
          const int64_t item = static_cast<int64_t>(element_size(p.bias.dtype));
          v += load_noinline<S>(p.bias.base + c * p.bias.next * item, p.bias.dtype);
        }
        store_noinline(at, p.d.dtype, v);
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

namespace {

/// Contiguous rows of n elements, each with `width` bytes of mask.
struct Masked {
  char* d;
  Dtype dtype;
  uint8_t* mask;
  int64_t rows, n, width;
  bool packs;  // elements are moved in packs
};

/// A thread takes a byte of the mask and its eight elements at a time.
template <class S>
__global__ void relu_with_mask(Masked a, bool gradient) {
  const int64_t across = (a.n + kPack - 1) / kPack;
  const auto item = static_cast<int64_t>(element_size(a.dtype));
  for (int64_t i = thread_number(); i < a.rows * across; i += thread_count()) {
    const int64_t row = i / across, first = i % across * kPack;
    const int count = static_cast<int>(a.n - first < kPack ? a.n - first : kPack);
    char* at = a.d + (row * a.n + first) * item;
    uint8_t& mask = a.mask[row * a.width + first / kPack];
    S x[kPack] = {};
    bool whole = false;
    if constexpr (std::is_same_v<S, float>) whole = a.packs;
    if constexpr (std::is_same_v<S, float>)
      if (whole) load_pack(x, a.d, a.dtype, i);
    // Every index is a constant, so that x stays in registers.
    const auto each = [count](auto&& f) {
      unrolled<kPack>([&](int k) {
        if (k < count) f(k);
      });
    };
    if (!whole) each([&](int k) { x[k] = load<S>(at + k * item, a.dtype); });
    unsigned bits = gradient ? mask : 0u;
    each([&](int k) {
      if (!gradient && !(x[k] <= 0)) bits |= 1u << k;
      if (!(bits >> k & 1u)) x[k] = 0;
    });
    if (!gradient) mask = static_cast<uint8_t>(bits);
    if constexpr (std::is_same_v<S, float>)
      if (whole) store_pack(x, a.d, a.dtype, i);
    if (!whole) each([&](int k) { store(at + k * item, a.dtype, x[k]); });
  }
}

}  // namespace

void masked_relu(const Array& d, const Array& mask, bool gradient) {
  if (d.numel() == 0) return;
  const Queue q = queue(d);
  const int64_t n = d.size(d.dim() - 1), rows = d.numel() / n;
  const bool pack = packs(d.dtype()) && n % kPack == 0 && is_aligned(d.raw());
  const Masked a{static_cast<char*>(d.raw()), d.dtype(), mask.data<uint8_t>(), rows, n,
                 mask.size(mask.dim() - 1),   pack};
  launch_for(q, rows * ((n + kPack - 1) / kPack), gradient ? "relu gradient" : "relu",
             d.dtype() == kFloat64 ? relu_with_mask<double> : relu_with_mask<float>, a, gradient);
}

namespace {

/// GELU of v and v itself, both rounded. S: in which to compute.
template <class S>
__global__ void gelu_elements(Layout<3> a) {
  for_elements(a, [&](int64_t, char* const(&at)[3]) {
    const S v = load<S>(at[2], a.dtype[2]);
    store(at[0], a.dtype[0], formula::GeluTanh::f(v));
    store(at[1], a.dtype[1], v);
  });
}
__global__ void gelu_packs(Flat<3> a) {
  for (int64_t p = thread_number(); p < a.numel / kPack; p += thread_count()) {
    float v[kPack], y[kPack];
    load_pack(v, a.base[2], a.dtype[2], p);
    for (int i = 0; i < kPack; ++i) y[i] = formula::GeluTanh::f(v[i]);
    store_pack(y, a.base[0], a.dtype[0], p);
    store_pack(v, a.base[1], a.dtype[1], p);
  }
}

}  // namespace

void gelu_and_input(const Array& d, const Array& aux, const Array& v) {
  if (d.numel() == 0) return;
  const Queue q = queue(d);
  const Layout<3> layout({&d, &aux, &v});
  if (lies_flat(layout) && layout.numel % kPack == 0)
    launch_for(q, layout.numel / kPack, "gelu", gelu_packs, flat(layout));
  else
    launch_for(q, layout.numel, "gelu",
               d.dtype() == kFloat64 ? gelu_elements<double> : gelu_elements<float>, layout);
}

}  // namespace halftape::cuda
