// Lists of arrays in few launches: as many at a time as a kernel's parameters have room for.
#pragma once
#include <vector>

#include "halftape/cuda/vector/lanes.cuh"
#include "halftape/cuda/vector/layout.h"

namespace halftape::cuda {

inline constexpr int64_t kPerBlock = kThreads * kPack;  // elements

/// N arrays of one shape that lie one element behind the other, of dtypes that travel in packs.
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
      4096 - 256;  // 4 KB is all that sm_75 has; the rest is for others
  static constexpr int kMost = (kBytes - 8) / (sizeof(Entry) + sizeof(unsigned));
  int count;
  unsigned first_block[kMost + 1];
  Entry entries[kMost];

  /// The entry at which a block works.
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

/// f(chunk) for all of the list, in its order.
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
    flat = flat && packs(layout.dtype[a]) && layout.contiguous(a) &&
           reinterpret_cast<uintptr_t>(layout.base[a]) % 16 == 0;
  return flat;
}
template <int N>
Flat<N> flat(const Layout<N>& layout) {
  Flat<N> f{{}, layout.numel, {}};
  for (int a = 0; a < N; ++a) f.base[a] = layout.base[a], f.dtype[a] = layout.dtype[a];
  return f;
}

}  // namespace halftape::cuda
