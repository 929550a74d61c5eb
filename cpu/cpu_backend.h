// The CPU's side of the contract (core/contract/backend.h): calls run at once, on the caller and
// the pool. Each member is defined in the file of its family of kernels.
#pragma once
#include <optional>

#include "halftape/core/contract/backend.h"

namespace halftape::cpu {

class CpuBackend final : public Backend {
 public:
#define HALFTAPE_CALL override
#include "halftape/core/contract/calls.inc"
};

// What kernels call of one another, without going through the backend.

void copy(const Array& to, const Array& from);
/// Whether a walk along `to` would touch a line of cache for each element of `from`, which copy()
/// does not.
bool is_transposed(const Array& to, const Array& from);
void fill(const Array& to, Scalar value);
/// Throws unless low ≤ index < limit everywhere, or `exempt`. Reads a dimension along which the
/// index repeats once, so that the position in the message is one in what the caller wrote.
void check_index(const Array& index, int64_t low, int64_t limit, IndexUse use,
                 std::optional<int64_t> exempt = {});

}  // namespace halftape::cpu
