#include "halftape/optim/state/seen_weight.h"

#include "halftape/autograd/tensor_impl.h"

namespace halftape::optim {

SeenWeight::SeenWeight(const Tensor& weight)
    : buffer_(weight.array().buffer().get()),
      version_(weight.version()),
      times_set_(weight.impl()->times_set) {}

bool SeenWeight::is(const Tensor& weight) const {
  return buffer_ == weight.array().buffer().get() && version_ == weight.version() &&
         times_set_ == weight.impl()->times_set;
}

bool SeenWeight::is_surely(const Tensor& weight) const { return is(weight) && !buffer_->exposed(); }

}  // namespace halftape::optim
