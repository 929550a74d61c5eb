// Lists of arrays in few launches, each of as many arrays as fit into a kernel's parameters.
#pragma once
#include <vector>

#include "halftape/cuda/vector/lanes.cuh"
#include "halftape/cuda/vector/layout.h"

namespace halftape::cuda {

inline constexpr int64_t kPerBlock = kThreads * kPack;  // elements

/// N contiguous arrays of one shape, of dtypes that are moved in packs.
template <int N>
struct Flat {
  char* base[N];
  int64_t numel;
  Dtype dtype[N];
};

/// As many entries of a list as fit into a kernel's parameters, with the first block of each.
template <class Entry>
struct Chunk {
  static constexpr size_t kBytes =
      4096 - 256;  // parameters have 4 KB before CUDA 12.1; 256 bytes are for the others
  static constexpr int kMost = (kBytes - 8) / (sizeof(Entry) + sizeof(unsigned));
  int count;
  unsigned first_block[kMost + 1];
  Entry entries[kMost];

  /// The index of the entry that a block works on.
  __device__ int entry_of(unsigned block) const {
    int low = 0;
    for (int high = count; high - low > 1;) {
      const int middle = (low + high) / 2;
      (first_block[middle] <= block ? low : high) = middle;
    }
    return low;
  }
  __host__ __device__ unsigned blocks() const { return first_block[count]; }
};

/// Calls f(chunk) for the whole list, in order.
template <class Entry, class F>
void in_chunks(const std::vector<Entry>& list, const F& f) {
  using Part = Chunk<Entry>;
  for (size_t begin = 0; begin < list.size(); begin += Part::kMost) {
    Part part{};
    while (part.count < Part::kMost && begin + static_cast<size_t>(part.count) < list.size()) {
      const Entry& e = list[begin + static_cast<size_t>(part.count)];
      const int64_t blocks = (e.arrays.numel + kPerBlock - 1) / kPerBlock;
      part.entries[part.count] = e;
      part.first_block[part.count + 1] =
          part.first_block[part.count] + static_cast<unsigned>(blocks);
      ++part.count;
    }
    f(part);
  }
}

template <int N>
bool lies_flat(const Layout<N>& layout) {
  bool flat = true;
  for (int a = 0; a < N; ++a)
    flat = flat && packs(layout.dtype[a]) && layout.contiguous(a) && is_aligned(layout.base[a]);
  return flat;
}
template <int N>
Flat<N> flat(const Layout<N>& layout) {
  Flat<N> f{{}, layout.numel, {}};
  for (int a = 0; a < N; ++a) f.base[a] = layout.base[a], f.dtype[a] = layout.dtype[a];
  return f;
}

}  // namespace halftape::cuda
