// Embeddings, with options. The indices come first here.
#pragma once
#include "halftape/nn/options/embedding.h"

namespace halftape::nn::functional {

namespace detail {
inline void before_lookup(const char* op, const Tensor& indices, const Tensor& weight, bool sparse,
                          const std::optional<double>& max_norm, double norm_type) {
  HALFTAPE_CHECK(!sparse, op, ": sparse gradients (sparse=1) do not exist here; leave it false");
  if (max_norm) embedding_renorm_(weight, indices, *max_norm, norm_type);
}
}  // namespace detail

/// Rows of weight (num, C) by index: (…) → (…, C). With max_norm, the rows looked up are first
/// shortened to it in the weight itself.
inline Tensor embedding(const Tensor& indices, const Tensor& weight,
                        const EmbeddingFuncOptions& o = {}) {
  detail::before_lookup("embedding", indices, weight, o.sparse(), o.max_norm(), o.norm_type());
  return halftape::embedding(weight, indices, o.padding_idx(), o.scale_grad_by_freq());
}
/// Sums, means or maxima of bags of rows: (bags, length), or (n) with offsets → (bags, C).
inline Tensor embedding_bag(const Tensor& indices, const Tensor& weight,
                            const EmbeddingBagFuncOptions& o = {}) {
  detail::before_lookup("embedding_bag", indices, weight, o.sparse(), o.max_norm(), o.norm_type());
  return halftape::embedding_bag(weight, indices, o.offsets(), o.mode(), o.per_sample_weights(),
                                 o.include_last_offset(), o.padding_idx(), o.scale_grad_by_freq());
}

}  // namespace halftape::nn::functional
