#include "halftape/nn/modules/image/pooling.h"

namespace halftape::nn {

namespace F = functional;

template <size_t D>
std::tuple<Tensor, Tensor> MaxPoolImpl<D>::forward_with_indices(const Tensor& x) const {
  const Module::PlaceScope scope(*this);
  HALFTAPE_RETURN_OF_RANK(D, F::max_pool, _with_indices, x, options);
}
HALFTAPE_RANKED_TEXT(MaxPool, "kernel_size", options.kernel_size(), "stride", options.stride(),
                     "padding", options.padding(), "dilation", options.dilation(), "ceil_mode",
                     options.ceil_mode())

template <size_t D>
Tensor AvgPoolImpl<D>::forward(const Tensor& x) const {
  const Module::PlaceScope scope(*this);
  HALFTAPE_RETURN_OF_RANK(D, F::avg_pool, , x, options);
}
HALFTAPE_RANKED_TEXT(AvgPool, "kernel_size", options.kernel_size(), "stride", options.stride(),
                     "padding", options.padding())

template <size_t D>
Tensor MaxUnpoolImpl<D>::forward(const Tensor& x, const Tensor& indices,
                                 const std::optional<std::vector<int64_t>>& output_size) const {
  const Module::PlaceScope scope(*this);
  F::MaxUnpoolFuncOptions<D> o(options.kernel_size());
  o.stride(options.stride()).padding(options.padding()).output_size(output_size);
  HALFTAPE_RETURN_OF_RANK(D, F::max_unpool, , x, indices, o);
}
HALFTAPE_RANKED_TEXT(MaxUnpool, "kernel_size", options.kernel_size(), "stride", options.stride(),
                     "padding", options.padding())

template <size_t D>
Tensor LPPoolImpl<D>::forward(const Tensor& x) const {
  const Module::PlaceScope scope(*this);
  HALFTAPE_RETURN_OF_RANK(D, F::lp_pool, , x, options);
}
HALFTAPE_RANKED_TEXT(LPPool, "norm_type", options.norm_type(), "kernel_size", options.kernel_size(),
                     "stride", options.stride(), "ceil_mode", options.ceil_mode())

template <size_t D>
std::tuple<Tensor, Tensor> AdaptiveMaxPoolImpl<D>::forward_with_indices(const Tensor& x) const {
  const Module::PlaceScope scope(*this);
  HALFTAPE_RETURN_OF_RANK(D, F::adaptive_max_pool, _with_indices, x, options);
}
HALFTAPE_RANKED_TEXT(AdaptiveMaxPool, "output_size", options.output_size())

template <size_t D>
Tensor AdaptiveAvgPoolImpl<D>::forward(const Tensor& x) const {
  const Module::PlaceScope scope(*this);
  HALFTAPE_RETURN_OF_RANK(D, F::adaptive_avg_pool, , x, options);
}
HALFTAPE_RANKED_TEXT(AdaptiveAvgPool, "output_size", options.output_size())

template <size_t D>
std::tuple<Tensor, Tensor> FractionalMaxPoolImpl<D>::forward_with_indices(const Tensor& x) const {
  const Module::PlaceScope scope(*this);
  if constexpr (D == 2) return scope.result(F::fractional_max_pool2d_with_indices(x, options));
  if constexpr (D == 3) return scope.result(F::fractional_max_pool3d_with_indices(x, options));
}
HALFTAPE_RANKED_TEXT(FractionalMaxPool)
template class FractionalMaxPoolImpl<2>;
template class FractionalMaxPoolImpl<3>;
HALFTAPE_INSTANTIATE_RANKS(MaxPool);
HALFTAPE_INSTANTIATE_RANKS(AvgPool);
HALFTAPE_INSTANTIATE_RANKS(MaxUnpool);
HALFTAPE_INSTANTIATE_RANKS(LPPool);
HALFTAPE_INSTANTIATE_RANKS(AdaptiveMaxPool);
HALFTAPE_INSTANTIATE_RANKS(AdaptiveAvgPool);

}  // namespace halftape::nn
