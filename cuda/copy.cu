// Copies between any strides and dtypes, constants, and random numbers.
#include <algorithm>
#include <cmath>

#include "halftape/core/formula/philox.h"
#include "halftape/cuda/copy.h"
#include "halftape/cuda/cuda_backend.h"
#include "halftape/cuda/vector/map.cuh"
#include "halftape/cuda/vector/map_runs.cuh"
#include "halftape/cuda/vector/runs.cuh"

namespace halftape::cuda {
namespace {

// Bytes from which the copy engine is faster. A node of a graph that copies costs more than one
// with a small kernel.
constexpr size_t kCopiedByEngine = size_t{1} << 20;

/// Copies bytes between addresses that are aligned to 16 bytes.
__global__ void copy_words(char* to, const char* from, int64_t bytes) {
  const int64_t words = bytes / 16;
  for (int64_t i = thread_number(); i < words; i += thread_count())
    reinterpret_cast<uint4*>(to)[i] = reinterpret_cast<const uint4*>(from)[i];
  for (int64_t i = words * 16 + thread_number(); i < bytes; i += thread_count()) to[i] = from[i];
}

struct Same {
  __device__ void operator()(float (&x)[2]) const { x[0] = x[1]; }
};

/// Copies elements of one dtype. T: an unsigned type of their size.
template <class T>
__global__ void copy_elements(const __grid_constant__ Layout<2> a) {
  for_elements(a, [](int64_t, char* const(&at)[2]) {
    *reinterpret_cast<T*>(at[0]) = *reinterpret_cast<const T*>(at[1]);
  });
}

/// Rows that are contiguous where they are written, for copies by runs of eight elements.
struct CopiedRows {
  Layout<2> starts;
  int64_t length, step;  // elements of a row; bytes from one to the next where they are read
  Divisor runs;          // of a row
  bool packed[2];        // runs are contiguous and begin at aligned addresses

  explicit CopiedRows(const Layout<2>& whole)
      : starts(whole), length(whole.sizes[whole.rank - 1]), runs((length + kPack - 1) / kPack) {
    const int last = whole.rank - 1;
    step = whole.strides[1][last];
    starts.rank = std::max(1, last);
    starts.numel = whole.numel / length;
    for (int a = 0; a < 2; ++a) {
      if (last == 0) starts.strides[a][0] = 0;
      auto addresses = reinterpret_cast<int64_t>(whole.base[a]);
      for (int d = 0; d < starts.rank; ++d) addresses |= starts.strides[a][d];
      packed[a] = whole.strides[a][last] == static_cast<int64_t>(element_size(whole.dtype[a])) &&
                  addresses % 16 == 0;
    }
  }
};
template <class T>
__global__ void copy_runs(const __grid_constant__ CopiedRows a) {
  for (int64_t i = thread_number(); i < a.starts.numel * a.runs.size; i += thread_count()) {
    const Divisor::Result run = a.runs.divide(i);
    const int64_t first = run.rest * kPack, left = a.length - first;
    char* at[2];
    a.starts.locate(run.quotient, at);
    const char* from = at[1] + first * a.step;
    T* to = reinterpret_cast<T*>(at[0]) + first;
    Pack<T> x;
    if (a.packed[1] && left >= kPack)
      x = *reinterpret_cast<const Pack<T>*>(from);
    else
      unrolled<kPack>([&](int e) {
        if (e < left) x.v[e] = *reinterpret_cast<const T*>(from + e * a.step);
      });
    if (a.packed[0] && left >= kPack)
      *reinterpret_cast<Pack<T>*>(to) = x;
    else
      unrolled<kPack>([&](int e) {
        if (e < left) to[e] = x.v[e];
      });
  }
}

constexpr int kEdge = 32;  // of a tile

/// Matrices that are contiguous by rows where they are written, and by columns where they are read.
struct Transposition {
  Layout<2> starts;  // of the matrices
  int64_t rows, columns;
  int64_t down, right;  // bytes: to the next row in the result, to the next column in the operand
  Divisor tiles_down, tiles_right;

  /// Dimension d of `whole` has the rows.
  Transposition(const Layout<2>& whole, int d)
      : starts(whole),
        rows(whole.sizes[d]),
        columns(whole.sizes[whole.rank - 1]),
        down(whole.strides[0][d]),
        right(whole.strides[1][whole.rank - 1]),
        tiles_down((rows + kEdge - 1) / kEdge),
        tiles_right((columns + kEdge - 1) / kEdge) {
    int kept = 0;
    for (int e = 0; e < whole.rank - 1; ++e) {
      if (e == d) continue;
      starts.sizes[kept] = whole.sizes[e];
      for (int a = 0; a < 2; ++a) starts.strides[a][kept] = whole.strides[a][e];
      ++kept;
    }
    starts.rank = std::max(1, kept);
    starts.numel = whole.numel / (rows * columns);
    if (kept == 0) starts.strides[0][0] = starts.strides[1][0] = 0;
  }
  int64_t tiles() const { return starts.numel * tiles_down.size * tiles_right.size; }
};
/// A block moves a tile at a time, so that neighbouring threads read and write neighbours.
template <class T>
__global__ void copy_tiles(const __grid_constant__ Transposition t) {
  __shared__ T tile[kEdge][kEdge + 1];  // one more, so that its columns are in all banks
  const int64_t tiles = t.starts.numel * t.tiles_down.size * t.tiles_right.size;
  const int x = static_cast<int>(threadIdx.x) % kEdge, y = static_cast<int>(threadIdx.x) / kEdge;
  constexpr int kRows = kThreads / kEdge;
  for (int64_t i = blockIdx.x; i < tiles; i += gridDim.x) {
    const Divisor::Result across = t.tiles_right.divide(i),
                          along = t.tiles_down.divide(across.quotient);
    const int64_t row = along.rest * kEdge, column = across.rest * kEdge;
    char* at[2];
    t.starts.locate(along.quotient, at);
    unrolled<kEdge / kRows>([&](int k) {
      const int c = y + k * kRows;
      if (row + x < t.rows && column + c < t.columns)
        tile[c][x] = reinterpret_cast<const T*>(at[1] + (column + c) * t.right)[row + x];
    });
    __syncthreads();
    unrolled<kEdge / kRows>([&](int k) {
      const int r = y + k * kRows;
      if (row + r < t.rows && column + x < t.columns)
        reinterpret_cast<T*>(at[0] + (row + r) * t.down)[column + x] = tile[x][r];
    });
    __syncthreads();
  }
}

template <class From>
__global__ void convert_elements(const __grid_constant__ Layout<2> a) {
  for_elements(a, [&](int64_t, char* const(&at)[2]) {
    store(at[0], a.dtype[0], *reinterpret_cast<const From*>(at[1]));
  });
}

/// T: an unsigned type of an element's size.
template <class T>
__global__ void fill_elements(Layout<1> a, T bits) {
  for_elements(a, [=](int64_t, char* const(&at)[1]) { *reinterpret_cast<T*>(at[0]) = bits; });
}

struct Draw {
  Distribution kind;
  double a, b;
  RandomKey key;

  /// Elements 4·block to 4·block + 3, before they are rounded, by the CPU's formulas
  /// (cpu/copy.cpp). All of them come from one block of Philox, integers from two.
  __device__ void four(int64_t block, double (&x)[4]) const {
    const auto counter = static_cast<uint64_t>(block);
    const PhiloxBlock words = philox(key.seed, key.offset + counter, 0);
    if (kind == Distribution::Normal) {
      unrolled<2>([&](int k) {
        const double u = (words.v[2 * k] + 0.5) * 0x1p-32, w = words.v[2 * k + 1] * 0x1p-32;
        const double r = ::sqrt(-2 * ::log(u)), angle = 6.283185307179586477 * w;
        x[2 * k] = a + b * r * ::cos(angle);
        x[2 * k + 1] = a + b * r * ::sin(angle);
      });
    } else if (kind == Distribution::Bits) {
      const PhiloxBlock others = philox(key.seed, key.offset + counter, 1);
      unrolled<4>([&](int k) { x[k] = integer_between(a, b, words.v[k], others.v[k]); });
    } else {
      unrolled<4>([&](int k) {
        const auto u = static_cast<double>(uniform01(words.v[k]));
        x[k] = kind == Distribution::Uniform ? a + (b - a) * u : u < a ? 1 : 0;
      });
    }
  }
};

__global__ void draw_elements(Layout<1> y, Draw draw) {
  if (const RandomKey* live = draw.key.live) {
    draw.key.seed += live->seed;
    draw.key.offset += live->offset;
  }
  for (int64_t block = thread_number(); block * 4 < y.numel; block += thread_count()) {
    double drawn[4];
    draw.four(block, drawn);
    unrolled<4>([&](int k) {
      const int64_t i = block * 4 + k;
      if (i >= y.numel) return;
      char* at[1];
      y.locate(i, at);
      visit(y.dtype[0], [&](auto t) {
        using T = typename decltype(t)::type;
        T x = as<T>(drawn[k]);
        // Rounding may reach the excluded upper end.
        if (draw.kind == Distribution::Uniform && as<double>(x) >= draw.b && draw.a < draw.b)
          x = as<T>(draw.a);
        *reinterpret_cast<T*>(at[0]) = x;
      });
    });
  }
}

/// x with its dimensions in the order in which `to` lies in memory.
Array as_it_lies(const Array& to, const Array& x) {
  Dims order;
  for (int d = 0; d < to.dim(); ++d) order.push_back(d);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    const auto stride = [&](int64_t d) { return std::abs(to.strides()[static_cast<int>(d)]); };
    return stride(a) > stride(b);
  });
  return x.permute(order);
}

/// Copies elements of one dtype between any strides.
void move(const Queue& q, const Layout<2>& a) {
  const int last = a.rank - 1;
  const auto item = static_cast<int64_t>(element_size(a.dtype[0]));
  const bool rows = a.strides[0][last] == item || a.sizes[last] == 1;
  int turned = -1;  // the dimension along which the operand is contiguous
  for (int d = 0; d < last; ++d)
    if (a.strides[1][d] == item && a.sizes[d] >= kPack) turned = d;
  with_bytes(static_cast<size_t>(item), [&](auto t) {
    using T = typename decltype(t)::type;
    if constexpr (sizeof(T) > 8) {  // as no dtype is
    } else if (rows && turned >= 0 && a.strides[1][last] != item && a.sizes[last] >= kPack) {
      const Transposition matrices(a, turned);
      launch_for(q, matrices.tiles() * kThreads, "copy", copy_tiles<T>, matrices);
    } else if (rows && a.sizes[last] >= kPack) {
      const CopiedRows by_runs(a);
      launch_for(q, by_runs.starts.numel * by_runs.runs.size, "copy", copy_runs<T>, by_runs);
    } else {
      launch_for(q, a.numel, "copy", copy_elements<T>, a);
    }
  });
}

constexpr const char* kOtherArchitecture = "the backend was not built for this GPU's architecture";

}  // namespace

std::string architecture_obstacle(int capability) {
#if defined(__CUDA_ARCH_LIST__)
  constexpr int built_for[] = {__CUDA_ARCH_LIST__};  // ascending; 750 is 7.5
#else
  constexpr int built_for[] = {750};  // the rig
#endif
  if (10 * capability >= built_for[0]) return "";
  return std::string(kOtherArchitecture) + " (sm_" + std::to_string(capability) + ")";
}

std::string kernels_obstacle() {
  // This call fails if there is no code for the GPU's architecture.
  cudaFuncAttributes unused;
  const cudaError_t e =
      cudaFuncGetAttributes(&unused, reinterpret_cast<const void*>(&fill_elements<uint32_t>));
  (void)cudaGetLastError();
  if (e == cudaSuccess) return "";
  const std::string name = std::string(" (") + cudaGetErrorName(e) + ")";
  if (e == cudaErrorNoKernelImageForDevice || e == cudaErrorInvalidDeviceFunction)
    return kOtherArchitecture + name;
  return cudaGetErrorString(e) + name;
}

void copy(const Array& to, const Array& from) {
  if (to.numel() == 0) return;
  const bool same = to.dtype() == from.dtype();
  const Layout<2> layout({&to, &from});
  const size_t bytes = static_cast<size_t>(to.numel()) * element_size(to.dtype());
  const bool flat = same && layout.contiguous(0) && layout.contiguous(1);
  if (flat && bytes < kCopiedByEngine && is_aligned(to.raw()) && is_aligned(from.raw())) {
    const Queue q = queue(to);
    launch_for(q, static_cast<int64_t>(bytes + 15) / 16, "copy", copy_words,
               static_cast<char*>(to.raw()), static_cast<const char*>(from.raw()),
               static_cast<int64_t>(bytes));
    return;
  }
  if (flat && bytes >= kCopiedByEngine) {
    const Queue q = queue(to);
    q.context.launched(
        "copy", cudaMemcpyAsync(to.raw(), from.raw(), bytes, cudaMemcpyDeviceToDevice, q.stream),
        q.stream);
    return;
  }
  const Array ordered_to = as_it_lies(to, to), ordered_from = as_it_lies(to, from);
  const Layout<2> ordered({&ordered_to, &ordered_from});
  if (same) return move(queue(to), ordered);
  if (packs(to.dtype()) && packs(from.dtype())) {  // through float, which is exact
    const int last = ordered.rank - 1;
    const bool rows = ordered.strides[0][last] == static_cast<int64_t>(element_size(to.dtype())) &&
                      ordered.sizes[last] >= kPack;
    if (rows && !(layout.contiguous(0) && (layout.contiguous(1) || layout.uniform(1))))
      map_by_runs<float, 2>("copy", {ordered_to, ordered_from}, {0, 0}, Same{});
    else
      map<float, 2>("copy", {&to, &from}, Same{});
    return;
  }
  visit(from.dtype(), [&](auto t) {
    launch_for(queue(to), ordered.numel, "copy", convert_elements<typename decltype(t)::type>,
               ordered);
  });
}

void fill(const Array& to, Scalar value) {
  if (to.numel() == 0) return;
  const Queue q = queue(to);
  const Layout<1> layout({&to});
  visit(to.dtype(), [&](auto t) {
    const auto element = value.as_element<typename decltype(t)::type>();
    with_bytes(sizeof(element), [&](auto u) {
      using T = typename decltype(u)::type;
      if constexpr (sizeof(T) == sizeof(element))
        launch_for(q, layout.numel, "fill", fill_elements<T>, layout, std::bit_cast<T>(element));
    });
  });
}

void CudaBackend::copy(const Array& to, const Array& from) { cuda::copy(to, from); }
void CudaBackend::fill(const Array& to, Scalar value) { cuda::fill(to, value); }

void CudaBackend::random(const Array& y, Distribution kind, double a, double b, RandomKey key) {
  if (y.numel() == 0) return;
  const Layout<1> layout({&y});
  launch_for(queue(y), (layout.numel + 3) / 4, "random", draw_elements, layout,
             Draw{kind, a, b, key});
}

}  // namespace halftape::cuda
