// Copies and constants, for kernels that need them on their way.
#pragma once
#include <string>

#include "halftape/core/array.h"

namespace halftape::cuda {

void copy(const Array& to, const Array& from);
void fill(const Array& to, Scalar value);

/// Why this library's kernels cannot run on the GPUs that are there; empty when they can.
std::string kernels_obstacle();

}  // namespace halftape::cuda
