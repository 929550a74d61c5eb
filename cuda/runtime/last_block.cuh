// Work that the last block of a launch does, when all others are done: one launch less.
#pragma once
#include "halftape/cuda/runtime/gpu.h"

#include "halftape/cuda/runtime/context.h"

namespace halftape::cuda {

/// Blocks count themselves off. The count is 0 between two launches in a stream.
struct LastBlock {
  unsigned* blocks = nullptr;

  /// In the last block of the grid to get here, true for all of its threads, which then see what
  /// the other blocks have written. Called once, by all threads of all blocks.
  __device__ bool last_block() const {
    __threadfence();
    __syncthreads();  // all of the block have written theirs
    bool last = false;
    if (threadIdx.x == 0) {
      last = atomicAdd(blocks, 1u) == gridDim.x * gridDim.y * gridDim.z - 1;
      if (last) *blocks = 0;
    }
    last = __syncthreads_or(last) != 0;
    __threadfence();
    return last;
  }
};

/// That of the queue's stream.
inline LastBlock ticket(const Queue& q) { return {q.context.ticket(q.stream)}; }

}  // namespace halftape::cuda
