// The networks of scripts/torch_vectors/pt_files.py, which torch saves and this library runs.
#pragma once
#include <filesystem>
#include <string>

#include <halftape/halftape.h>

namespace halftape::testing {

class SmallGPTImpl : public nn::Module {
 public:
  SmallGPTImpl() {
    tokens = register_module("tokens", nn::Embedding(11, 8));
    places = register_module("places", nn::Embedding(6, 8));
    const nn::TransformerEncoderLayer layer(
        nn::TransformerEncoderLayerOptions(8, 2).dim_feedforward(16).dropout(0));
    encoder =
        register_module("encoder", nn::TransformerEncoder(nn::TransformerEncoderOptions(layer, 1)));
    norm = register_module("norm", nn::LayerNorm(nn::LayerNormOptions({8})));
    head = register_module("head", nn::Linear(nn::LinearOptions(8, 11).bias(false)));
  }
  Tensor forward(const Tensor& x) {
    const Tensor place = arange(x.size(0), TensorOptions(kInt64).device(x.device()));
    const Tensor h = tokens->forward(x) + places->forward(place).unsqueeze(1);
    const Tensor mask = nn::TransformerImpl::generate_square_subsequent_mask(x.size(0));
    return head->forward(norm->forward(encoder->forward(h, mask.to(h.options()))));
  }
  nn::Embedding tokens{nullptr}, places{nullptr};
  nn::TransformerEncoder encoder{nullptr};
  nn::LayerNorm norm{nullptr};
  nn::Linear head{nullptr};
};
HALFTAPE_MODULE(SmallGPT);

inline nn::Sequential torch_mlp() {
  return nn::Sequential(nn::Linear(6, 5), nn::ReLU(), nn::Linear(5, 3));
}

/// What the network "mlp", "convnet" or "gpt" of a file {"model": state_dict, "x": input, …} makes
/// of its input. Strict: all names fit.
inline Tensor output_of(const std::string& network, const std::filesystem::path& path) {
  const NoGradGuard no_grad;
  const Tensor x = pt::load_file(path, get_default_device(), "x")["tensor"];
  const pt::Tensors state = pt::load_file(path, get_default_device(), "model");
  const auto run = [&](auto net) {
    net->to(state.front()->dtype());
    net->eval();
    load(net, state);
    return Tensor(net->forward(x));
  };
  if (network == "mlp") return run(torch_mlp());
  if (network == "gpt") return run(SmallGPT());
  return run(nn::Sequential(nn::Conv2d(nn::Conv2dOptions(1, 3, 3).padding(1)), nn::BatchNorm2d(3),
                            nn::ReLU(), nn::MaxPool2d(2), nn::Flatten(), nn::Linear(12, 2)));
}

/// True if each number is as close as a few roundings of sums of some ten products allow.
inline bool equal_to_rounding(const Tensor& ours, const Tensor& theirs) {
  if (ours.dtype() != theirs.dtype() || ours.sizes() != theirs.sizes()) return false;
  const double largest = theirs.to(kFloat64).abs().max().item<double>();
  const double error = (ours.to(kFloat64) - theirs.to(kFloat64)).abs().max().item<double>();
  return error <= 4 * epsilon(ours.dtype()) * largest;
}

}  // namespace halftape::testing
