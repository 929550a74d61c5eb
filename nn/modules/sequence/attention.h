// Attention of several heads: options, function and module.
#pragma once
#include <tuple>
#include <utility>

#include "halftape/autograd/ops/product/attention.h"
#include "halftape/autograd/tensor.h"
#include "halftape/core/options.h"
#include "halftape/nn/any_module.h"
#include "halftape/nn/modules/linear.h"

namespace halftape::nn {

struct MultiheadAttentionOptions {
  MultiheadAttentionOptions(int64_t embed_dim, int64_t num_heads)
      : embed_dim_(embed_dim), num_heads_(num_heads), kdim_(embed_dim), vdim_(embed_dim) {}
  HALFTAPE_ARG(int64_t, embed_dim);  // features of all heads together
  HALFTAPE_ARG(int64_t, num_heads);
  HALFTAPE_ARG(double, dropout) = 0;  // of the weights
  HALFTAPE_ARG(bool, bias) = true;
  HALFTAPE_ARG(bool, add_bias_kv) = false;    // one more key and value, learned
  HALFTAPE_ARG(bool, add_zero_attn) = false;  // one more key and value of zeros
  HALFTAPE_ARG(int64_t, kdim);                // features of the keys, embed_dim unless given
  HALFTAPE_ARG(int64_t, vdim);                // and of the values
};

namespace functional {

/// Biases, masks, static_k and static_v may be undefined. With use_separate_proj_weight, so may
/// in_proj_weight; without it, the three q, k and v weights.
struct MultiheadAttentionForwardFuncOptions {
  MultiheadAttentionForwardFuncOptions(int64_t embed_dim_to_check, int64_t num_heads,
                                       Tensor in_proj_weight, Tensor in_proj_bias, Tensor bias_k,
                                       Tensor bias_v, bool add_zero_attn, double dropout_p,
                                       Tensor out_proj_weight, Tensor out_proj_bias)
      : embed_dim_to_check_(embed_dim_to_check),
        num_heads_(num_heads),
        in_proj_weight_(std::move(in_proj_weight)),
        in_proj_bias_(std::move(in_proj_bias)),
        bias_k_(std::move(bias_k)),
        bias_v_(std::move(bias_v)),
        add_zero_attn_(add_zero_attn),
        dropout_p_(dropout_p),
        out_proj_weight_(std::move(out_proj_weight)),
        out_proj_bias_(std::move(out_proj_bias)) {}
  HALFTAPE_ARG(int64_t, embed_dim_to_check);
  HALFTAPE_ARG(int64_t, num_heads);
  HALFTAPE_ARG(Tensor, in_proj_weight);  // (3·E, E)
  HALFTAPE_ARG(Tensor, in_proj_bias);    // (3·E)
  HALFTAPE_ARG(Tensor, bias_k);          // (1, 1, E)
  HALFTAPE_ARG(Tensor, bias_v);
  HALFTAPE_ARG(bool, add_zero_attn);
  HALFTAPE_ARG(double, dropout_p);
  HALFTAPE_ARG(Tensor, out_proj_weight);
  HALFTAPE_ARG(Tensor, out_proj_bias);
  HALFTAPE_ARG(bool, training) = true;
  HALFTAPE_ARG(Tensor, key_padding_mask) = {};
  HALFTAPE_ARG(bool, need_weights) = true;
  HALFTAPE_ARG(Tensor, attn_mask) = {};
  HALFTAPE_ARG(bool, use_separate_proj_weight) = false;
  HALFTAPE_ARG(Tensor, q_proj_weight) = {};  // (E, E)
  HALFTAPE_ARG(Tensor, k_proj_weight) = {};  // (E, kdim)
  HALFTAPE_ARG(Tensor, v_proj_weight) = {};  // (E, vdim)
  HALFTAPE_ARG(Tensor, static_k) = {};       // (N·heads, S, E/heads), instead of the projected key
  HALFTAPE_ARG(Tensor, static_v) = {};
  HALFTAPE_ARG(bool, average_attn_weights) = true;
};

using halftape::scaled_dot_product_attention;

/// Projects query (L, N, E), key (S, N, kdim) and value (S, N, vdim), attends in heads of E/heads
/// features each, and projects the result: (L, N, E). The second result is the weights: (N, L, S),
/// the mean over the heads, or (N, heads, L, S) without average_attn_weights; undefined without
/// need_weights. S grows by one with bias_k and bias_v, and with add_zero_attn.
/// attn_mask: (L, S) or (N·heads, L, S); key_padding_mask: (N, S). Each is bool, true for a key to
/// leave out, or floats to add to the scores. (LibTorch adds a bool attn_mask as ones.) A query
/// whose keys are all left out has weights of 0, where LibTorch has NaN. Vaswani et al. 2017,
/// arXiv:1706.03762.
std::tuple<Tensor, Tensor> multi_head_attention_forward(
    const Tensor& query, const Tensor& key, const Tensor& value,
    const MultiheadAttentionForwardFuncOptions& options);

}  // namespace functional

/// query (L, N, E), key (S, N, kdim), value (S, N, vdim) → (L, N, E) and the weights (N, L, S).
/// Masks: true where a key is left out, or floats that are added to the scores. Weights start by
/// Glorot and Bengio's rule, biases at 0.
class MultiheadAttentionImpl : public Cloneable<MultiheadAttentionImpl> {
 public:
  MultiheadAttentionImpl(int64_t embed_dim, int64_t num_heads)
      : MultiheadAttentionImpl(MultiheadAttentionOptions(embed_dim, num_heads)) {}
  explicit MultiheadAttentionImpl(const MultiheadAttentionOptions& o) : options(o) {
    MultiheadAttentionImpl::reset();
  }
  void reset() override;
  /// reset_parameters() under LibTorch's name.
  void _reset_parameters();
  void pretty_print(std::ostream& out) const override;
  std::tuple<Tensor, Tensor> forward(const Tensor& query, const Tensor& key, const Tensor& value,
                                     const Tensor& key_padding_mask = {}, bool need_weights = true,
                                     const Tensor& attn_mask = {},
                                     bool average_attn_weights = true) const;
  FORWARD_HAS_DEFAULT_ARGS({3, AnyValue(Tensor())}, {4, AnyValue(true)}, {5, AnyValue(Tensor())},
                           {6, AnyValue(true)})

  MultiheadAttentionOptions options;
  bool _qkv_same_embed_dim = true;                     // kdim and vdim are E
  Tensor in_proj_weight;                               // undefined when kdim or vdim differ from E
  Tensor in_proj_bias;                                 // undefined without bias
  Tensor bias_k, bias_v;                               // undefined without add_bias_kv
  Tensor q_proj_weight, k_proj_weight, v_proj_weight;  // undefined when kdim and vdim are E
  Linear out_proj{nullptr};
  int64_t head_dim = 0;  // E / num_heads
};
HALFTAPE_MODULE(MultiheadAttention);

}  // namespace halftape::nn
