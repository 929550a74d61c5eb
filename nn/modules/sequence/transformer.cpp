#include "halftape/nn/modules/sequence/transformer.h"

#include <limits>

#include "halftape/autograd/ops/creation/create.h"
#include "halftape/autograd/ops/elementwise/mask.h"
#include "halftape/nn/init.h"

namespace halftape::nn {
namespace {

/// Registers clones of the layer and, where the options have one, of the norm.
template <class Stack, class Layer>
void reset_stack(Stack& stack, const char* name, const Layer& layer) {
  const int64_t count = stack.options.num_layers();
  HALFTAPE_CHECK(!layer.is_empty(), name, ": the layer is empty");
  detail::check_layers(name, count);
  ModuleList clones;
  for (int64_t i = 0; i < count; ++i) clones->push_back(layer->clone());
  stack.layers = stack.register_module("layers", clones);
  stack.norm = {};
  if (stack.options.norm().is_empty()) return;
  stack.norm = stack.options.norm().clone();
  stack.register_module("norm", stack.norm.ptr());
}

template <class Layer, class Stack>
void reset_stack_parameters(Stack& stack) {
  for (size_t i = 0; i < stack.layers->size(); ++i)
    stack.layers->template at<Layer>(i).reset_parameters();
  if (stack.norm.is_empty()) return;
  stack.norm = stack.options.norm().clone();  // it may be any module, without reset_parameters()
  stack.replace_module("norm", stack.norm.ptr());
}

/// x through all layers, each with the same further arguments, and the norm.
template <class Layer, class Stack, class... Args>
Tensor forward_stack(const Stack& stack, Tensor x, const Args&... args) {
  for (size_t i = 0; i < stack.layers->size(); ++i)
    x = stack.layers->template at<Layer>(i).forward(x, args...);
  return stack.norm.is_empty() ? x : stack.norm.forward(x);
}

TransformerEncoderLayerOptions layer_options(const TransformerOptions& o) {
  return TransformerEncoderLayerOptions(o.d_model(), o.nhead())
      .dim_feedforward(o.dim_feedforward())
      .dropout(o.dropout())
      .activation(o.activation());
}

}  // namespace

void TransformerEncoderImpl::reset() {
  reset_stack(*this, "TransformerEncoder", options.encoder_layer());
}

void TransformerEncoderImpl::reset_parameters() {
  reset_stack_parameters<TransformerEncoderLayerImpl>(*this);
}

Tensor TransformerEncoderImpl::forward(const Tensor& src, const Tensor& src_mask,
                                       const Tensor& src_key_padding_mask) const {
  const PlaceScope scope(*this);
  return scope.result(
      forward_stack<TransformerEncoderLayerImpl>(*this, src, src_mask, src_key_padding_mask));
}

void TransformerDecoderImpl::reset() {
  reset_stack(*this, "TransformerDecoder", options.decoder_layer());
}

void TransformerDecoderImpl::reset_parameters() {
  reset_stack_parameters<TransformerDecoderLayerImpl>(*this);
}

Tensor TransformerDecoderImpl::forward(const Tensor& tgt, const Tensor& memory,
                                       const Tensor& tgt_mask, const Tensor& memory_mask,
                                       const Tensor& tgt_key_padding_mask,
                                       const Tensor& memory_key_padding_mask) const {
  const PlaceScope scope(*this);
  return scope.result(forward_stack<TransformerDecoderLayerImpl>(
      *this, tgt, memory, tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask));
}

void TransformerImpl::reset() {
  const AnyModule norm(LayerNorm(Shape{options.d_model()}));
  encoder =
      options.custom_encoder().is_empty()
          ? AnyModule(TransformerEncoder(
                TransformerEncoderOptions(layer_options(options), options.num_encoder_layers())
                    .norm(norm)))
          : options.custom_encoder().clone();
  register_module("encoder", encoder.ptr());
  decoder =
      options.custom_decoder().is_empty()
          ? AnyModule(TransformerDecoder(
                TransformerDecoderOptions(layer_options(options), options.num_decoder_layers())
                    .norm(norm)))
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
  const PlaceScope scope(*this);
  HALFTAPE_CHECK(src.dim() == 3 && tgt.dim() == 3 && src.size(1) == tgt.size(1) &&
                     src.size(2) == options.d_model() && tgt.size(2) == options.d_model(),
                 "Transformer: src ", src.sizes(), " and tgt ", tgt.sizes(),
                 " must be (length, batch, d_model) of one batch, with d_model ",
                 options.d_model());
  const Tensor memory = encoder.forward(src, src_mask, src_key_padding_mask);
  return scope.result(decoder.forward(tgt, memory, tgt_mask, memory_mask, tgt_key_padding_mask,
                                      memory_key_padding_mask));
}

Tensor TransformerImpl::generate_square_subsequent_mask(int64_t sz) {
  HALFTAPE_CHECK(sz >= 0, "generate_square_subsequent_mask: sz ", sz, " is negative");
  return triu(full({sz, sz}, -std::numeric_limits<double>::infinity()), 1);
}

}  // namespace halftape::nn
