#include "halftape/nn/modules/sequence/transformer_layer.h"

#include "halftape/autograd/ops/elementwise/binary.h"

namespace halftape::nn {
namespace {

/// The output of attention, without its weights.
Tensor attended(const MultiheadAttention& attention, const Tensor& query, const Tensor& memory,
                const Tensor& mask, const Tensor& padding) {
  return std::get<0>(attention(query, memory, memory, padding, false, mask));
}

MultiheadAttention attention(const TransformerEncoderLayerOptions& o) {
  return MultiheadAttention(MultiheadAttentionOptions(o.d_model(), o.nhead()).dropout(o.dropout()));
}
LayerNorm norm(const TransformerEncoderLayerOptions& o) { return LayerNorm(Shape{o.d_model()}); }

}  // namespace

void TransformerEncoderLayerImpl::reset() {
  const int64_t inside = options.dim_feedforward();
  self_attn = register_module("self_attn", attention(options));
  linear1 = register_module("linear1", Linear(options.d_model(), inside));
  dropout = register_module("dropout", Dropout(options.dropout()));
  linear2 = register_module("linear2", Linear(inside, options.d_model()));
  norm1 = register_module("norm1", norm(options));
  norm2 = register_module("norm2", norm(options));
  dropout1 = register_module("dropout1", Dropout(options.dropout()));
  dropout2 = register_module("dropout2", Dropout(options.dropout()));
}

void TransformerEncoderLayerImpl::reset_parameters() {
  self_attn->_reset_parameters();
  for (const Linear& layer : {linear1, linear2}) layer->reset_parameters();
  for (const LayerNorm& layer : {norm1, norm2}) layer->reset_parameters();
}

Tensor TransformerEncoderLayerImpl::forward(const Tensor& src, const Tensor& src_mask,
                                            const Tensor& src_key_padding_mask) const {
  const PlaceScope scope(*this);
  const Tensor x =
      norm1(src + dropout1(attended(self_attn, src, src, src_mask, src_key_padding_mask)));
  return scope.result(norm2(x + dropout2(linear2(dropout(options.activation()(linear1(x)))))));
}

void TransformerDecoderLayerImpl::reset() {
  const int64_t inside = options.dim_feedforward();
  self_attn = register_module("self_attn", attention(options));
  multihead_attn = register_module("multihead_attn", attention(options));
  linear1 = register_module("linear1", Linear(options.d_model(), inside));
  dropout = register_module("dropout", Dropout(options.dropout()));
  linear2 = register_module("linear2", Linear(inside, options.d_model()));
  norm1 = register_module("norm1", norm(options));
  norm2 = register_module("norm2", norm(options));
  norm3 = register_module("norm3", norm(options));
  dropout1 = register_module("dropout1", Dropout(options.dropout()));
  dropout2 = register_module("dropout2", Dropout(options.dropout()));
  dropout3 = register_module("dropout3", Dropout(options.dropout()));
}

void TransformerDecoderLayerImpl::reset_parameters() {
  for (const MultiheadAttention& layer : {self_attn, multihead_attn}) layer->_reset_parameters();
  for (const Linear& layer : {linear1, linear2}) layer->reset_parameters();
  for (const LayerNorm& layer : {norm1, norm2, norm3}) layer->reset_parameters();
}

Tensor TransformerDecoderLayerImpl::forward(const Tensor& tgt, const Tensor& memory,
                                            const Tensor& tgt_mask, const Tensor& memory_mask,
                                            const Tensor& tgt_key_padding_mask,
                                            const Tensor& memory_key_padding_mask) const {
  const PlaceScope scope(*this);
  const Tensor x =
      norm1(tgt + dropout1(attended(self_attn, tgt, tgt, tgt_mask, tgt_key_padding_mask)));
  const Tensor y = norm2(
      x + dropout2(attended(multihead_attn, x, memory, memory_mask, memory_key_padding_mask)));
  return scope.result(norm3(y + dropout3(linear2(dropout(options.activation()(linear1(y)))))));
}

}  // namespace halftape::nn
