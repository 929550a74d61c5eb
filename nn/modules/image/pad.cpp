#include "halftape/nn/modules/image/pad.h"

namespace halftape::nn {
namespace {

/// x with a frame around its last D dimensions; the channels before them must be there.
template <size_t D>
Tensor framed(const char* name, const Tensor& x, const ExpandingArray<D * 2>& padding, PadMode mode,
              double value) {
  HALFTAPE_CHECK(x.dim() >= static_cast<int64_t>(D), name, D, "d: input ", x.sizes(), " has ",
                 x.dim(), " dimensions; expected at least ", D);
  return pad(x, std::vector<int64_t>(padding->begin(), padding->end()), mode, value);
}

}  // namespace

template <size_t D>
Tensor PadModule<D>::forward(const Tensor& x) const {
  return framed<D>(name_, x, options.padding(), mode_, 0);
}
template <size_t D>
void PadModule<D>::pretty_print(std::ostream& out) const {
  out << "halftape::nn::" << name_ << D << "d(padding=" << options.padding() << ')';
}

template <size_t D>
Tensor ConstantPadImpl<D>::forward(const Tensor& x) const {
  return framed<D>("ConstantPad", x, options.padding(), kConstant, options.value());
}
template <size_t D>
void ConstantPadImpl<D>::pretty_print(std::ostream& out) const {
  out << "halftape::nn::ConstantPad" << D << "d(padding=" << options.padding()
      << ", value=" << options.value() << ')';
}

template class PadModule<1>;
template class PadModule<2>;
template class PadModule<3>;
template class ConstantPadImpl<1>;
template class ConstantPadImpl<2>;
template class ConstantPadImpl<3>;

}  // namespace halftape::nn
