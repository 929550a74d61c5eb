// Checks of indices by the threads that use them. An index out of range is noted for the host.
#pragma once
#include "halftape/core/contract/backend.h"
#include "halftape/cuda/runtime/gpu.h"

namespace halftape::cuda {

/// The indices that an op allows, and the op.
struct Range {
  int64_t low, limit;
  IndexUse use;
  Board* board;

  __device__ bool contains(int64_t value) const { return value >= low && value < limit; }
  /// The first report is kept; later ones are dropped until the host has read it.
  __device__ void report(int64_t value, int64_t position) const {
    Board::BadIndex& note = board->bad_index;
    if (atomicCAS(&note.taken, 0u, 1u) != 0) return;
    note.op = use.op, note.argument = use.argument;
    note.value = value, note.position = position;
    note.low = low, note.limit = limit;
    __threadfence_system();
    *static_cast<volatile unsigned*>(&note.ready) = 1;
  }
};

}  // namespace halftape::cuda
