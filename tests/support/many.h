// How many of what a test makes, on the CPU and on a GPU.
#pragma once
#include <cstdint>

#include "halftape/autograd/tensor_options.h"

namespace halftape::testing {

/// A length that takes several of the device's tiles, or a number of random cases. The CPU's are
/// larger, as a GPU's threads may be simulated one after the other.
inline int64_t many(int64_t on_cpu, int64_t on_gpu) {
  return get_default_device().is_cpu() ? on_cpu : on_gpu;
}

}  // namespace halftape::testing
