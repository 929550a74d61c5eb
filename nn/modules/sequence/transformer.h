// Transformer, its encoder and its decoder: options and modules.
#pragma once
#include <utility>

#include "halftape/nn/any_module.h"
#include "halftape/nn/modules/container/module_list.h"
#include "halftape/nn/modules/sequence/transformer_layer.h"

namespace halftape::nn {

/// A layer to clone num_layers times.
struct TransformerEncoderOptions {
  TransformerEncoderOptions(TransformerEncoderLayer encoder_layer, int64_t num_layers)
      : encoder_layer_(std::move(encoder_layer)), num_layers_(num_layers) {}
  TransformerEncoderOptions(const TransformerEncoderLayerOptions& encoder_layer_options,
                            int64_t num_layers)
      : TransformerEncoderOptions(TransformerEncoderLayer(encoder_layer_options), num_layers) {}
  HALFTAPE_ARG(TransformerEncoderLayer, encoder_layer);
  HALFTAPE_ARG(int64_t, num_layers);
  HALFTAPE_ARG(AnyModule, norm) = {};  // of the last layer's result; cloned, too
};

struct TransformerDecoderOptions {
  TransformerDecoderOptions(TransformerDecoderLayer decoder_layer, int64_t num_layers)
      : decoder_layer_(std::move(decoder_layer)), num_layers_(num_layers) {}
  TransformerDecoderOptions(const TransformerDecoderLayerOptions& decoder_layer_options,
                            int64_t num_layers)
      : TransformerDecoderOptions(TransformerDecoderLayer(decoder_layer_options), num_layers) {}
  HALFTAPE_ARG(TransformerDecoderLayer, decoder_layer);
  HALFTAPE_ARG(int64_t, num_layers);
  HALFTAPE_ARG(AnyModule, norm) = {};
};

struct TransformerOptions {
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

/// num_layers clones of a layer, one after the other, and a norm if one is given.
class TransformerEncoderImpl : public Cloneable<TransformerEncoderImpl> {
 public:
  TransformerEncoderImpl(const TransformerEncoderLayer& encoder_layer, int64_t num_layers)
      : TransformerEncoderImpl(TransformerEncoderOptions(encoder_layer, num_layers)) {}
  explicit TransformerEncoderImpl(const TransformerEncoderOptions& o) : options(o) {
    TransformerEncoderImpl::reset();
  }
  void reset() override;
  void reset_parameters();
  Tensor forward(const Tensor& src, const Tensor& src_mask = {},
                 const Tensor& src_key_padding_mask = {}) const;
  FORWARD_HAS_DEFAULT_ARGS({1, AnyValue(Tensor())}, {2, AnyValue(Tensor())})

  TransformerEncoderOptions options;
  ModuleList layers{nullptr};
  AnyModule norm;  // of the last output; may be empty
};
HALFTAPE_MODULE(TransformerEncoder);

/// The same with decoder layers.
class TransformerDecoderImpl : public Cloneable<TransformerDecoderImpl> {
 public:
  TransformerDecoderImpl(const TransformerDecoderLayer& decoder_layer, int64_t num_layers)
      : TransformerDecoderImpl(TransformerDecoderOptions(decoder_layer, num_layers)) {}
  explicit TransformerDecoderImpl(const TransformerDecoderOptions& o) : options(o) {
    TransformerDecoderImpl::reset();
  }
  void reset() override;
  void reset_parameters();
  Tensor forward(const Tensor& tgt, const Tensor& memory, const Tensor& tgt_mask = {},
                 const Tensor& memory_mask = {}, const Tensor& tgt_key_padding_mask = {},
                 const Tensor& memory_key_padding_mask = {}) const;
  FORWARD_HAS_DEFAULT_ARGS({2, AnyValue(Tensor())}, {3, AnyValue(Tensor())},
                           {4, AnyValue(Tensor())}, {5, AnyValue(Tensor())})

  TransformerDecoderOptions options;
  ModuleList layers{nullptr};
  AnyModule norm;  // of the last output; may be empty
};
HALFTAPE_MODULE(TransformerDecoder);

/// An encoder, whose result the layers of a decoder attend to. src: (S, N, d_model), tgt:
/// (T, N, d_model) → as tgt. Masks as in MultiheadAttention: src_mask (S, S), tgt_mask (T, T),
/// memory_mask (T, S), of padding (N, S) or (N, T). All matrices start by Glorot and Bengio's
/// rule. Vaswani et al. 2017, arXiv:1706.03762.
class TransformerImpl : public Cloneable<TransformerImpl> {
 public:
  explicit TransformerImpl(const TransformerOptions& o) : options(o) { TransformerImpl::reset(); }
  void reset() override;
  void reset_parameters();
  Tensor forward(const Tensor& src, const Tensor& tgt, const Tensor& src_mask = {},
                 const Tensor& tgt_mask = {}, const Tensor& memory_mask = {},
                 const Tensor& src_key_padding_mask = {}, const Tensor& tgt_key_padding_mask = {},
                 const Tensor& memory_key_padding_mask = {}) const;
  FORWARD_HAS_DEFAULT_ARGS({2, AnyValue(Tensor())}, {3, AnyValue(Tensor())},
                           {4, AnyValue(Tensor())}, {5, AnyValue(Tensor())},
                           {6, AnyValue(Tensor())}, {7, AnyValue(Tensor())})
  /// (sz, sz) for src_mask or tgt_mask: −∞ above the diagonal, 0 elsewhere.
  static Tensor generate_square_subsequent_mask(int64_t sz);

  TransformerOptions options;
  AnyModule encoder, decoder;
};
HALFTAPE_MODULE(Transformer);

}  // namespace halftape::nn
