// Convolutions, with options.
#pragma once
#include "halftape/nn/options/conv.h"

namespace halftape::nn::functional {

namespace detail {
template <size_t D>
ConvPadding padding_of(const nn::detail::conv_padding_t<D>& padding) {
  return std::visit([](const auto& p) { return ConvPadding(p); }, padding);
}
}  // namespace detail

// conv: x (N, in, lengths…) or without N, weight (out, in/groups, kernel…), bias (out). Throws
// unless the channels fit and groups divide them. conv_transpose is its gradient to x: weight (in,
// out/groups, kernel…); output_padding lengthens the result at its end.
#define HALFTAPE_CONV_FUNCTIONS(D)                                                             \
  inline Tensor conv##D##d(const Tensor& x, const Tensor& weight,                              \
                           const Conv##D##dFuncOptions& o = {}) {                              \
    return halftape::conv##D##d(x, weight, o.bias(), o.stride(),                               \
                                detail::padding_of<D>(o.padding()), o.dilation(), o.groups()); \
  }                                                                                            \
  inline Tensor conv_transpose##D##d(const Tensor& x, const Tensor& weight,                    \
                                     const ConvTranspose##D##dFuncOptions& o = {}) {           \
    return halftape::conv_transpose##D##d(x, weight, o.bias(), o.stride(), o.padding(),        \
                                          o.output_padding(), o.groups(), o.dilation());       \
  }
HALFTAPE_CONV_FUNCTIONS(1)
HALFTAPE_CONV_FUNCTIONS(2)
HALFTAPE_CONV_FUNCTIONS(3)
#undef HALFTAPE_CONV_FUNCTIONS

}  // namespace halftape::nn::functional
