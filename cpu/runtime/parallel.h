// A small pool over fixed tiles: what a task computes never depends on which thread runs it.
#pragma once
#include <cstdint>

#include "halftape/core/function_ref.h"
#include "halftape/core/machine/threads.h"

namespace halftape::cpu {

/// Calls task(i) for every i in [0, count), on the caller and the pool's threads. An exception of a
/// task reaches the caller after all others have ended. Nested calls run on the calling thread.
void parallel_for(int64_t count, FunctionRef<void(int64_t i)> task);

/// f(begin, end) for ranges of `grain` elements, on the caller and the pool's threads.
template <class F>
void parallel_ranges(int64_t total, int64_t grain, const F& f) {
  parallel_for((total + grain - 1) / grain, [&](int64_t i) {
    const int64_t begin = i * grain;
    f(begin, begin + grain < total ? begin + grain : total);
  });
}

}  // namespace halftape::cpu
