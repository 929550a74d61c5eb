// Copies and constants for other files of this backend.
#pragma once
#include <string>

#include "halftape/core/array.h"

namespace halftape::cuda {

void copy(const Array& to, const Array& from);
void fill(const Array& to, Scalar value);

/// The reason why there is no kernel for a GPU of that compute capability (90 is 9.0); empty if
/// there may be some.
std::string architecture_obstacle(int capability);
/// The reason why this library's kernels cannot run on CUDA's current device; empty if they can.
std::string kernels_obstacle();

}  // namespace halftape::cuda
