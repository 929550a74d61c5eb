#include "halftape/nn/modules/sequence/transformer.h"

#include <limits>

#include "halftape/autograd/ops/creation/create.h"
#include "halftape/autograd/ops/elementwise/mask.h"
#include "halftape/nn/init.h"

namespace halftape::nn {
namespace {

template <class Layer>
void check_stack(const char* name, const Layer& layer, int64_t num_layers) {
  HALFTAPE_CHECK(!layer.is_empty(), name, ": the layer is empty");
  HALFTAPE_CHECK(num_layers > 0, name, ": num_layers ", num_layers, " must be positive");
}

template <class Layer>
ModuleList clones(const Layer& layer, int64_t count) {
  ModuleList all;
  for (int64_t i = 0; i < count; ++i) all->push_back(layer->clone());
  return all;
}

template <class Layer>
void reset_all(const ModuleList& layers) {
  for (size_t i = 0; i < layers->size(); ++i) layers->at<Layer>(i).reset_parameters();
}

template <class LayerOptions>
LayerOptions layer_options(const TransformerOptions& o) {
  return LayerOptions(o.d_model(), o.nhead())
      .dim_feedforward(o.dim_feedforward())
      .dropout(o.dropout())
      .activation(o.activation());
}

}  // namespace

TransformerEncoderImpl::TransformerEncoderImpl(const TransformerEncoderOptions& o) : options(o) {
  TransformerEncoderImpl::reset();
}

void TransformerEncoderImpl::reset() {
  check_stack("TransformerEncoder", options.encoder_layer(), options.num_layers());
  layers = register_module("layers", clones(options.encoder_layer(), options.num_layers()));
  norm = {};
  if (options.norm().is_empty()) return;
  norm = options.norm().clone();
  register_module("norm", norm.ptr());
}

void TransformerEncoderImpl::reset_parameters() {
  reset_all<TransformerEncoderLayerImpl>(layers);
  if (norm.is_empty()) return;
  norm = options.norm().clone();  // any module: not all can be told to start anew
  replace_module("norm", norm.ptr());
}

Tensor TransformerEncoderImpl::forward(const Tensor& src, const Tensor& src_mask,
                                       const Tensor& src_key_padding_mask) const {
  Tensor x = src;
  for (size_t i = 0; i < layers->size(); ++i)
    x = layers->at<TransformerEncoderLayerImpl>(i).forward(x, src_mask, src_key_padding_mask);
  return norm.is_empty() ? x : norm.forward(x);
}

TransformerDecoderImpl::TransformerDecoderImpl(const TransformerDecoderOptions& o) : options(o) {
  TransformerDecoderImpl::reset();
}

void TransformerDecoderImpl::reset() {
  check_stack("TransformerDecoder", options.decoder_layer(), options.num_layers());
  layers = register_module("layers", clones(options.decoder_layer(), options.num_layers()));
  norm = {};
  if (options.norm().is_empty()) return;
  norm = options.norm().clone();
  register_module("norm", norm.ptr());
}

void TransformerDecoderImpl::reset_parameters() {
  reset_all<TransformerDecoderLayerImpl>(layers);
  if (norm.is_empty()) return;
  norm = options.norm().clone();
  replace_module("norm", norm.ptr());
}

Tensor TransformerDecoderImpl::forward(const Tensor& tgt, const Tensor& memory,
                                       const Tensor& tgt_mask, const Tensor& memory_mask,
                                       const Tensor& tgt_key_padding_mask,
                                       const Tensor& memory_key_padding_mask) const {
  Tensor x = tgt;
  for (size_t i = 0; i < layers->size(); ++i)
    x = layers->at<TransformerDecoderLayerImpl>(i).forward(
        x, memory, tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask);
  return norm.is_empty() ? x : norm.forward(x);
}

TransformerImpl::TransformerImpl(const TransformerOptions& o) : options(o) {
  TransformerImpl::reset();
}

void TransformerImpl::reset() {
  const auto norm = [&] { return AnyModule(LayerNorm(Shape{options.d_model()})); };
  encoder =
      options.custom_encoder().is_empty()
          ? AnyModule(TransformerEncoder(
                TransformerEncoderOptions(layer_options<TransformerEncoderLayerOptions>(options),
                                          options.num_encoder_layers())
                    .norm(norm())))
          : options.custom_encoder().clone();
  register_module("encoder", encoder.ptr());
  decoder =
      options.custom_decoder().is_empty()
          ? AnyModule(TransformerDecoder(
                TransformerDecoderOptions(layer_options<TransformerDecoderLayerOptions>(options),
                                          options.num_decoder_layers())
                    .norm(norm())))
          : options.custom_decoder().clone();
  register_module("decoder", decoder.ptr());
  reset_parameters();
}

void TransformerImpl::reset_parameters() {
  for (const Tensor& p : parameters())
    if (p.dim() > 1) init::xavier_uniform_(p);
}

Tensor TransformerImpl::forward(const Tensor& src, const Tensor& tgt, const Tensor& src_mask,
                                const Tensor& tgt_mask, const Tensor& memory_mask,
                                const Tensor& src_key_padding_mask,
                                const Tensor& tgt_key_padding_mask,
                                const Tensor& memory_key_padding_mask) const {
  HALFTAPE_CHECK(src.dim() == 3 && tgt.dim() == 3 && src.size(1) == tgt.size(1) &&
                     src.size(2) == options.d_model() && tgt.size(2) == options.d_model(),
                 "Transformer: src ", src.sizes(), " and tgt ", tgt.sizes(),
                 " must be (length, batch, d_model) of one batch, with d_model ",
                 options.d_model());
  const Tensor memory = encoder.forward(src, src_mask, src_key_padding_mask);
  return decoder.forward(tgt, memory, tgt_mask, memory_mask, tgt_key_padding_mask,
                         memory_key_padding_mask);
}

Tensor TransformerImpl::generate_square_subsequent_mask(int64_t sz) {
  HALFTAPE_CHECK(sz >= 0, "generate_square_subsequent_mask: sz ", sz, " is negative");
  return triu(full({sz, sz}, -std::numeric_limits<double>::infinity()), 1);
}

}  // namespace halftape::nn
