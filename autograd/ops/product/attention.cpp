#include "halftape/autograd/ops/product/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "halftape/autograd/ops/cast_list.h"
#include "halftape/autograd/ops/creation/create.h"
#include "halftape/autograd/ops/creation/dropout.h"
#include "halftape/autograd/ops/elementwise/binary.h"
#include "halftape/autograd/ops/elementwise/mask.h"
#include "halftape/autograd/ops/layout/dims.h"
#include "halftape/autograd/ops/product/matmul.h"
#include "halftape/autograd/ops/reduction/reduce.h"
#include "halftape/autograd/ops/reduction/softmax.h"
#include "halftape/autograd/tape/error_scope.h"

namespace halftape {
namespace {

using detail::joined, detail::last_dims, detail::leading_dims;

constexpr double kInf = std::numeric_limits<double>::infinity();

void check_heads(const char* op, const Tensor& q, const Tensor& k, const Tensor& v) {
  detail::same_kind(op, q, k);
  detail::same_kind(op, q, v);
  HALFTAPE_CHECK(q.dim() >= 2 && k.dim() >= 2 && v.dim() >= 2, op, ": query ", q.sizes(), ", key ",
                 k.sizes(), " and value ", v.sizes(),
                 " must be (…, length, features), of two dimensions or more");
  HALFTAPE_CHECK(q.size(-1) == k.size(-1), op, ": query ", q.sizes(), " and key ", k.sizes(),
                 " differ in their features");
  HALFTAPE_CHECK(k.size(-2) == v.size(-2), op, ": key ", k.sizes(), " and value ", v.sizes(),
                 " differ in length");
}

void check_mask(const char* op, const Tensor& mask, const Shape& scores) {
  HALFTAPE_CHECK(mask.dtype() == kBool || mask.is_floating_point(), op, ": attn_mask is ",
                 mask.dtype(), ", expected bool or floats");
  HALFTAPE_CHECK(broadcast(op, mask.sizes(), scores) == scores, op, ": attn_mask ", mask.sizes(),
                 " does not broadcast to the scores ", scores);
}

/// scale·q·kᵀ, rounded once: a product that fits when it is scaled does not overflow before.
Tensor scores(const char* op, const Tensor& q, const Tensor& k, double scale) {
  const Shape lead = broadcast(op, leading_dims(q.sizes(), 2), leading_dims(k.sizes(), 2));
  const auto stacked = [&](const Tensor& x) {
    const Shape matrix = last_dims(x.sizes(), 2);
    return reshape(expand(x, joined(lead, matrix)), joined({numel(lead)}, matrix));
  };
  return reshape(
      baddbmm(zeros({1, 1, 1}, q.options()), stacked(q), transpose(stacked(k), 1, 2), 0, scale),
      joined(lead, {q.size(-2), k.size(-2)}));
}

/// Bool, true where query i sees key j.
Tensor causal_mask(int64_t queries, int64_t keys, Device device) {
  return tril(ones({queries, keys}, TensorOptions(kBool).device(device)));
}

/// Softmax over the last dimension; of a row of −∞, which has no largest, 0.
Tensor softmax_or_zero(const Tensor& x) {
  const Tensor nothing = all(x.detach() == -kInf, {-1}, true);
  return masked_fill(softmax(masked_fill(x, nothing, 0), -1), nothing, 0);
}

}  // namespace

std::pair<Tensor, Tensor> detail::attention(const char* op, const Tensor& q_in, const Tensor& k_in,
                                            const Tensor& v_in, const Tensor& mask_in,
                                            double dropout_p, bool is_causal,
                                            std::optional<double> scale) {
  const ErrorScope scope(op, q_in, k_in, v_in);
  const auto [q, k, v, mask] =
      cast_inputs<3>(cast_list::scaled_dot_product_attention, q_in, k_in, v_in, mask_in);
  const PolicyScope plain(nullptr);
  check_heads(op, q, k, v);
  HALFTAPE_CHECK(!mask.defined() || !is_causal, op, ": attn_mask ", mask.sizes(),
                 " and is_causal=1 exclude each other");
  const Dtype wide = compute_dtype(q.dtype());
  const auto features = static_cast<double>(std::max<int64_t>(q.size(-1), 1));
  Tensor s = scores(op, q, k, scale.value_or(1 / std::sqrt(features))).to(wide);
  Tensor weights;
  if (mask.defined()) {
    check_mask(op, mask, s.sizes());
    weights = softmax_or_zero(mask.dtype() == kBool ? where(mask, s, -kInf) : s + mask.to(wide));
  } else {
    if (is_causal) s = where(causal_mask(s.size(-2), s.size(-1), s.device()), s, -kInf);
    weights = softmax(s, -1);
  }
  weights = dropout(weights, dropout_p).to(q.dtype());
  return {matmul(weights, v), weights};
}

Tensor scaled_dot_product_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                    const Tensor& attn_mask, double dropout_p, bool is_causal,
                                    std::optional<double> scale) {
  return detail::attention("scaled_dot_product_attention", query, key, value, attn_mask, dropout_p,
                           is_causal, scale)
      .first;
}

}  // namespace halftape
