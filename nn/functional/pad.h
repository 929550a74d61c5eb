// Padding, with options.
#pragma once
#include "halftape/nn/options/pad.h"

namespace halftape::nn::functional {

inline Tensor pad(const Tensor& x, const PadFuncOptions& o) {
  return halftape::pad(x, o.pad(), o.mode(), o.value());
}

}  // namespace halftape::nn::functional
