#include "halftape/nn/modules/dropout.h"

#include "halftape/autograd/ops/dropout.h"
#include "halftape/autograd/ops/view.h"

namespace halftape::nn {

DropoutImpl::DropoutImpl(const DropoutOptions& o) : options(o) {
  HALFTAPE_CHECK(o.p() >= 0 && o.p() <= 1, "Dropout: probability ", o.p(),
                 " is not between 0 and 1");
}
Tensor DropoutImpl::forward(const Tensor& x) const {
  return dropout(x, options.p(), is_training());
}
void DropoutImpl::pretty_print(std::ostream& out) const {
  out << "halftape::nn::Dropout(p=" << options.p() << ')';
}

Tensor FlattenImpl::forward(const Tensor& x) const {
  return flatten(x, options.start_dim(), options.end_dim());
}
void FlattenImpl::pretty_print(std::ostream& out) const {
  out << "halftape::nn::Flatten(start_dim=" << options.start_dim()
      << ", end_dim=" << options.end_dim() << ')';
}

}  // namespace halftape::nn
