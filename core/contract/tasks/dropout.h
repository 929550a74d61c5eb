// Dropout, without a mask in memory.
#pragma once
#include "halftape/core/array.h"
#include "halftape/core/random/random.h"

namespace halftape {

/// y = x·kept / (1 − p), of one floating dtype. `kept` is what random() with `key` makes of a
/// contiguous array of x's shape and dtype: 1 with probability 1 − p, else 0. The gradient is the
/// same task with the same key.
struct DropoutTask {
  Array y, x;
  double p;  // in (0, 1)
  RandomKey key;
  Array live = {};  // what key.live leads to, if anything
};

}  // namespace halftape
