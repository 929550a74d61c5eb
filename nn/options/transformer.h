// Options of transformers and their layers (nn/modules/sequence/transformer_layer.h,
// transformer.h); transformer_coder.h has the options of encoders and decoders.
#pragma once
#include <concepts>
#include <functional>
#include <utility>

#include "halftape/autograd/ops/elementwise/unary.h"
#include "halftape/core/options.h"
#include "halftape/nn/any_module.h"
#include "halftape/nn/init.h"

namespace halftape {
struct GELUActivation {};
inline constexpr GELUActivation kGELU;
}  // namespace halftape

namespace halftape::nn {

/// The activation between the two linear layers: kReLU, kGELU, or a function of a tensor.
class activation_t {
 public:
  activation_t(init::Nonlinearity word)  // NOLINT: as LibTorch, one is the other
      : call_([](const Tensor& x) { return relu(x); }) {
    HALFTAPE_CHECK(word == kReLU, "activation has to be kReLU, kGELU or a function of a tensor");
  }
  activation_t(GELUActivation)  // NOLINT: the same
      : call_([](const Tensor& x) { return gelu(x); }) {}
  template <class F>
  requires(std::is_invocable_r_v<Tensor, F, const Tensor&> &&
           !std::same_as<std::decay_t<F>, activation_t>) activation_t(F f)  // NOLINT: the same
      : call_(std::move(f)) {}
  Tensor operator()(const Tensor& x) const { return call_(x); }

 private:
  std::function<Tensor(const Tensor&)> call_;
};

class TransformerEncoderLayerOptions {
 public:
  TransformerEncoderLayerOptions(int64_t d_model, int64_t nhead)
      : d_model_(d_model), nhead_(nhead) {}
  HALFTAPE_ARG(int64_t, d_model);  // features of a token
  HALFTAPE_ARG(int64_t, nhead);
  HALFTAPE_ARG(int64_t, dim_feedforward) = 2048;
  HALFTAPE_ARG(double, dropout) = 0.1;
  HALFTAPE_ARG(activation_t, activation) = kReLU;
};
using TransformerDecoderLayerOptions = TransformerEncoderLayerOptions;

class TransformerOptions {
 public:
  TransformerOptions() = default;
  TransformerOptions(int64_t d_model, int64_t nhead) : d_model_(d_model), nhead_(nhead) {}
  TransformerOptions(int64_t d_model, int64_t nhead, int64_t num_encoder_layers,
                     int64_t num_decoder_layers)
      : d_model_(d_model),
        nhead_(nhead),
        num_encoder_layers_(num_encoder_layers),
        num_decoder_layers_(num_decoder_layers) {}
  HALFTAPE_ARG(int64_t, d_model) = 512;
  HALFTAPE_ARG(int64_t, nhead) = 8;
  HALFTAPE_ARG(int64_t, num_encoder_layers) = 6;
  HALFTAPE_ARG(int64_t, num_decoder_layers) = 6;
  HALFTAPE_ARG(int64_t, dim_feedforward) = 2048;
  HALFTAPE_ARG(double, dropout) = 0.1;
  HALFTAPE_ARG(activation_t, activation) = kReLU;
  HALFTAPE_ARG(AnyModule, custom_encoder) = {};  // cloned; replaces the TransformerEncoder
  HALFTAPE_ARG(AnyModule, custom_decoder) = {};
};

}  // namespace halftape::nn
