// Attention: means of values, weighted by how well their keys fit a query.
#pragma once
#include <optional>
#include <utility>

#include "halftape/autograd/tensor.h"

namespace halftape {

/// softmax(scale·q·kᵀ + mask)·v, over the keys.  q: (…, L, E), k: (…, S, E), v: (…, S, Ev) with
/// leading dimensions that broadcast → (…, L, Ev), dtype of the inputs; softmax in float32. Under
/// autocast: the lower dtype.
/// attn_mask broadcasts to (…, L, S): bool, true where a key takes part, or floats that are added
/// to the scores. A query without a key that takes part gives 0. is_causal: query i sees the keys
/// 0 … i, and there may be no attn_mask. dropout_p: weights are dropped with that probability,
/// always. scale: 1/√E unless given. One recorded op, of memory that is linear in L and S; the
/// formula in ops where a float mask wants a gradient, to differentiate twice, and for dropout by
/// the CPU's Mt19937.
/// Vaswani et al. 2017, arXiv:1706.03762.
Tensor scaled_dot_product_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                    const Tensor& attn_mask = {}, double dropout_p = 0,
                                    bool is_causal = false, std::optional<double> scale = {});

namespace detail {
/// The same with errors in the name of `op`, and, if they are needed, the weights (…, L, S) after
/// dropout.
std::pair<Tensor, Tensor> attention(const char* op, const Tensor& q, const Tensor& k,
                                    const Tensor& v, const Tensor& mask, double dropout_p,
                                    bool is_causal, std::optional<double> scale, bool need_weights);
}  // namespace detail

}  // namespace halftape
