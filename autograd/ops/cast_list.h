// The autocast category of every op that is not a formula of core/formula; a formula states its
// own. The categories are those of torch's CUDA list; amp/policy.h has others.
#pragma once
#include <span>

#include "halftape/autograd/tape/policy.h"

namespace halftape {

/// OP(name, category) for each of them.
// clang-format off
#define HALFTAPE_CAST_LIST(OP)                                                                      \
  /* Products: throughput decides, and their sums are float32 anyway. */                            \
  OP(matmul, Lower) OP(mm, Lower) OP(bmm, Lower) OP(mv, Lower) OP(addmm, Lower) OP(addmv, Lower)    \
  OP(addr, Lower) OP(addbmm, Lower) OP(baddbmm, Lower) OP(einsum, Lower) OP(linear, Lower)          \
  OP(conv1d, Lower) OP(conv2d, Lower) OP(conv3d, Lower) OP(conv_transpose1d, Lower)                 \
  OP(conv_transpose2d, Lower) OP(conv_transpose3d, Lower) OP(scaled_dot_product_attention, Lower)   \
  OP(rnn_tanh, Lower) OP(rnn_relu, Lower) OP(gru, Lower) OP(lstm, Lower) OP(rnn_tanh_cell, Lower)   \
  OP(rnn_relu_cell, Lower) OP(gru_cell, Lower) OP(lstm_cell, Lower)                                 \
  /* Sums of many terms, and exponentials. */                                                       \
  OP(sum, Float32) OP(prod, Float32) OP(cumsum, Float32) OP(cumprod, Float32) OP(norm, Float32)     \
  OP(logsumexp, Float32) OP(dist, Float32) OP(cdist, Float32) OP(pdist, Float32)                    \
  OP(pairwise_distance, Float32) OP(renorm, Float32)                                                \
  OP(cosine_similarity, Float32) OP(softmax, Float32) OP(log_softmax, Float32)                      \
  OP(nll_loss, Float32) OP(cross_entropy, Float32) OP(mse_loss, Float32)                            \
  OP(binary_cross_entropy_with_logits, Float32) OP(l1_loss, Float32) OP(smooth_l1_loss, Float32)    \
  OP(huber_loss, Float32) OP(kl_div, Float32) OP(poisson_nll_loss, Float32)                         \
  OP(gaussian_nll_loss, Float32) OP(hinge_embedding_loss, Float32) OP(soft_margin_loss, Float32)    \
  OP(margin_ranking_loss, Float32) OP(cosine_embedding_loss, Float32)                               \
  OP(multi_margin_loss, Float32) OP(multilabel_margin_loss, Float32)                                \
  OP(multilabel_soft_margin_loss, Float32) OP(triplet_margin_loss, Float32) OP(ctc_loss, Float32)   \
  OP(layer_norm, Float32) OP(rms_norm, Float32) OP(group_norm, Float32)                             \
  OP(local_response_norm, Float32) OP(normalize, Float32)                                           \
  OP(lp_pool1d, Float32) OP(lp_pool2d, Float32) OP(lp_pool3d, Float32)                              \
  OP(interpolate, Float32)                                                                          \
  /* Their inputs must agree. */                                                                    \
  OP(dot, Widest) OP(cross, Widest) OP(tensordot, Widest) OP(bilinear, Widest) OP(addcmul, Widest)  \
  OP(addcdiv, Widest) OP(index_put, Widest) OP(scatter_add, Widest) OP(grid_sample, Widest)         \
  /* They round once from float32 on the way, or only move values. */                               \
  OP(mean, Keep) OP(var, Keep) OP(std, Keep) OP(max, Keep) OP(min, Keep) OP(amax, Keep)             \
  OP(amin, Keep) OP(aminmax, Keep) OP(trace, Keep) OP(cat, Keep) OP(where, Keep) OP(dropout, Keep)  \
  OP(batch_norm, Keep) OP(instance_norm, Keep) OP(avg_pool3d, Keep)                                 \
  /* A probability near 0 or 1 has no digits left in half. */                                       \
  OP(binary_cross_entropy, Refuse)
// clang-format on

namespace cast_list {
#define HALFTAPE_DECLARE(op, category) inline constexpr CastOp op{#op, Cast::category};
HALFTAPE_CAST_LIST(HALFTAPE_DECLARE)
#undef HALFTAPE_DECLARE
}  // namespace cast_list

/// Every op that a policy decides about, under the name that users call; each name once. Other ops
/// are compositions of these, or move bytes whatever their dtype.
std::span<const CastOp> cast_ops();

}  // namespace halftape
