#include "halftape/nn/modules/image/fold.h"

namespace halftape::nn {

void FoldImpl::pretty_print(std::ostream& out) const {
  out << "halftape::nn::Fold(output_size=" << options.output_size()
      << ", kernel_size=" << options.kernel_size() << ", dilation=" << options.dilation()
      << ", padding=" << options.padding() << ", stride=" << options.stride() << ')';
}
void UnfoldImpl::pretty_print(std::ostream& out) const {
  out << "halftape::nn::Unfold(kernel_size=" << options.kernel_size()
      << ", dilation=" << options.dilation() << ", padding=" << options.padding()
      << ", stride=" << options.stride() << ')';
}

}  // namespace halftape::nn
