#include "halftape/nn/modules/image/pad.h"

namespace halftape::nn {
namespace {

constexpr const char* kind_name(PadMode mode) {
  return mode == kReflect     ? "ReflectionPad"
         : mode == kReplicate ? "ReplicationPad"
         : mode == kCircular  ? "CircularPad"
                              : "ZeroPad";
}

/// x with a frame around its last D dimensions; the channels before them must be there.
template <size_t D>
Tensor framed(const char* name, const Tensor& x, const ExpandingArray<D * 2>& padding, PadMode mode,
              double value) {
  HALFTAPE_CHECK(x.dim() >= static_cast<int64_t>(D), name, D, "d: input ", x.sizes(), " has ",
                 x.dim(), " dimensions; expected at least ", D);
  return pad(x, std::vector<int64_t>(padding->begin(), padding->end()), mode, value);
}

}  // namespace

template <size_t D, PadMode mode>
Tensor PadModule<D, mode>::forward(const Tensor& x) const {
  const Module::PlaceScope scope(*this);
  return scope.result(framed<D>(kind_name(mode), x, options.padding(), mode, 0));
}
template <size_t D, PadMode mode>
void PadModule<D, mode>::pretty_print(std::ostream& out) const {
  detail::print(out, detail::Ranked{kind_name(mode), D}, "padding", options.padding());
}

template <size_t D>
Tensor ConstantPadImpl<D>::forward(const Tensor& x) const {
  const Module::PlaceScope scope(*this);
  return scope.result(framed<D>("ConstantPad", x, options.padding(), kConstant, options.value()));
}
HALFTAPE_RANKED_TEXT(ConstantPad, "padding", options.padding(), "value", options.value())

#define HALFTAPE_EACH_MODE(D)              \
  template class PadModule<D, kReflect>;   \
  template class PadModule<D, kReplicate>; \
  template class PadModule<D, kCircular>;  \
  template class PadModule<D, kConstant>
HALFTAPE_EACH_MODE(1);
HALFTAPE_EACH_MODE(2);
HALFTAPE_EACH_MODE(3);
#undef HALFTAPE_EACH_MODE
HALFTAPE_INSTANTIATE_RANKS(ConstantPad);

}  // namespace halftape::nn
