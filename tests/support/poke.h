// Writing one element of a tensor on any device, past autograd.
#pragma once
#include "halftape/autograd/tensor.h"
#include "halftape/core/contract/backend.h"

namespace halftape::testing {

/// Element i, in row-major order, of a contiguous tensor becomes `value`: an in-place write.
inline void poke(const Tensor& t, int64_t i, double value) {
  const Array flat = t.array().reshape({t.numel()});
  backend(t.device()).fill(flat.slice(0, i, i + 1), value);
  t.array().bump_version();
}

}  // namespace halftape::testing
