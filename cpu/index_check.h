// Indices are checked before anything is written.
#pragma once
#include <optional>

#include "halftape/core/contract/backend.h"

namespace halftape::cpu {

/// Throws unless low ≤ index < limit everywhere, or `exempt`. A dimension along which the index
/// repeats is looked at once, so that the position is one in what the caller wrote.
void check_index(const Array& index, int64_t low, int64_t limit, IndexUse use,
                 std::optional<int64_t> exempt = {});

}  // namespace halftape::cpu
