// Padding, with options.
#pragma once
#include "halftape/nn/options/pad.h"

namespace halftape::nn::functional {

/// A frame around x: `pad` has two numbers a dimension, from the last one on; a negative one cuts
/// off. kReflect, kReplicate and kCircular fill it from x, kConstant with `value`.
inline Tensor pad(const Tensor& x, const PadFuncOptions& o) {
  return halftape::pad(x, o.pad(), o.mode(), o.value());
}

}  // namespace halftape::nn::functional
