#include "halftape/nn/modules/sequence/attention.h"

#include <array>
#include <limits>

#include "halftape/autograd/ops/creation/create.h"
#include "halftape/autograd/ops/elementwise/binary.h"
#include "halftape/autograd/ops/elementwise/unary.h"
#include "halftape/autograd/ops/layout/shape.h"
#include "halftape/autograd/ops/layout/view.h"
#include "halftape/autograd/ops/product/linear.h"
#include "halftape/autograd/ops/reduction/reduce.h"
#include "halftape/autograd/tape/error_scope.h"
#include "halftape/nn/init.h"

namespace halftape::nn {

namespace functional {
namespace {

using Options = MultiheadAttentionForwardFuncOptions;
constexpr const char* kOp = "multi_head_attention_forward";

void check(const Tensor& query, const Tensor& key, const Tensor& value, const Options& o) {
  HALFTAPE_CHECK(query.dim() == 3 && key.dim() == 3 && value.dim() == 3, kOp, ": query ",
                 query.sizes(), ", key ", key.sizes(), " and value ", value.sizes(),
                 " must be (length, batch, features)");
  const int64_t features = o.embed_dim_to_check();
  HALFTAPE_CHECK(query.size(2) == features, kOp, ": query ", query.sizes(), " has ", query.size(2),
                 " features, expected embed_dim ", features);
  HALFTAPE_CHECK(
      key.size(0) == value.size(0) && key.size(1) == value.size(1) && key.size(1) == query.size(1),
      kOp, ": query ", query.sizes(), ", key ", key.sizes(), " and value ", value.sizes(),
      " must agree in batch, key and value in length");
  HALFTAPE_CHECK(o.num_heads() > 0 && features % o.num_heads() == 0, kOp, ": embed_dim ", features,
                 " must be divisible by num_heads ", o.num_heads());
  HALFTAPE_CHECK(o.bias_k().defined() == o.bias_v().defined(), kOp,
                 ": of bias_k and bias_v 1 is missing");
  HALFTAPE_CHECK(!o.bias_k().defined() || !(o.static_k().defined() || o.static_v().defined()), kOp,
                 ": bias_k and bias_v cannot be added to static_k or static_v");
}

/// q, k and v; one product computes several of them where inputs are the same tensor.
std::array<Tensor, 3> projected(const Tensor& query, const Tensor& key, const Tensor& value,
                                const Options& o) {
  const int64_t features = o.embed_dim_to_check();
  const Tensor &w = o.in_proj_weight(), &b = o.in_proj_bias();
  const auto part = [&](const Tensor& of, int64_t from, int64_t to) {
    return of.defined() ? slice(of, 0, from * features, to * features) : of;
  };
  if (o.use_separate_proj_weight())
    return {linear(query, o.q_proj_weight(), part(b, 0, 1)),
            linear(key, o.k_proj_weight(), part(b, 1, 2)),
            linear(value, o.v_proj_weight(), part(b, 2, 3))};
  if (query.is_same(key) && key.is_same(value)) {
    const TensorList all = chunk(linear(query, w, b), 3, -1);
    return {all[0], all[1], all[2]};
  }
  const Tensor q = linear(query, part(w, 0, 1), part(b, 0, 1));
  if (key.is_same(value)) {
    const TensorList both = chunk(linear(key, part(w, 1, 3), part(b, 1, 3)), 2, -1);
    return {q, both[0], both[1]};
  }
  return {q, linear(key, part(w, 1, 2), part(b, 1, 2)),
          linear(value, part(w, 2, 3), part(b, 2, 3))};
}

/// (length, N, E) → (N, heads, length, E/heads).
Tensor in_heads(const Tensor& x, int64_t heads) {
  return permute(unflatten(x, 2, {heads, -1}), {1, 2, 0, 3});
}

/// static_k or static_v, (N·heads, S, E/heads) → (N, heads, S, E/heads).
Tensor given_heads(const char* name, const Tensor& x, int64_t batch, int64_t heads,
                   int64_t features) {
  HALFTAPE_CHECK(x.dim() == 3 && x.size(0) == batch * heads && x.size(2) == features / heads, kOp,
                 ": ", name, " ", x.sizes(), ", expected (", batch * heads, ", S, ",
                 features / heads, ')');
  return unflatten(x, 0, {batch, heads});
}

/// A mask as floats to add to the scores.
Tensor as_scores(const Tensor& mask) {
  if (mask.dtype() != kBool) return mask;
  return where(mask, -std::numeric_limits<double>::infinity(), 0.0);
}

/// Both masks as one for scaled_dot_product_attention. `extra`: further keys, never masked.
Tensor joined_mask(const Options& o, int64_t batch, int64_t queries, int64_t keys, int64_t extra) {
  const auto readable = [](const char* name, const Tensor& mask) {
    HALFTAPE_CHECK(mask.dtype() == kBool || mask.is_floating_point(), kOp, ": ", name, " is ",
                   mask.dtype(), ", expected bool or floats");
  };
  Tensor attention, padding;
  if (o.attn_mask().defined()) {
    const Tensor& mask = o.attn_mask();
    readable("attn_mask", mask);
    const Shape flat{queries, keys}, full{batch * o.num_heads(), queries, keys};
    HALFTAPE_CHECK(mask.sizes() == flat || mask.sizes() == full, kOp, ": attn_mask ", mask.sizes(),
                   ", expected ", flat, " or ", full);
    attention = pad(mask, {0, extra});
    if (mask.dim() == 3) attention = unflatten(attention, 0, {batch, o.num_heads()});
  }
  if (o.key_padding_mask().defined()) {
    const Tensor& mask = o.key_padding_mask();
    readable("key_padding_mask", mask);
    HALFTAPE_CHECK(mask.sizes() == (Shape{batch, keys}), kOp, ": key_padding_mask ", mask.sizes(),
                   ", expected ", Shape{batch, keys});
    padding = reshape(pad(mask, {0, extra}), {batch, 1, 1, keys + extra});
  }
  if (!attention.defined() || !padding.defined()) {
    const Tensor one = attention.defined() ? attention : padding;
    return one.defined() && one.dtype() == kBool ? logical_not(one) : one;
  }
  if (attention.dtype() == kBool && padding.dtype() == kBool)
    return logical_not(logical_or(attention, padding));
  return as_scores(attention) + as_scores(padding);
}

}  // namespace

std::tuple<Tensor, Tensor> multi_head_attention_forward(const Tensor& query, const Tensor& key,
                                                        const Tensor& value, const Options& o) {
  const ErrorScope scope(kOp, query, key, value);
  check(query, key, value, o);
  const int64_t batch = query.size(1), heads = o.num_heads(), features = o.embed_dim_to_check();
  auto [q, k, v] = projected(query, key, value, o);
  if (o.bias_k().defined()) {
    const Shape one{1, batch, features};
    k = cat({k, expand(o.bias_k(), one).to(k.dtype())});
    v = cat({v, expand(o.bias_v(), one).to(v.dtype())});
  }
  q = in_heads(q, heads);
  k = o.static_k().defined() ? given_heads("static_k", o.static_k(), batch, heads, features)
                             : in_heads(k, heads);
  v = o.static_v().defined() ? given_heads("static_v", o.static_v(), batch, heads, features)
                             : in_heads(v, heads);
  const int64_t extra = (o.bias_k().defined() ? 1 : 0) + (o.add_zero_attn() ? 1 : 0);
  const int64_t keys = k.size(2) - (o.bias_k().defined() ? 1 : 0);
  if (o.add_zero_attn()) {
    k = pad(k, {0, 0, 0, 1});
    v = pad(v, {0, 0, 0, 1});
  }
  const auto [y, weights] =
      halftape::detail::attention(kOp, q, k, v, joined_mask(o, batch, query.size(0), keys, extra),
                                  o.training() ? o.dropout_p() : 0, false, {}, o.need_weights());
  const Tensor out =
      linear(flatten(permute(y, {2, 0, 1, 3}), 2), o.out_proj_weight(), o.out_proj_bias());
  if (!o.need_weights()) return {out, Tensor()};
  return {out, o.average_attn_weights() ? mean(weights, {1}) : weights};
}

}  // namespace functional

void MultiheadAttentionImpl::reset() {
  const int64_t features = options.embed_dim(), heads = options.num_heads();
  detail::check_positive("MultiheadAttention", "embed_dim", features, "num_heads", heads, "kdim",
                         options.kdim(), "vdim", options.vdim());
  detail::check_fraction("MultiheadAttention", "dropout", options.dropout());
  HALFTAPE_CHECK(features % heads == 0, "MultiheadAttention: embed_dim ", features,
                 " must be divisible by num_heads ", heads);
  head_dim = features / heads;
  _qkv_same_embed_dim = options.kdim() == features && options.vdim() == features;
  const auto parameter = [this](const char* name, bool there, const Shape& shape) {
    return register_parameter(name, there ? empty(shape) : Tensor(), there);
  };
  const bool separate = !_qkv_same_embed_dim;
  const int64_t all = checked_mul(3, features);
  in_proj_weight = parameter("in_proj_weight", !separate, {all, features});
  q_proj_weight = parameter("q_proj_weight", separate, {features, features});
  k_proj_weight = parameter("k_proj_weight", separate, {features, options.kdim()});
  v_proj_weight = parameter("v_proj_weight", separate, {features, options.vdim()});
  in_proj_bias = parameter("in_proj_bias", options.bias(), {all});
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
  const PlaceScope scope(*this);
  return scope.result(functional::multi_head_attention_forward(
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
          .average_attn_weights(average_attn_weights)));
}

void MultiheadAttentionImpl::pretty_print(std::ostream& out) const {
  out << "halftape::nn::MultiheadAttention";
}

}  // namespace halftape::nn
