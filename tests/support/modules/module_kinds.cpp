#include "halftape/tests/support/modules/module_kinds.h"

namespace option_text {
namespace {

template <class T>
T among(const std::string& text, std::initializer_list<std::pair<const char*, T>> words) {
  for (const auto& [word, meaning] : words)
    if (text == word) return meaning;
  throw std::runtime_error("no such word: " + text);
}

}  // namespace

using namespace halftape;

Reduction word(const std::string& text, Type<Reduction>) {
  return among<Reduction>(
      text, {{"none", kNone}, {"mean", kMean}, {"sum", kSum}, {"batchmean", kBatchMean}});
}
PadMode word(const std::string& text, Type<PadMode>) {
  return among<PadMode>(text, {{"zeros", kZeros},
                               {"constant", kConstant},
                               {"reflect", kReflect},
                               {"replicate", kReplicate},
                               {"circular", kCircular}});
}
nn::EmbeddingBagMode word(const std::string& text, Type<nn::EmbeddingBagMode>) {
  return among<nn::EmbeddingBagMode>(text, {{"sum", kSum}, {"mean", kMean}, {"max", kMax}});
}
nn::init::Nonlinearity word(const std::string& text, Type<nn::init::Nonlinearity>) {
  return among<nn::init::Nonlinearity>(text, {{"tanh", kTanh}, {"relu", kReLU}});
}
Interpolation word(const std::string& text, Type<Interpolation>) {
  return among<Interpolation>(text, {{"nearest", kNearest},
                                     {"nearest-exact", kNearestExact},
                                     {"linear", Interpolation::Linear},
                                     {"bilinear", kBilinear},
                                     {"trilinear", kTrilinear},
                                     {"bicubic", kBicubic},
                                     {"area", kArea}});
}
nn::detail::interpolation_t word(const std::string& text, Type<nn::detail::interpolation_t>) {
  if (text == "linear") return kLinear;
  return word(text, Type<Interpolation>());
}
nn::detail::grid_padding_t word(const std::string& text, Type<nn::detail::grid_padding_t>) {
  return among<nn::detail::grid_padding_t>(
      text, {{"zeros", kZeros}, {"border", kBorder}, {"reflection", kReflection}});
}
nn::activation_t word(const std::string& text, Type<nn::activation_t>) {
  return among<nn::activation_t>(text, {{"relu", kReLU}, {"gelu", kGELU}});
}
Activation word(const std::string& text, Type<Activation>) {
  return among<Activation>(text, {{"relu", Activation::Relu}, {"gelu", Activation::Gelu}});
}
DistanceFunction word(const std::string& text, Type<DistanceFunction>) {
  return among<DistanceFunction>(
      text, {{"l1", [](const Tensor& a, const Tensor& b) { return (a - b).abs().sum({-1}); }}});
}
Dtype word(const std::string& text, Type<Dtype>) {
  return among<Dtype>(text, {{"float32", kFloat32}, {"float64", kFloat64}});
}

}  // namespace option_text

namespace halftape::testing {

const std::vector<Kind>& module_kinds() {
  static const std::vector<Kind> all = [] {
    std::vector<Kind> joined;
    for (auto* family : {activation_kinds, activation_function_kinds, loss_kinds, class_loss_kinds,
                         convolution_kinds, pooling_kinds, layer_kinds,
                         embedding_and_function_kinds, norm_kinds, sequence_kinds})
      for (Kind& kind : family()) joined.push_back(std::move(kind));
    return joined;
  }();
  return all;
}

}  // namespace halftape::testing
