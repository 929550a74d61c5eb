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

inline Tensor conv1d(const Tensor& x, const Tensor& weight, const Conv1dFuncOptions& o = {}) {
  return halftape::conv1d(x, weight, o.bias(), o.stride(), detail::padding_of<1>(o.padding()),
                          o.dilation(), o.groups());
}
inline Tensor conv2d(const Tensor& x, const Tensor& weight, const Conv2dFuncOptions& o = {}) {
  return halftape::conv2d(x, weight, o.bias(), o.stride(), detail::padding_of<2>(o.padding()),
                          o.dilation(), o.groups());
}
inline Tensor conv3d(const Tensor& x, const Tensor& weight, const Conv3dFuncOptions& o = {}) {
  return halftape::conv3d(x, weight, o.bias(), o.stride(), detail::padding_of<3>(o.padding()),
                          o.dilation(), o.groups());
}

inline Tensor conv_transpose1d(const Tensor& x, const Tensor& weight,
                               const ConvTranspose1dFuncOptions& o = {}) {
  return halftape::conv_transpose1d(x, weight, o.bias(), o.stride(), o.padding(),
                                    o.output_padding(), o.groups(), o.dilation());
}
inline Tensor conv_transpose2d(const Tensor& x, const Tensor& weight,
                               const ConvTranspose2dFuncOptions& o = {}) {
  return halftape::conv_transpose2d(x, weight, o.bias(), o.stride(), o.padding(),
                                    o.output_padding(), o.groups(), o.dilation());
}
inline Tensor conv_transpose3d(const Tensor& x, const Tensor& weight,
                               const ConvTranspose3dFuncOptions& o = {}) {
  return halftape::conv_transpose3d(x, weight, o.bias(), o.stride(), o.padding(),
                                    o.output_padding(), o.groups(), o.dilation());
}

}  // namespace halftape::nn::functional
