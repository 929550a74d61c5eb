// Attention of several heads, with options.
#pragma once
#include <tuple>

#include "halftape/autograd/ops/product/attention.h"
#include "halftape/nn/options/attention.h"

namespace halftape::nn::functional {

using halftape::scaled_dot_product_attention;

/// Projects query (L, N, E), key (S, N, kdim) and value (S, N, vdim), attends in heads of E/heads
/// features each, and projects the result: (L, N, E). The second result are the weights: (N, L, S),
/// the mean over the heads, or (N, heads, L, S) without average_attn_weights; undefined without
/// need_weights. S grows by one with bias_k and bias_v, and with add_zero_attn.
/// attn_mask: (L, S) or (N·heads, L, S); key_padding_mask: (N, S). Each is bool, true for a key to
/// leave out, or floats to add to the scores. (LibTorch adds a bool attn_mask as ones.) A query
/// whose keys are all left out has weights of 0, where LibTorch has NaN. Vaswani et al. 2017,
/// arXiv:1706.03762.
std::tuple<Tensor, Tensor> multi_head_attention_forward(
    const Tensor& query, const Tensor& key, const Tensor& value,
    const MultiheadAttentionForwardFuncOptions& options);

}  // namespace halftape::nn::functional
