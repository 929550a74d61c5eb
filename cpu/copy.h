// Copies and constants, for kernels that need them on their way.
#pragma once
#include "halftape/core/array.h"

namespace halftape::cpu {

void copy(const Array& to, const Array& from);
void fill(const Array& to, Scalar value);

}  // namespace halftape::cpu
