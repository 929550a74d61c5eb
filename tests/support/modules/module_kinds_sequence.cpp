// Recurrent layers and attention.
#include "halftape/tests/support/modules/module_kinds.h"

namespace halftape::testing {

namespace F = nn::functional;
using namespace nn;

namespace {

/// A coder: the options are its layer's, but for num_layers and norm, which are its own.
template <class Coder, class Layer, class Options>
Use stack(Case c, Dtype dtype) {
  int64_t num_layers = 0;
  AnyModule norm;
  std::erase_if(c.options, [&](const auto& option) {
    if (option.first == "num_layers") num_layers = option_text::value<int64_t>(option.second);
    if (option.first == "norm")
      norm = AnyModule(LayerNorm(Shape{option_text::value<int64_t>(option.second)}));
    return option.first == "num_layers" || option.first == "norm";
  });
  const Coder module(
      Options(Layer(option_text::options_of<TransformerEncoderLayerOptions>(c)), num_layers)
          .norm(norm));
  module->to(dtype);
  return {module.ptr(), detail::forward_of<typename Coder::ContainedType>(module.ptr()), {}};
}

}  // namespace

std::vector<Kind> sequence_kinds() {
  return {
      module_kind<RNN>("RNN", {.cast = Cast::Lower, .wrong = {4, 2, 5}}),
      module_kind<GRU>("GRU", {.cast = Cast::Lower, .wrong = {4, 2, 5}}),
      module_kind<LSTM>("LSTM", {.cast = Cast::Lower, .wrong = {4, 2, 5}}),
      module_kind<RNNCell>("RNNCell", {.cast = Cast::Lower, .wrong = {2, 5}}),
      module_kind<GRUCell>("GRUCell", {.cast = Cast::Lower, .wrong = {2, 5}}),
      module_kind<LSTMCell>("LSTMCell", {.cast = Cast::Lower, .wrong = {2, 5}}),
      module_kind<MultiheadAttention>("MultiheadAttention",
                                      {.cast = Cast::Lower, .wrong = {4, 2, 5}}),
      module_kind<TransformerEncoderLayer>("TransformerEncoderLayer",
                                           {.cast = Cast::Float32, .wrong = {3, 2, 5}}),
      module_kind<TransformerDecoderLayer>("TransformerDecoderLayer",
                                           {.cast = Cast::Float32, .wrong = {2, 2, 5}}),
      {.name = "TransformerEncoder",
       .function = {},
       .options = "TransformerEncoderOptions",
       .held = {.cast = Cast::Float32, .wrong = {3, 2, 5}},
       .make = stack<TransformerEncoder, TransformerEncoderLayer, TransformerEncoderOptions>},
      {.name = "TransformerDecoder",
       .function = {},
       .options = "TransformerDecoderOptions",
       .held = {.cast = Cast::Float32, .wrong = {3, 2, 5}},
       .make = stack<TransformerDecoder, TransformerDecoderLayer, TransformerDecoderOptions>},
      module_kind<Transformer>("Transformer", {.cast = Cast::Float32, .wrong = {3, 2, 5}}),
  };
}

}  // namespace halftape::testing
