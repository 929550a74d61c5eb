#include "halftape/nn/modules/image/conv.h"

#include <cmath>

#include "halftape/autograd/ops/creation/create.h"
#include "halftape/nn/init.h"

namespace halftape::nn {
namespace {

/// The checks of both kinds of convolution.
template <class Options>
void check_options(const char* name, const Options& o) {
  detail::check_positive(name, "in_channels", o.in_channels(), "out_channels", o.out_channels(),
                         "groups", o.groups(), "kernel_size", o.kernel_size(), "stride", o.stride(),
                         "dilation", o.dilation());
  HALFTAPE_CHECK(o.in_channels() % o.groups() == 0 && o.out_channels() % o.groups() == 0, name,
                 ": in_channels ", o.in_channels(), " and out_channels ", o.out_channels(),
                 " must be divisible by groups ", o.groups());
}

template <size_t D>
Shape weight_shape(int64_t rows, int64_t columns, const ExpandingArray<D>& kernel_size) {
  Shape shape{rows, columns};
  for (int64_t k : *kernel_size) shape.push_back(k);
  return shape;
}

void initialise(const Tensor& weight, const Tensor& bias) {
  init::kaiming_uniform_(weight, std::sqrt(5.0));
  const auto fan_in = static_cast<double>(init::calculate_fan_in_and_fan_out(weight).first);
  if (bias.defined()) init::uniform_(bias, -1 / std::sqrt(fan_in), 1 / std::sqrt(fan_in));
}

const char* name_of(PadMode mode) {
  return mode == kReflect ? "kReflect" : mode == kReplicate ? "kReplicate" : "kCircular";
}

/// "halftape::nn::Conv2d(1, 8, kernel_size=[3, 3], stride=[1, 1], groups=2)", with
/// `padding` after the stride. Options with their usual values are left out.
template <size_t D, class Options>
void print(std::ostream& out, const char* name, const Options& o, const std::string& padding,
           const ExpandingArray<D>& output_padding) {
  out << "halftape::nn::" << name << D << "d(" << o.in_channels() << ", " << o.out_channels()
      << ", kernel_size=" << o.kernel_size() << ", stride=" << o.stride() << padding;
  if (*o.dilation() != *ExpandingArray<D>(1)) out << ", dilation=" << o.dilation();
  if (*output_padding != *ExpandingArray<D>(0)) out << ", output_padding=" << output_padding;
  if (o.groups() != 1) out << ", groups=" << o.groups();
  if (!o.bias()) out << ", bias=false";
  if (o.padding_mode() != kZeros) out << ", padding_mode=" << name_of(o.padding_mode());
  out << ')';
}
template <size_t D>
std::string printed(const ExpandingArray<D>& padding) {
  return *padding == *ExpandingArray<D>(0) ? "" : halftape::detail::str(", padding=", padding);
}
template <size_t D>
std::string printed(const detail::conv_padding_t<D>& padding) {
  if (const auto* rule = std::get_if<PaddingRule>(&padding))
    return *rule == kSame ? ", padding='same'" : ", padding='valid'";
  return printed(std::get<ExpandingArray<D>>(padding));
}

/// The padding as pad() takes it: two numbers for each dimension, from the last one on.
template <size_t D>
std::vector<int64_t> frame(const ConvOptions<D>& o) {
  std::vector<int64_t> both;
  for (size_t i = D; i-- > 0;) {
    int64_t left = 0, right = 0;
    if (const auto* numbers = std::get_if<ExpandingArray<D>>(&o.padding())) {
      left = right = (**numbers)[i];
    } else if (std::get<PaddingRule>(o.padding()) == kSame) {
      const int64_t all = checked_mul((*o.dilation())[i], (*o.kernel_size())[i] - 1);
      left = all / 2, right = all - left;
    }
    both.push_back(left), both.push_back(right);
  }
  return both;
}

}  // namespace

template <size_t D>
void ConvImpl<D>::reset() {
  const auto& o = options;
  check_options("Conv", o);
  if (const auto* rule = std::get_if<PaddingRule>(&o.padding()))
    HALFTAPE_CHECK(*rule != kSame || *o.stride() == *ExpandingArray<D>(1),
                   "Conv: padding='same' is not supported for strided convolutions; the stride "
                   "is ",
                   o.stride());
  weight = register_parameter(
      "weight",
      empty(weight_shape(o.out_channels(), o.in_channels() / o.groups(), o.kernel_size())));
  if (o.bias()) bias = register_parameter("bias", empty({o.out_channels()}));
  reset_parameters();
}
template <size_t D>
void ConvImpl<D>::reset_parameters() {
  initialise(weight, bias);
}
template <size_t D>
Tensor ConvImpl<D>::forward(const Tensor& x) const {
  const Module::PlaceScope scope(*this);
  functional::ConvFuncOptions<D> o;
  o.bias(bias).stride(options.stride()).dilation(options.dilation()).groups(options.groups());
  const bool zeros = options.padding_mode() == kZeros;
  if (zeros) o.padding(options.padding());
  const Tensor padded = zeros ? x : halftape::pad(x, frame(options), options.padding_mode());
  HALFTAPE_RETURN_OF_RANK(D, functional::conv, , padded, weight, o);
}
template <size_t D>
void ConvImpl<D>::pretty_print(std::ostream& out) const {
  print<D>(out, "Conv", options, printed<D>(options.padding()), 0);
}

template <size_t D>
void ConvTransposeImpl<D>::reset() {
  const auto& o = options;
  check_options("ConvTranspose", o);
  HALFTAPE_CHECK(o.padding_mode() == kZeros, "ConvTranspose: padding_mode ",
                 name_of(o.padding_mode()), "; only kZeros is possible");
  weight = register_parameter(
      "weight",
      empty(weight_shape(o.in_channels(), o.out_channels() / o.groups(), o.kernel_size())));
  if (o.bias()) bias = register_parameter("bias", empty({o.out_channels()}));
  reset_parameters();
}
template <size_t D>
void ConvTransposeImpl<D>::reset_parameters() {
  initialise(weight, bias);
}
template <size_t D>
Tensor ConvTransposeImpl<D>::forward(const Tensor& x,
                                     const std::optional<Dims>& output_size) const {
  const Module::PlaceScope scope(*this);
  functional::ConvTransposeFuncOptions<D> o;
  o.bias(bias).stride(options.stride()).padding(options.padding()).groups(options.groups());
  o.dilation(options.dilation()).output_padding(options.output_padding());
  if (output_size) {
    constexpr int n = D;
    const Dims& given = *output_size;
    HALFTAPE_CHECK(given.size() == n || given.size() == x.dim(), "ConvTranspose: output_size ",
                   given, "; expected ", n, " lengths, or all ", x.dim(), " sizes");
    for (int i = 0; i < n; ++i) {
      const auto k = static_cast<size_t>(i);
      const int64_t stride = (*options.stride())[k];
      const int64_t kernel = checked_mul((*options.dilation())[k], (*options.kernel_size())[k] - 1),
                    before = checked_mul(x.size(i - n) - 1, stride),
                    least = checked_add(checked_add(before, kernel),
                                        1 - checked_mul(2, (*options.padding())[k]));
      const int64_t wanted = given[given.size() - n + i];
      HALFTAPE_CHECK(wanted >= least && wanted - least < stride, "ConvTranspose: output_size ",
                     given, " for input ", x.sizes(), ": length ", wanted, " of dimension ", i,
                     " must be from ", least, " to ", least + stride - 1);
      (*o.output_padding())[k] = wanted - least;
    }
  }
  HALFTAPE_RETURN_OF_RANK(D, functional::conv_transpose, , x, weight, o);
}
template <size_t D>
void ConvTransposeImpl<D>::pretty_print(std::ostream& out) const {
  print<D>(out, "ConvTranspose", options, printed(options.padding()), options.output_padding());
}

HALFTAPE_INSTANTIATE_RANKS(Conv);
HALFTAPE_INSTANTIATE_RANKS(ConvTranspose);

HALFTAPE_UNARY_FORWARD(Fold, functional::fold(x, options), "output_size", options.output_size(),
                       "kernel_size", options.kernel_size(), "dilation", options.dilation(),
                       "padding", options.padding(), "stride", options.stride())
HALFTAPE_UNARY_FORWARD(Unfold, functional::unfold(x, options), "kernel_size", options.kernel_size(),
                       "dilation", options.dilation(), "padding", options.padding(), "stride",
                       options.stride())

}  // namespace halftape::nn
