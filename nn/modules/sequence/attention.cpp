#include "halftape/nn/modules/sequence/attention.h"

#include "halftape/autograd/ops/creation/create.h"
#include "halftape/nn/functional/attention.h"
#include "halftape/nn/init.h"

namespace halftape::nn {

MultiheadAttentionImpl::MultiheadAttentionImpl(const MultiheadAttentionOptions& o) : options(o) {
  MultiheadAttentionImpl::reset();
}

void MultiheadAttentionImpl::reset() {
  const int64_t features = options.embed_dim(), heads = options.num_heads();
  HALFTAPE_CHECK(features > 0 && heads > 0 && features % heads == 0,
                 "MultiheadAttention: embed_dim ", features, " must be divisible by num_heads ",
                 heads);
  head_dim = features / heads;
  _qkv_same_embed_dim = options.kdim() == features && options.vdim() == features;
  const auto parameter = [this](const char* name, bool there, const Shape& shape) {
    return register_parameter(name, there ? empty(shape) : Tensor(), there);
  };
  const bool separate = !_qkv_same_embed_dim;
  in_proj_weight = parameter("in_proj_weight", !separate, {3 * features, features});
  q_proj_weight = parameter("q_proj_weight", separate, {features, features});
  k_proj_weight = parameter("k_proj_weight", separate, {features, options.kdim()});
  v_proj_weight = parameter("v_proj_weight", separate, {features, options.vdim()});
  in_proj_bias = parameter("in_proj_bias", options.bias(), {3 * features});
  out_proj =
      register_module("out_proj", Linear(LinearOptions(features, features).bias(options.bias())));
  bias_k = bias_v = {};
  if (options.add_bias_kv()) {
    bias_k = parameter("bias_k", true, {1, 1, features});
    bias_v = parameter("bias_v", true, {1, 1, features});
  }
  _reset_parameters();
}

void MultiheadAttentionImpl::_reset_parameters() {
  for (const Tensor& w : {in_proj_weight, q_proj_weight, k_proj_weight, v_proj_weight})
    if (w.defined()) init::xavier_uniform_(w);
  if (in_proj_bias.defined()) {
    init::zeros_(in_proj_bias);
    init::zeros_(out_proj->bias);
  }
  for (const Tensor& b : {bias_k, bias_v})
    if (b.defined()) init::xavier_normal_(b);
}

std::tuple<Tensor, Tensor> MultiheadAttentionImpl::forward(
    const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& key_padding_mask,
    bool need_weights, const Tensor& attn_mask, bool average_attn_weights) const {
  return functional::multi_head_attention_forward(
      query, key, value,
      functional::MultiheadAttentionForwardFuncOptions(
          options.embed_dim(), options.num_heads(), in_proj_weight, in_proj_bias, bias_k, bias_v,
          options.add_zero_attn(), options.dropout(), out_proj->weight, out_proj->bias)
          .training(is_training())
          .key_padding_mask(key_padding_mask)
          .need_weights(need_weights)
          .attn_mask(attn_mask)
          .use_separate_proj_weight(!_qkv_same_embed_dim)
          .q_proj_weight(q_proj_weight)
          .k_proj_weight(k_proj_weight)
          .v_proj_weight(v_proj_weight)
          .average_attn_weights(average_attn_weights));
}

void MultiheadAttentionImpl::pretty_print(std::ostream& out) const {
  out << "halftape::nn::MultiheadAttention";
}

}  // namespace halftape::nn
