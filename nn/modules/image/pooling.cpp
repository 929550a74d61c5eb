#include "halftape/nn/modules/image/pooling.h"

namespace halftape::nn {

namespace F = functional;
using detail::print;

template <size_t D>
std::tuple<Tensor, Tensor> MaxPoolImpl<D>::forward_with_indices(const Tensor& x) const {
  if constexpr (D == 1) return F::max_pool1d_with_indices(x, options);
  if constexpr (D == 2) return F::max_pool2d_with_indices(x, options);
  if constexpr (D == 3) return F::max_pool3d_with_indices(x, options);
}
template <size_t D>
void MaxPoolImpl<D>::pretty_print(std::ostream& out) const {
  print(out, detail::Ranked{"MaxPool", D}, "kernel_size", options.kernel_size(), "stride",
        options.stride(), "padding", options.padding(), "dilation", options.dilation(), "ceil_mode",
        options.ceil_mode());
}

template <size_t D>
Tensor AvgPoolImpl<D>::forward(const Tensor& x) const {
  if constexpr (D == 1) return F::avg_pool1d(x, options);
  if constexpr (D == 2) return F::avg_pool2d(x, options);
  if constexpr (D == 3) return F::avg_pool3d(x, options);
}
template <size_t D>
void AvgPoolImpl<D>::pretty_print(std::ostream& out) const {
  print(out, detail::Ranked{"AvgPool", D}, "kernel_size", options.kernel_size(), "stride",
        options.stride(), "padding", options.padding());
}

template <size_t D>
Tensor MaxUnpoolImpl<D>::forward(const Tensor& x, const Tensor& indices,
                                 const std::optional<std::vector<int64_t>>& output_size) const {
  F::MaxUnpoolFuncOptions<D> o(options.kernel_size());
  o.stride(options.stride()).padding(options.padding()).output_size(output_size);
  if constexpr (D == 1) return F::max_unpool1d(x, indices, o);
  if constexpr (D == 2) return F::max_unpool2d(x, indices, o);
  if constexpr (D == 3) return F::max_unpool3d(x, indices, o);
}
template <size_t D>
void MaxUnpoolImpl<D>::pretty_print(std::ostream& out) const {
  print(out, detail::Ranked{"MaxUnpool", D}, "kernel_size", options.kernel_size(), "stride",
        options.stride(), "padding", options.padding());
}

template <size_t D>
Tensor LPPoolImpl<D>::forward(const Tensor& x) const {
  if constexpr (D == 1) return F::lp_pool1d(x, options);
  if constexpr (D == 2) return F::lp_pool2d(x, options);
  if constexpr (D == 3) return F::lp_pool3d(x, options);
}
template <size_t D>
void LPPoolImpl<D>::pretty_print(std::ostream& out) const {
  print(out, detail::Ranked{"LPPool", D}, "norm_type", options.norm_type(), "kernel_size",
        options.kernel_size(), "stride", options.stride(), "ceil_mode", options.ceil_mode());
}

template <size_t D>
std::tuple<Tensor, Tensor> AdaptiveMaxPoolImpl<D>::forward_with_indices(const Tensor& x) const {
  if constexpr (D == 1) return F::adaptive_max_pool1d_with_indices(x, options);
  if constexpr (D == 2) return F::adaptive_max_pool2d_with_indices(x, options);
  if constexpr (D == 3) return F::adaptive_max_pool3d_with_indices(x, options);
}
template <size_t D>
void AdaptiveMaxPoolImpl<D>::pretty_print(std::ostream& out) const {
  print(out, detail::Ranked{"AdaptiveMaxPool", D}, "output_size", options.output_size());
}

template <size_t D>
Tensor AdaptiveAvgPoolImpl<D>::forward(const Tensor& x) const {
  if constexpr (D == 1) return F::adaptive_avg_pool1d(x, options);
  if constexpr (D == 2) return F::adaptive_avg_pool2d(x, options);
  if constexpr (D == 3) return F::adaptive_avg_pool3d(x, options);
}
template <size_t D>
void AdaptiveAvgPoolImpl<D>::pretty_print(std::ostream& out) const {
  print(out, detail::Ranked{"AdaptiveAvgPool", D}, "output_size", options.output_size());
}

template <size_t D>
std::tuple<Tensor, Tensor> FractionalMaxPoolImpl<D>::forward_with_indices(const Tensor& x) const {
  if constexpr (D == 2) return F::fractional_max_pool2d_with_indices(x, options);
  if constexpr (D == 3) return F::fractional_max_pool3d_with_indices(x, options);
}
template <size_t D>
void FractionalMaxPoolImpl<D>::pretty_print(std::ostream& out) const {
  print(out, detail::Ranked{"FractionalMaxPool", D});
}
template class FractionalMaxPoolImpl<2>;
template class FractionalMaxPoolImpl<3>;

#define HALFTAPE_EACH_RANK(Name) \
  template class Name<1>;        \
  template class Name<2>;        \
  template class Name<3>;
HALFTAPE_EACH_RANK(MaxPoolImpl)
HALFTAPE_EACH_RANK(AvgPoolImpl)
HALFTAPE_EACH_RANK(MaxUnpoolImpl)
HALFTAPE_EACH_RANK(LPPoolImpl)
HALFTAPE_EACH_RANK(AdaptiveMaxPoolImpl)
HALFTAPE_EACH_RANK(AdaptiveAvgPoolImpl)
#undef HALFTAPE_EACH_RANK

}  // namespace halftape::nn
