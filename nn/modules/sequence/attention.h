// MultiheadAttention. Computed by nn/functional/attention.h.
#pragma once
#include <tuple>

#include "halftape/nn/any_module.h"
#include "halftape/nn/cloneable.h"
#include "halftape/nn/modules/linear.h"
#include "halftape/nn/options/attention.h"

namespace halftape::nn {

/// query (L, N, E), key (S, N, kdim), value (S, N, vdim) → (L, N, E) and the weights (N, L, S).
/// Masks: true where a key is left out, or floats that are added to the scores. Weights start by
/// Glorot and Bengio's rule, biases at 0.
class MultiheadAttentionImpl : public Cloneable<MultiheadAttentionImpl> {
 public:
  MultiheadAttentionImpl(int64_t embed_dim, int64_t num_heads)
      : MultiheadAttentionImpl(MultiheadAttentionOptions(embed_dim, num_heads)) {}
  explicit MultiheadAttentionImpl(const MultiheadAttentionOptions& options);
  void reset() override;
  void _reset_parameters();
  void pretty_print(std::ostream& out) const override;
  std::tuple<Tensor, Tensor> forward(const Tensor& query, const Tensor& key, const Tensor& value,
                                     const Tensor& key_padding_mask = {}, bool need_weights = true,
                                     const Tensor& attn_mask = {},
                                     bool average_attn_weights = true) const;

  MultiheadAttentionOptions options;
  bool _qkv_same_embed_dim = true;
  Tensor in_proj_weight;                               // undefined when kdim or vdim differ from E
  Tensor in_proj_bias;                                 // undefined without bias
  Tensor bias_k, bias_v;                               // undefined without add_bias_kv
  Tensor q_proj_weight, k_proj_weight, v_proj_weight;  // undefined when kdim and vdim are E
  Linear out_proj{nullptr};
  int64_t head_dim = 0;

 protected:
  FORWARD_HAS_DEFAULT_ARGS({3, AnyValue(Tensor())}, {4, AnyValue(true)}, {5, AnyValue(Tensor())},
                           {6, AnyValue(true)})
};
HALFTAPE_MODULE(MultiheadAttention);

}  // namespace halftape::nn
