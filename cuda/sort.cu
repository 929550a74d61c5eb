// The order that sorts each line of a dimension, and the positions of nonzero elements.
//
// Elements of any dtype are sorted as 64-bit keys of the same order. Equal keys keep the order of
// their positions, so that there is one result. A block sorts kTile neighbours in shared memory;
// sorted stretches of a longer line are merged in pairs.
#include <bit>

#include "halftape/core/formula/reduce.h"

#include "halftape/cuda/cuda_backend.h"
#include "halftape/cuda/vector/map.cuh"
#include "halftape/cuda/vector/runs.cuh"

namespace halftape::cuda {
namespace {

constexpr int kTile = 1024;

struct Sort {
  Layout<2> lines;  // their first elements, in y and in x
  int64_t step[2];  // bytes
  int64_t count;    // elements of a line
  int64_t wanted;   // elements of the order to write, from its beginning
  bool descending;

  __device__ void put(char* line, int64_t rank, int64_t place) const {
    if (rank < wanted) *reinterpret_cast<int64_t*>(line + rank * step[0]) = place;
  }
};

/// Sorted stretches of contiguous lines; null if a tile is a whole line.
struct Stretches {
  uint64_t* keys;
  int64_t* places;
};

/// NaN is greater than every number, and zeros are equal.
__device__ uint64_t key_of(const char* at, Dtype dtype, bool descending) {
  constexpr uint64_t sign = uint64_t{1} << 63;
  uint64_t key;
  if (is_floating_point(dtype)) {
    const double x = load<double>(at, dtype);
    const auto bits = std::bit_cast<uint64_t>(x == 0 ? 0.0 : x);
    key = x != x ? ~uint64_t{0} : bits & sign ? ~bits : bits | sign;
  } else {
    key = static_cast<uint64_t>(load<int64_t>(at, dtype)) ^ sign;
  }
  return descending ? ~key : key;
}

/// Sorts tiles of `size` elements, a power of two, by a bitonic network in shared memory. Beyond
/// the end of a line are the greatest keys.
__global__ void __launch_bounds__(kTile / 2) sort_tiles(Sort a, int size, Stretches to) {
  __shared__ uint64_t keys[kTile];
  __shared__ int places[kTile];  // within the tile
  const int64_t tiles = (a.count + size - 1) / size;
  for (int64_t unit = blockIdx.x; unit < a.lines.numel * tiles; unit += gridDim.x) {
    const Division u(unit, tiles);
    char* at[2];
    a.lines.locate(u.quotient, at);
    const int64_t begin = u.rest * size;
    for (int i = threadIdx.x; i < size; i += blockDim.x) {
      keys[i] = begin + i < a.count
                    ? key_of(at[1] + (begin + i) * a.step[1], a.lines.dtype[1], a.descending)
                    : ~uint64_t{0};
      places[i] = i;
    }
    __syncthreads();
    for (int span = 2; span <= size; span *= 2) {
      for (int reach = span / 2; reach > 0; reach /= 2) {
        for (int t = threadIdx.x; t < size / 2; t += blockDim.x) {
          const int i = 2 * t - (t & (reach - 1)), j = i + reach;
          const bool above = keys[i] > keys[j] || (keys[i] == keys[j] && places[i] > places[j]);
          if (above == ((i & span) == 0)) {
            const uint64_t key = keys[i];
            const int place = places[i];
            keys[i] = keys[j], places[i] = places[j];
            keys[j] = key, places[j] = place;
          }
        }
        __syncthreads();
      }
    }
    for (int i = threadIdx.x; i < size && begin + i < a.count; i += blockDim.x) {
      if (to.keys) {
        to.keys[u.quotient * a.count + begin + i] = keys[i];
        to.places[u.quotient * a.count + begin + i] = begin + places[i];
      } else {
        a.put(at[0], i, places[i]);
      }
    }
    // No barrier: the next unit writes where this thread has just read.
  }
}

/// The number of n sorted keys that are less than `key`, or equal to it if `equal`.
__device__ int64_t before(const uint64_t* keys, int64_t n, uint64_t key, bool equal) {
  int64_t low = 0;
  while (low < n) {
    const int64_t middle = low + (n - low) / 2;
    if (keys[middle] < key || (equal && keys[middle] == key))
      low = middle + 1;
    else
      n = middle;
  }
  return low;
}

/// Merges pairs of sorted stretches of `width`: an element's new rank is the sum of its ranks in
/// both. The last merge writes y.
__global__ void merge_stretches(Sort a, int64_t width, Stretches from, Stretches to) {
  for (int64_t e = thread_number(); e < a.lines.numel * a.count; e += thread_count()) {
    const Division u(e, a.count);
    const int64_t line = u.quotient * a.count, i = u.rest, begin = i & ~(2 * width - 1);
    const int64_t middle = begin + width < a.count ? begin + width : a.count;
    const int64_t end = middle + width < a.count ? middle + width : a.count;
    const uint64_t key = from.keys[e];
    const int64_t rank =
        i < middle
            ? i + before(from.keys + line + middle, end - middle, key, false)
            : i - (middle - begin) + before(from.keys + line + begin, middle - begin, key, true);
    if (to.keys) {
      to.keys[line + rank] = key;
      to.places[line + rank] = from.places[e];
    } else {
      char* at[2];
      a.lines.locate(u.quotient, at);
      a.put(at[0], rank, from.places[e]);
    }
  }
}

}  // namespace

void CudaBackend::argsort(const Array& y, const Array& x, int dim, bool descending) {
  if (y.numel() == 0) return;
  if (x.dim() == 0) return argsort(y.unsqueeze(0), x.unsqueeze(0), 0, descending);
  const Queue q = queue(x);
  const Array to = y.select(dim, 0), from = x.select(dim, 0);
  Sort a{Layout<2>({&to, &from}), {}, x.size(dim), y.size(dim), descending};
  a.step[0] = y.strides()[dim] * static_cast<int64_t>(sizeof(int64_t));
  a.step[1] = x.strides()[dim] * static_cast<int64_t>(element_size(x.dtype()));

  const int size =
      static_cast<int>(std::bit_ceil(static_cast<uint64_t>(std::min<int64_t>(a.count, kTile))));
  const int64_t lines = a.lines.numel, tiles = (a.count + size - 1) / size;
  const int64_t most = int64_t{16} * q.context.multiprocessors();
  // Two of each: a merge reads one and writes the other.
  const Shape shape = tiles == 1 ? Shape{0} : Shape{2, lines, a.count};
  const Array keys(shape, kInt64, x.device()), places(shape, kInt64, x.device());
  const auto half = [&](int64_t k) {
    return Stretches{reinterpret_cast<uint64_t*>(keys.data<int64_t>()) + k * lines * a.count,
                     places.data<int64_t>() + k * lines * a.count};
  };
  launch(q, "argsort", sort_tiles, dim3(static_cast<unsigned>(std::min(lines * tiles, most))),
         static_cast<unsigned>(std::max(size / 2, kWarp)), 0, a, size,
         tiles == 1 ? Stretches{} : half(0));
  int64_t now = 0;
  for (int64_t width = size; width < a.count; width *= 2, now = 1 - now)
    launch_for(q, lines * a.count, "argsort", merge_stretches, a, width, half(now),
               2 * width < a.count ? half(1 - now) : Stretches{});
}

namespace {

struct Sizes {
  int rank;
  int64_t size[kMaxDims];
};

/// A warp for a segment of x. The first launch counts each segment; after a scan of the counts, the
/// second knows the row of y for the first position of each segment.
__global__ void find_nonzero(Layout<1> x, const __grid_constant__ Sizes sizes, int64_t* counts,
                             int64_t* y) {
  const int lane = threadIdx.x % kWarp;
  const int64_t segments = (x.numel + kSegment - 1) / kSegment;
  for (int64_t s = thread_number() / kWarp; s < segments; s += thread_count() / kWarp) {
    int64_t found = y && s > 0 ? counts[s - 1] : 0;
    const int64_t end = (s + 1) * kSegment < x.numel ? (s + 1) * kSegment : x.numel;
    for (int64_t first = s * kSegment; first < end; first += kWarp) {
      const int64_t i = first + lane;
      bool hit = false;
      if (i < end) {
        char* at[1];
        x.locate(i, at);
        hit = load<bool>(at[0], x.dtype[0]);
      }
      const unsigned hits = __ballot_sync(kWholeWarp, hit);
      if (y && hit) {
        const int64_t row = found + __popc(hits & ((1u << lane) - 1));
        int64_t rest = i;
        for (int d = sizes.rank - 1; d >= 0; --d) {
          const Division u(rest, sizes.size[d]);
          y[row * sizes.rank + d] = u.rest;
          rest = u.quotient;
        }
      }
      found += __popc(hits);
    }
    if (!y && lane == 0) counts[s] = found;
  }
}

}  // namespace

void CudaBackend::nonzero(const Array& y, const Array& x) {
  if (y.numel() == 0) return;
  const Queue q = queue(x);
  const Layout<1> from({&x});
  Sizes sizes{x.dim(), {}};
  for (int d = 0; d < x.dim(); ++d) sizes.size[d] = x.size(d);
  const int64_t segments = (from.numel + kSegment - 1) / kSegment;
  const Array counts({segments}, kInt64, x.device());
  const dim3 blocks = blocks_for(q, segments * kWarp);
  launch(q, "nonzero", find_nonzero, blocks, kThreads, 0, from, sizes, counts.data<int64_t>(),
         nullptr);
  scan(ReduceOps::index<formula::Sum>(), counts, counts, 0, false);
  launch(q, "nonzero", find_nonzero, blocks, kThreads, 0, from, sizes, counts.data<int64_t>(),
         y.data<int64_t>());
}

}  // namespace halftape::cuda
