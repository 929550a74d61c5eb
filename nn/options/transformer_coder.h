// Options of encoders and decoders (nn/modules/sequence/transformer.h), which hold a layer.
#pragma once
#include <utility>

#include "halftape/nn/modules/sequence/transformer_layer.h"

namespace halftape::nn {

/// A layer to clone num_layers times.
class TransformerEncoderOptions {
 public:
  TransformerEncoderOptions(TransformerEncoderLayer encoder_layer, int64_t num_layers)
      : encoder_layer_(std::move(encoder_layer)), num_layers_(num_layers) {}
  TransformerEncoderOptions(const TransformerEncoderLayerOptions& encoder_layer_options,
                            int64_t num_layers)
      : TransformerEncoderOptions(TransformerEncoderLayer(encoder_layer_options), num_layers) {}
  HALFTAPE_ARG(TransformerEncoderLayer, encoder_layer);
  HALFTAPE_ARG(int64_t, num_layers);
  HALFTAPE_ARG(AnyModule, norm) = {};  // of the last layer's result; cloned, too
};

class TransformerDecoderOptions {
 public:
  TransformerDecoderOptions(TransformerDecoderLayer decoder_layer, int64_t num_layers)
      : decoder_layer_(std::move(decoder_layer)), num_layers_(num_layers) {}
  TransformerDecoderOptions(const TransformerDecoderLayerOptions& decoder_layer_options,
                            int64_t num_layers)
      : TransformerDecoderOptions(TransformerDecoderLayer(decoder_layer_options), num_layers) {}
  HALFTAPE_ARG(TransformerDecoderLayer, decoder_layer);
  HALFTAPE_ARG(int64_t, num_layers);
  HALFTAPE_ARG(AnyModule, norm) = {};
};

}  // namespace halftape::nn
