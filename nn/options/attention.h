// Options of multi-head attention, for the function (nn/functional/attention.h) and the module
// (nn/modules/sequence/attention.h).
#pragma once
#include <utility>

#include "halftape/autograd/tensor.h"
#include "halftape/core/options.h"

namespace halftape::nn {

class MultiheadAttentionOptions {
 public:
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
class MultiheadAttentionForwardFuncOptions {
 public:
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

}  // namespace functional

}  // namespace halftape::nn
