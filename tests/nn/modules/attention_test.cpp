// Attention against PyTorch's (scripts/torch_vectors/attention.py), and what is ours alone.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <sstream>

#include "halftape/tests/support/message.h"
#include "halftape/tests/support/modules/module_vectors.h"
#include "halftape/tests/support/nonfinite.h"

using namespace halftape;
namespace F = nn::functional;
using testing::differ;
using testing::has;
using testing::kInf;
using testing::message;
using testing::ModuleVectors;
using testing::same_bits;

namespace {

Tensor flags(std::initializer_list<int> values, const Shape& shape) {
  return tensor(std::vector<int64_t>(values.begin(), values.end())).reshape(shape) != 0;
}
/// Of 5 keys, what 3 queries see; the second sees none.
Tensor seen() { return flags({1, 0, 1, 1, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1}, {3, 5}); }

}  // namespace

TEST_CASE("scaled_dot_product_attention gives PyTorch's values and gradients") {
  for (const Dtype dtype : {kFloat64, kFloat32}) {
    const ModuleVectors torch("attention.txt", dtype);
    const Tensor q = torch.leaf("q", {2, 3, 4}), k = torch.leaf("k", {2, 5, 4}),
                 v = torch.leaf("v", {2, 5, 3}), several = torch.leaf("several_q", {2, 2, 3, 4}),
                 added = torch.leaf("added", {3, 5});
    const auto sdpa = scaled_dot_product_attention;
    torch.check("attention/plain", sdpa(q, k, v, {}, 0, false, {}), {q, k, v});
    torch.check("attention/scale", sdpa(q, k, v, {}, 0, false, 1.7), {q, k, v});
    torch.check("attention/causal", sdpa(q, k, v, {}, 0, true, {}), {q, k, v});
    torch.check("attention/long_causal", sdpa(k, q, v.slice(1, 0, 3), {}, 0, true, {}), {k, q});
    torch.check("attention/bool", sdpa(q, k, v, seen(), 0, false, {}), {q, k, v});
    torch.check("attention/float", sdpa(q, k, v, added, 0, false, {}), {q, k, v, added});
    torch.check("attention/heads",
                sdpa(several, k.unsqueeze(1), v.unsqueeze(1), seen(), 0, false, {}),
                {several, k, v});
  }
}

TEST_CASE("a query that sees no key gives 0, and derivatives of any order that are finite") {
  const Tensor q = randn({3, 4}).requires_grad_(), k = randn({5, 4}).requires_grad_(),
               v = randn({5, 2}).requires_grad_();
  for (const Tensor& mask : {seen(), where(seen(), 0.0, -kInf)}) {
    const Tensor y = scaled_dot_product_attention(q, k, v, mask);
    CHECK(y[1].abs().max().item() == 0);
    CHECK(y[0].abs().max().item() > 0);
    const TensorList g = autograd::grad({y.square().sum()}, {q, k, v}, {}, {}, true);
    CHECK(g[0][1].abs().max().item() == 0);
    for (const Tensor& gg : autograd::grad({g[0].sum() + g[1].sum()}, {q, k, v}))
      CHECK(gg.isfinite().all().item<bool>());
  }
}

TEST_CASE("half scores that fit once they are scaled do not overflow, and softmax is float32") {
  const Tensor q = full({2, 64}, 60, kFloat16), v = tensor({{1.0}, {3.0}}).to(kFloat16);
  // 64·60² = 230400 is no half; an eighth of it is.
  const Tensor y = scaled_dot_product_attention(q, q, v);
  CHECK(y.dtype() == kFloat16);
  CHECK(same_bits(y, tensor({{2.0}, {2.0}}).to(kFloat16)));
}

TEST_CASE("dropout of attention draws anew, and all of it leaves 0") {
  const Tensor x = randn({4, 8});
  manual_seed(1);
  const Tensor a = scaled_dot_product_attention(x, x, x, {}, 0.5);
  const Tensor b = scaled_dot_product_attention(x, x, x, {}, 0.5);
  CHECK(!same_bits(a, b));
  manual_seed(1);
  CHECK(same_bits(a, scaled_dot_product_attention(x, x, x, {}, 0.5)));
  CHECK(scaled_dot_product_attention(x, x, x, {}, 1).abs().max().item() == 0);
}

TEST_CASE("MultiheadAttention gives PyTorch's results, weights and gradients") {
  for (const Dtype dtype : {kFloat64, kFloat32}) {
    const ModuleVectors torch("attention.txt", dtype);
    const Tensor query = torch.leaf("query", {3, 2, 4}), memory = torch.leaf("memory", {4, 2, 4}),
                 key = torch.leaf("key", {4, 2, 3}), value = torch.leaf("value", {4, 2, 2});
    const Tensor padding = flags({0, 0, 1, 0, 1, 0, 0, 1}, {2, 4}),
                 hidden = flags({0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0}, {3, 4});
    const auto line = [&](int64_t n) { return linspace(-1, 1, n, TensorOptions(dtype)); };
    const auto check = [&](const std::string& name, nn::MultiheadAttentionOptions o,
                           const TensorList& in, const Tensor& padded, const Tensor& mask) {
      const auto module = torch.loaded(name + "/y", nn::MultiheadAttention(o));
      const auto [y, weights] = module(in[0], in[1], in[2], padded, true, mask);
      torch.check(name + "/y", y, in);
      torch.check_parameters(name + "/y", y, module);
      torch.same(name + "/weights", weights);
      torch.same(name + "/each",
                 std::get<1>(module(in[0], in[1], in[2], padded, true, mask, false)));
      const auto [alone, none] = module(in[0], in[1], in[2], padded, false, mask);
      CHECK(differ(alone, y, {.eps = 8}) == "");
      CHECK(!none.defined());
    };
    using Options = nn::MultiheadAttentionOptions;
    check("self", {4, 2}, {query, query, query}, {}, {});
    check("cross", Options(4, 2).bias(false), {query, memory, memory}, {}, line(12).view({3, 4}));
    check("sizes", Options(4, 2).kdim(3).vdim(2), {query, key, value}, {},
          line(48).view({4, 3, 4}));
    check("more", Options(4, 2).add_bias_kv(true).add_zero_attn(true), {query, memory, memory},
          padding, hidden);
    check("floats", {4, 4}, {query, memory, memory}, where(padding, -kInf, 0.0), {});
  }
}

TEST_CASE("MultiheadAttention takes any mixture of bool and float masks, and of inputs") {
  nn::MultiheadAttention module(nn::MultiheadAttentionOptions(4, 2));
  module->to(kFloat64);
  const Tensor query = randn({4, 2, 4}, kFloat64), value = randn({4, 2, 4}, kFloat64);
  const Tensor padding = flags({0, 0, 1, 0, 1, 0, 0, 1}, {2, 4}), ahead = ones({4, 4}).triu(2) != 0;
  const auto floats = [](const Tensor& mask) { return where(mask, -kInf, 0.0).to(kFloat64); };
  const auto attend = [&](const Tensor& key, const Tensor& padded, const Tensor& mask) {
    return std::get<0>(module(query, key, value, padded, false, mask));
  };
  const Tensor both = attend(query, padding, ahead);
  CHECK(same_bits(attend(query, floats(padding), floats(ahead)), both));
  CHECK(same_bits(attend(query, padding, floats(ahead)), both));
  CHECK(same_bits(attend(query, floats(padding), ahead), both));
  CHECK(!same_bits(attend(query, padding, {}), both));
  CHECK(!same_bits(attend(query, {}, ahead), both));
  // One product for three equal inputs, or three products, give the same.
  CHECK(same_bits(attend(query.clone(), padding, ahead), both));
}

TEST_CASE("MultiheadAttention's parameters are named and start as LibTorch's") {
  manual_seed(5);
  using Names = std::vector<std::string>;
  const auto names = [](const nn::MultiheadAttention& m) {
    Names all;
    for (const auto& p : m->named_parameters())
      if (p.value().defined()) all.push_back(p.key());
    return all;
  };
  const nn::MultiheadAttention one(64, 4);
  CHECK(names(one) == Names{"in_proj_weight", "in_proj_bias", "out_proj.weight", "out_proj.bias"});
  CHECK(one->head_dim == 16);
  const double bound = std::sqrt(6.0 / (64 + 192));
  CHECK(one->in_proj_weight.abs().max().item() <= bound);
  CHECK(one->in_proj_weight.abs().max().item() > 0.95 * bound);
  CHECK(one->in_proj_bias.abs().max().item() == 0);
  CHECK(one->out_proj->bias.abs().max().item() == 0);
  const nn::MultiheadAttention two(
      nn::MultiheadAttentionOptions(4, 2).kdim(3).bias(false).add_bias_kv(true));
  CHECK(names(two) == Names{"q_proj_weight", "k_proj_weight", "v_proj_weight", "bias_k", "bias_v",
                            "out_proj.weight"});
  const auto copy = std::dynamic_pointer_cast<nn::MultiheadAttentionImpl>(two->clone());
  CHECK(same_bits(copy->bias_k, two->bias_k));
  CHECK(!copy->bias_k.is_same(two->bias_k));
  std::ostringstream out;
  out << one;
  CHECK(has(out.str(), "halftape::nn::MultiheadAttention("));
}

TEST_CASE("keys and values that are there already take the place of projections") {
  const nn::MultiheadAttention m(4, 2);
  const Tensor x = randn({3, 2, 4}), given = randn({4, 5, 2});
  const auto options = [&] {
    return F::MultiheadAttentionForwardFuncOptions(4, 2, m->in_proj_weight, m->in_proj_bias, {}, {},
                                                   false, 0, m->out_proj->weight,
                                                   m->out_proj->bias);
  };
  const auto [y, weights] =
      F::multi_head_attention_forward(x, x, x, options().static_k(given).static_v(given));
  CHECK(y.sizes() == Shape{3, 2, 4});
  CHECK(weights.sizes() == Shape{2, 3, 5});
  CHECK(has(message([&] {
              F::multi_head_attention_forward(x, x, x, options().static_k(given.slice(0, 0, 3)));
            }),
            "static_k [3, 5, 2], expected (4, S, 2)"));
}

TEST_CASE("under autocast attention is half, and its parameters get gradients in float32") {
  manual_seed(2);
  const nn::MultiheadAttention m(
      nn::MultiheadAttentionOptions(8, 2).add_bias_kv(true).add_zero_attn(true));
  const Tensor x = randn({5, 3, 8}), mask = nn::TransformerImpl::generate_square_subsequent_mask(5);
  const auto [plain, plain_weights] = m(x, x, x, Tensor(), true, mask);
  for (const Dtype lower : {kFloat16, kBFloat16}) {
    Tensor y, weights;
    {
      const amp::autocast region(get_default_device().type(), lower);
      std::tie(y, weights) = m(x, x, x, Tensor(), true, mask);
    }
    CHECK(y.dtype() == lower);
    CHECK(weights.dtype() == lower);
    const double eps = 16 * epsilon(lower) / epsilon(kFloat32);
    CHECK(differ(y.to(kFloat32), plain, {.eps = eps}) == "");
    CHECK(differ(weights.to(kFloat32), plain_weights, {.eps = eps}) == "");
    y.to(kFloat32).sum().backward();
    for (const Tensor& p : m->parameters()) {
      if (!p.defined()) continue;
      CHECK(p.grad().dtype() == kFloat32);
      CHECK(p.grad().isfinite().all().item<bool>());
    }
  }
}

TEST_CASE("MultiheadAttention refuses wrong calls by name") {
  const nn::MultiheadAttention m(4, 2);
  const Tensor x = ones({3, 2, 4});
  const auto said = [&](const Tensor& q, const Tensor& k, const Tensor& padding,
                        const Tensor& mask) {
    return message([&] { m(q, k, k, padding, true, mask); });
  };
  CHECK(has(message([] { nn::MultiheadAttention(5, 2); }), "embed_dim 5"));
  CHECK(has(said(ones({3, 4}), x, {}, {}), "[3, 4]"));
  CHECK(has(said(ones({3, 2, 6}), x, {}, {}), "6 features, expected embed_dim 4"));
  CHECK(has(said(x, ones({3, 1, 4}), {}, {}), "agree in batch"));
  CHECK(has(said(x, x, ones({3, 2}, kBool), {}), "key_padding_mask [3, 2], expected [2, 3]"));
  CHECK(has(said(x, x, {}, ones({3, 2})), "attn_mask [3, 2], expected [3, 3] or [4, 3, 3]"));
  CHECK(has(said(x, x, {}, ones({3, 3}, kInt64)), "attn_mask is int64"));
  CHECK(has(said(x, x, {}, ones({3, 3}, kInt64)), "multi_head_attention_forward"));
}
