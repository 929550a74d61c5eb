// Copies between any strides and dtypes, constants, and random numbers.
#include <cmath>

#include "halftape/core/formula/philox.h"
#include "halftape/cuda/copy.h"
#include "halftape/cuda/cuda_backend.h"
#include "halftape/cuda/vector/map.cuh"
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
__global__ void copy_elements(Layout<2> a) {
  for_elements(a, [](int64_t, char* const(&at)[2]) {
    *reinterpret_cast<T*>(at[0]) = *reinterpret_cast<const T*>(at[1]);
  });
}
template <class From>
__global__ void convert_elements(Layout<2> a) {
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
      const PhiloxBlock low = philox(key.seed, ~key.offset + counter, 0);
      unrolled<4>([&](int k) {
        const double whole = ::floor(a + (b - a) * ((words.v[k] + low.v[k] * 0x1p-32) * 0x1p-32));
        x[k] = whole < b - 1 ? whole : b - 1;
      });
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

}  // namespace

std::string kernels_obstacle() {
  // This call fails if there is no code for the GPU's architecture.
  cudaFuncAttributes unused;
  const cudaError_t e =
      cudaFuncGetAttributes(&unused, reinterpret_cast<const void*>(&fill_elements<uint32_t>));
  (void)cudaGetLastError();
  if (e == cudaSuccess) return "";
  return std::string("the backend was not built for this GPU's architecture (") +
         cudaGetErrorName(e) + ")";
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
  if (!same && packs(to.dtype()) && packs(from.dtype())) {
    map<float, 2>("copy", {&to, &from}, Same{});  // through float, which is exact
    return;
  }
  const Queue q = queue(to);
  if (same)
    with_bytes(element_size(to.dtype()), [&](auto t) {
      launch_for(q, layout.numel, "copy", copy_elements<typename decltype(t)::type>, layout);
    });
  else
    visit(from.dtype(), [&](auto t) {
      launch_for(q, layout.numel, "copy", convert_elements<typename decltype(t)::type>, layout);
    });
}

void fill(const Array& to, Scalar value) {
  if (to.numel() == 0) return;
  const Queue q = queue(to);
  const Layout<1> layout({&to});
  visit(to.dtype(), [&](auto t) {
    const auto element = value.to<typename decltype(t)::type>();
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
