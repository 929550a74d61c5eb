// Work that the last block of a launch does when all others are done, which saves a launch.
#pragma once
#include "halftape/cuda/runtime/gpu.h"

#include "halftape/cuda/runtime/context.h"

namespace halftape::cuda {

/// Counts the blocks of a launch that are done. The count is 0 between two launches in a stream.
struct BlockCounter {
  unsigned* count = nullptr;

  /// Called once, by all threads of all blocks. True for all threads of the last block to call it,
  /// which then see what the other blocks have written.
  __device__ bool is_last() const {
    __threadfence();
    __syncthreads();  // all threads of the block have written
    bool last = false;
    if (threadIdx.x == 0) {
      last = atomicAdd(count, 1u) == gridDim.x * gridDim.y * gridDim.z - 1;
      if (last) *count = 0;
    }
    last = __syncthreads_or(last) != 0;
    __threadfence();
    return last;
  }
};

/// The counter of the queue's stream.
inline BlockCounter block_counter(const Queue& q) { return {q.context.block_count(q.stream)}; }

}  // namespace halftape::cuda
