// A sum over all ranks, along a ring of them.
#pragma once
#include <cstddef>
#include <cstdint>

#include "halftape/distributed/gloo/reduce.h"
#include "halftape/distributed/gloo/wire.h"

namespace halftape::distributed {

/// Replaces `count` elements of `element_size` bytes by what `reduce` makes of those of all ranks.
/// Each rank sends and receives 2 (n - 1) / n of the bytes. Throws Error as Wire::finish() does.
void ring(Wire& wire, void* elements, size_t count, size_t element_size, Reduction* reduce,
          uint64_t tag, const Deadline& deadline);

}  // namespace halftape::distributed
