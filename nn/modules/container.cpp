#include "halftape/nn/modules/container.h"

namespace halftape::nn {

Tensor SequentialImpl::forward(const Tensor& x) const {
  HALFTAPE_CHECK(!parts_.empty(), "Sequential: forward() of an empty container");
  Tensor y = x;
  for (const auto& part : parts_) y = part(y);
  return y;
}

}  // namespace halftape::nn
