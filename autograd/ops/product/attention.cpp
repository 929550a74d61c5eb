#include "halftape/autograd/ops/product/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "halftape/autograd/ops/cast_list.h"
#include "halftape/autograd/ops/creation/create.h"
#include "halftape/autograd/ops/creation/dropout.h"
#include "halftape/autograd/ops/elementwise/binary.h"
#include "halftape/autograd/ops/elementwise/mask.h"
#include "halftape/autograd/ops/layout/dims.h"
#include "halftape/autograd/ops/product/matmul.h"
#include "halftape/autograd/ops/reduction/reduce.h"
#include "halftape/autograd/ops/reduction/softmax.h"
#include "halftape/autograd/tape/by_formula.h"
#include "halftape/autograd/tape/error_scope.h"
#include "halftape/autograd/tape/record.h"
#include "halftape/core/capture/capture.h"
#include "halftape/core/contract/backend.h"

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
    return detail::reshaped(expand(x, joined(lead, matrix)), joined({numel(lead)}, matrix));
  };
  return detail::reshaped(
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

/// What an attention is, besides its tensors.
struct Settings {
  bool causal;
  double scale, dropout;
  std::optional<RandomKey> key = {};  // of numbers that are drawn already
  Array live = {};                    // what the key leads to in a Graph

  Attention task(const Array& q, const Array& k, const Array& v, const Array& mask,
                 const Array& y) const {
    return {.q = q,
            .k = k,
            .v = v,
            .mask = mask,
            .causal = causal,
            .scale = scale,
            .dropout = dropout,
            .key = key.value_or(RandomKey()),
            .live = live,
            .y = y};
  }
};

/// w with elements dropped as dropout() does, by numbers drawn with how.key if there is one.
Tensor dropped(const Tensor& w, const Settings& how) {
  if (!how.key || how.dropout == 0) return dropout(w, how.dropout);
  const Array kept(w.sizes(), w.dtype(), w.device());
  backend(w.device()).random(kept, Distribution::Bernoulli, 1 - how.dropout, 0, *how.key);
  return w * Tensor(kept) / (1 - how.dropout);
}

/// The formula, in ops: the result, and the weights.
std::pair<Tensor, Tensor> in_ops(const char* op, const Tensor& q, const Tensor& k, const Tensor& v,
                                 const Tensor& mask, const Settings& how) {
  const Dtype wide = compute_dtype(q.dtype());
  Tensor s = scores(op, q, k, how.scale).to(wide);
  Tensor weights;
  if (mask.defined()) {
    weights = softmax_or_zero(mask.dtype() == kBool ? where(mask, s, -kInf) : s + mask.to(wide));
  } else {
    if (how.causal) s = where(causal_mask(s.size(-2), s.size(-1), s.device()), s, -kInf);
    weights = softmax(s, -1);
  }
  weights = dropped(weights, how).to(q.dtype());
  return {matmul(weights, v), weights};
}

/// Uninitialised, in the order in memory that x's batches, heads and rows have.
Array laid_out_as(const Array& x, int64_t columns) {
  Dims order{0, 1, 2, 3}, back = order;
  const auto stride = [&](int64_t d) {
    return x.size(static_cast<int>(d)) > 1 ? x.strides()[static_cast<int>(d)] : 0;
  };
  std::stable_sort(order.begin(), order.begin() + 3,
                   [&](int64_t a, int64_t b) { return stride(a) > stride(b); });
  Shape shape;
  for (int d = 0; d < 4; ++d) {
    const auto from = static_cast<int>(order[d]);
    back[from] = d;
    shape.push_back(d < 3 ? x.size(from) : columns);
  }
  return Array(shape, x.dtype(), x.device()).permute(back);
}

/// The op as its backward pass needs it.
struct Whole {
  Settings how;
  std::vector<Saved> inputs;  // q, k, v
  Saved mask, y;
  Array largest, total;

  Grads gradients(const Node& self, const Tensor& g) const {
    AttentionGrad d{
        .of = how.task(inputs[0].array(self), inputs[1].array(self), inputs[2].array(self),
                       mask.defined() ? mask.array(self) : Array(), y.array(self)),
        .g = g.array()};
    d.of.largest = largest, d.of.total = total;
    Grads found(3);
    const auto fresh = [&](size_t i, const Array& x) {
      if (!self.wants(i)) return Array();
      Array a = laid_out_as(x, x.size(3));
      found[i] = Tensor(a);
      return a;
    };
    d.dq = fresh(0, d.of.q);
    d.dk = fresh(1, d.of.k);
    d.dv = fresh(2, d.of.v);
    backend(g.device()).run(d);
    return found;
  }
  Grads recorded(Node& self, const Tensor& g) const {
    return vjp_by_formula(self, inputs, g, [&](const TensorList& in) {
      const Tensor m = mask.defined() ? mask.tensor(self) : Tensor();
      return in_ops(self.name(), in[0], in[1], in[2], m, how).first;
    });
  }
};

/// x (…, rows, columns) as (batches, heads, rows, columns), where the leading dimensions of all
/// that takes part are `lead`, and the last two become `matrix`. What is broadcast has strides of
/// 0, unless it is so in some of the batches' dimensions and not in others.
Tensor in_heads(const Tensor& x, const Shape& lead, const Shape& matrix) {
  const int outer = std::max(lead.size() - 1, 0), rank = lead.size() + 2;
  const Shape own = joined(Shape::filled(rank - static_cast<int>(x.dim()), 1), x.sizes()),
              inner = own.slice(outer, rank - outer);
  Shape batches = own.slice(0, outer);
  Tensor all = detail::reshaped(x, own);
  if (numel(batches) != 1 && batches != lead.slice(0, outer)) {
    batches = lead.slice(0, outer);
    all = expand(all, joined(batches, inner));
  }
  const Shape heads = lead.empty() ? joined({1}, inner) : inner;
  all = detail::reshaped(all, joined({numel(batches)}, heads));
  const Shape wanted =
      joined({numel(lead.slice(0, outer)), lead.empty() ? 1 : lead[outer]}, matrix);
  return all.sizes() == wanted ? all : expand(all, wanted);
}

/// True if the backend computes it at once: no size is 0, and no gradient but those of q, k and v
/// is wanted.
bool is_fused(const char* op, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask,
              const Shape& lead, const Settings& how) {
  const bool drops = how.dropout != 0;
  if (numel(lead) == 0 || q.numel() == 0 || k.numel() == 0 || v.numel() == 0) return false;
  if (broadcast(op, lead, leading_dims(v.sizes(), 2)) != lead) return false;
  if (drops && !(how.dropout > 0 && how.dropout < 1)) return false;
  if (drops && q.device().is_cpu() && cpu_random_engine() != RandomEngine::Philox) return false;
  return !mask.defined() || (mask.device() == q.device() && !records({&mask}));
}

/// As one op.
Tensor fused(const Tensor& q_in, const Tensor& k_in, const Tensor& v_in, const Tensor& mask_in,
             const Shape& lead, Settings how) {
  const Tensor q = in_heads(q_in, lead, last_dims(q_in.sizes(), 2)),
               k = in_heads(k_in, lead, last_dims(k_in.sizes(), 2)),
               v = in_heads(v_in, lead, last_dims(v_in.sizes(), 2));
  const int64_t batches = q.size(0), heads = q.size(1), rows = q.size(2), keys = k.size(2);
  const Tensor mask = mask_in.defined() ? in_heads(mask_in, lead, {rows, keys}) : mask_in;
  if (how.dropout != 0) {
    how.key = random_reserve(q.device(), batches * heads * rows * keys);
    how.live = Capture::random_start_on(q.device());
  }
  Attention a = how.task(q.array(), k.array(), v.array(), mask.defined() ? mask.array() : Array(),
                         laid_out_as(q.array(), v.size(3)));
  a.largest = Array({batches, heads, rows}, compute_dtype(q.dtype()), q.device());
  a.total = empty_like(a.largest);
  backend(q.device()).run(a);
  const Shape shape = joined(lead, {rows, v.size(3)});
  if (!records({&q, &k, &v})) return detail::reshaped(Tensor(a.y), shape);
  Whole whole{how,
              {Saved(q), Saved(k), Saved(v)},
              Saved::if_wanted(mask.defined(), mask),
              Saved(a.y),
              a.largest,
              a.total};
  return detail::reshaped(record("scaled_dot_product_attention", a.y, {&q, &k, &v},
                                 [whole = std::move(whole)](Node& self, const Tensor& g) {
                                   return GradMode::is_enabled() ? whole.recorded(self, g)
                                                                 : whole.gradients(self, g);
                                 }),
                          shape);
}

}  // namespace

std::pair<Tensor, Tensor> detail::attention(const char* op, const Tensor& q_in, const Tensor& k_in,
                                            const Tensor& v_in, const Tensor& mask_in,
                                            double dropout_p, bool is_causal,
                                            std::optional<double> scale, bool need_weights) {
  const ErrorScope scope(op, q_in, k_in, v_in);
  const auto [q, k, v, mask] =
      cast_inputs<3>(cast_list::scaled_dot_product_attention, q_in, k_in, v_in, mask_in);
  const PolicyScope plain(nullptr);
  check_heads(op, q, k, v);
  HALFTAPE_CHECK(!mask.defined() || !is_causal, op, ": attn_mask ", mask.sizes(),
                 " and is_causal=1 exclude each other");
  const Shape lead = broadcast(op, leading_dims(q.sizes(), 2), leading_dims(k.sizes(), 2));
  if (mask.defined()) check_mask(op, mask, joined(lead, {q.size(-2), k.size(-2)}));
  const auto features = static_cast<double>(std::max<int64_t>(q.size(-1), 1));
  const Settings how{is_causal, scale.value_or(1 / std::sqrt(features)), dropout_p};
  if (!need_weights && is_fused(op, q, k, v, mask, lead, how))
    return {fused(q, k, v, mask, lead, how), Tensor()};
  return in_ops(op, q, k, v, mask, how);
}

Tensor scaled_dot_product_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                    const Tensor& attn_mask, double dropout_p, bool is_causal,
                                    std::optional<double> scale) {
  return detail::attention("scaled_dot_product_attention", query, key, value, attn_mask, dropout_p,
                           is_causal, scale, false)
      .first;
}

}  // namespace halftape
