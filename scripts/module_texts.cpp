// How LibTorch prints the modules of tests/vectors/module_cases.txt; scripts/module_texts builds
// it.
#include <torch/torch.h>

#include <iostream>
#include <map>
#include <sstream>

#define HALFTAPE_OPTIONS_OF torch
#include "tests/support/modules/options_from_text.h"

namespace option_text {

/// A variant of LibTorch's words, by that word's name: "sum" for kSum, "nearest-exact" for
/// kNearestExact.
template <class... Words>
c10::variant<Words...> word(const std::string& text, Type<c10::variant<Words...>>) {
  using Any = c10::variant<Words...>;
  std::string wanted = "k";
  for (const char c : text)
    if (c != '-') wanted += c;
  c10::optional<Any> found;
  const auto attempt = [&](auto candidate) {
    using W = decltype(candidate);
    if constexpr (std::is_empty_v<W>) {
      std::string name = c10::demangle(typeid(W).name());
      name = name.substr(name.rfind(':') + 1);
      for (char& c : name) c = static_cast<char>(std::tolower(c));
      if (name == wanted) found = Any(candidate);
    } else if constexpr (requires { candidate->size(); }) {
      if (std::isdigit(text[0]) || text[0] == '[') found = Any(value<W>(text));
    }
  };
  (attempt([] {
     if constexpr (std::is_default_constructible_v<Words>)
       return Words();
     else
       return Words(1);
   }()),
   ...);
  if (!found) throw std::runtime_error("no such word: " + text);
  return *found;
}
inline std::function<torch::Tensor(const torch::Tensor&, const torch::Tensor&)> word(
    const std::string&,
    Type<std::function<torch::Tensor(const torch::Tensor&, const torch::Tensor&)>>) {
  return [](const torch::Tensor& a, const torch::Tensor& b) { return (a - b).abs().sum(-1); };
}

}  // namespace option_text

using namespace torch::nn;
using option_text::Case;
using Made = std::shared_ptr<torch::nn::Module>;

namespace {

std::map<std::string, std::function<Made(const Case&)>> makers;

/// The options of a module; a convolution's are not those that it is made from.
template <class Impl>
struct OptionsOf {
  using type = std::decay_t<decltype(std::declval<Impl&>().options)>;
};
template <>
struct OptionsOf<Conv1dImpl> {
  using type = Conv1dOptions;
};
template <>
struct OptionsOf<Conv2dImpl> {
  using type = Conv2dOptions;
};
template <>
struct OptionsOf<Conv3dImpl> {
  using type = Conv3dOptions;
};
template <>
struct OptionsOf<ConvTranspose1dImpl> {
  using type = ConvTranspose1dOptions;
};
template <>
struct OptionsOf<ConvTranspose2dImpl> {
  using type = ConvTranspose2dOptions;
};
template <>
struct OptionsOf<ConvTranspose3dImpl> {
  using type = ConvTranspose3dOptions;
};

template <class Holder>
void add_one() {
  using Impl = typename Holder::ContainedType;
  const std::string name = c10::demangle(typeid(Holder).name());
  makers[name.substr(name.rfind(':') + 1)] = [](const Case& c) -> Made {
    if constexpr (requires(Impl & m) { m.options; }) {
      using O = typename OptionsOf<Impl>::type;
      return Holder(option_text::options_of<O>(c)).ptr();
    } else {
      return Holder().ptr();
    }
  };
}

template <class... Holders>
void add() {
  (add_one<Holders>(), ...);
}

template <class Coder, class Layer, class LayerOptions, class Options>
Made stack(Case c) {
  int64_t num_layers = 0;
  AnyModule norm;
  auto own = c.options;
  c.options.clear();
  for (const auto& [name, text] : own) {
    if (name == "num_layers")
      num_layers = std::stoll(text);
    else if (name == "norm")
      norm = AnyModule(LayerNorm(LayerNormOptions({std::stoll(text)})));
    else
      c.options.emplace_back(name, text);
  }
  return Coder(Options(Layer(option_text::options_of<LayerOptions>(c)), num_layers).norm(norm))
      .ptr();
}

}  // namespace

int main(int, char** argv) {
  add<Identity, ReLU, ReLU6, ELU, SELU, CELU, SiLU, Mish, Tanh, Tanhshrink, Sigmoid, LogSigmoid,
      Hardtanh, Hardshrink, Softshrink, Softplus, Softsign, LeakyReLU, Threshold, PReLU, GELU, GLU,
      Softmax, LogSoftmax, Softmin, Softmax2d, RReLU, Dropout, Dropout2d, Dropout3d, AlphaDropout,
      FeatureAlphaDropout, Flatten, Unflatten, L1Loss, MSELoss, SmoothL1Loss, HuberLoss, KLDivLoss,
      PoissonNLLLoss, BCELoss, BCEWithLogitsLoss, CrossEntropyLoss, NLLLoss, HingeEmbeddingLoss,
      SoftMarginLoss, MarginRankingLoss, CosineEmbeddingLoss, MultiMarginLoss, MultiLabelMarginLoss,
      MultiLabelSoftMarginLoss, TripletMarginLoss, TripletMarginWithDistanceLoss, CTCLoss, Conv1d,
      Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d, MaxPool1d, MaxPool2d,
      MaxPool3d, AvgPool1d, AvgPool2d, AvgPool3d, AdaptiveMaxPool1d, AdaptiveMaxPool2d,
      AdaptiveMaxPool3d, AdaptiveAvgPool1d, AdaptiveAvgPool2d, AdaptiveAvgPool3d, MaxUnpool1d,
      MaxUnpool2d, MaxUnpool3d, LPPool1d, LPPool2d, FractionalMaxPool2d, FractionalMaxPool3d,
      ReflectionPad1d, ReflectionPad2d, ReflectionPad3d, ReplicationPad1d, ReplicationPad2d,
      ReplicationPad3d, ConstantPad1d, ConstantPad2d, ConstantPad3d, ZeroPad2d, Linear, Bilinear,
      CosineSimilarity, PairwiseDistance, Fold, Unfold, PixelShuffle, PixelUnshuffle, Embedding,
      EmbeddingBag, AdaptiveLogSoftmaxWithLoss, Upsample, BatchNorm1d, BatchNorm2d, BatchNorm3d,
      InstanceNorm1d, InstanceNorm2d, InstanceNorm3d, LayerNorm, GroupNorm, LocalResponseNorm,
      CrossMapLRN2d, RNN, GRU, LSTM, RNNCell, GRUCell, LSTMCell, MultiheadAttention,
      TransformerEncoderLayer, TransformerDecoderLayer, Transformer>();
  makers["TransformerEncoder"] = stack<TransformerEncoder, TransformerEncoderLayer,
                                       TransformerEncoderLayerOptions, TransformerEncoderOptions>;
  makers["TransformerDecoder"] = stack<TransformerDecoder, TransformerDecoderLayer,
                                       TransformerDecoderLayerOptions, TransformerDecoderOptions>;
  makers["Functional"] = [](const Case&) { return Functional(torch::relu).ptr(); };
  makers["Sequential"] = [](const Case&) {
    return Sequential{Linear(5, 3), ReLU(), Linear(3, 2)}.ptr();
  };

  std::cout << "# How LibTorch " << TORCH_VERSION << " prints the cases of module_cases.txt.\n"
            << "# Made by: scripts/module_texts\n";
  for (const Case& c : option_text::read_cases(argv[1])) {
    if (std::islower(c.name[0])) continue;  // a function
    try {
      const auto maker = makers.find(c.kind());
      if (maker == makers.end()) throw std::runtime_error("not in LibTorch");
      const Made module = maker->second(c);
      std::ostringstream text;
      text << *module;
      std::cout << "== " << c.name << '\n' << text.str() << '\n';
    } catch (const std::exception& e) {
      const std::string what = e.what();
      std::cerr << c.name << ": " << what.substr(0, what.find('\n')) << '\n';
    }
  }
}
