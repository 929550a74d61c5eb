#include "gpt.h"

#include <cmath>
#include <limits>
#include <string>

using namespace halftape;
namespace F = halftape::nn::functional;

NormImpl::NormImpl(const GPTOptions& o) {
  weight = register_parameter("weight", ones({o.n_embd}));
  if (o.bias) bias = register_parameter("bias", zeros({o.n_embd}));
}

Tensor NormImpl::forward(const Tensor& x) const {
  return layer_norm(x, {x.size(-1)}, weight, bias);
}

BlockImpl::BlockImpl(const GPTOptions& o)
    : options(o),
      ln_1(o),
      ln_2(o),
      c_attn(nn::LinearOptions(o.n_embd, 3 * o.n_embd).bias(o.bias)),
      attn_proj(nn::LinearOptions(o.n_embd, o.n_embd).bias(o.bias)),
      c_fc(nn::LinearOptions(o.n_embd, 4 * o.n_embd).bias(o.bias)),
      mlp_proj(nn::LinearOptions(4 * o.n_embd, o.n_embd).bias(o.bias)),
      dropout(o.dropout) {
  register_module("ln_1", ln_1);
  register_module("c_attn", c_attn);
  register_module("attn_proj", attn_proj);
  register_module("ln_2", ln_2);
  register_module("c_fc", c_fc);
  register_module("mlp_proj", mlp_proj);
  register_module("dropout", dropout);
}

Tensor BlockImpl::attention(const Tensor& x) {
  const int64_t B = x.size(0), T = x.size(1), C = x.size(2);
  const TensorList qkv = c_attn(x).view({B, T, 3, options.n_head, C / options.n_head}).unbind(2);
  const auto heads = [](const Tensor& t) { return t.transpose(1, 2); };  // (B, heads, T, C / heads)
  const Tensor y = F::scaled_dot_product_attention(heads(qkv[0]), heads(qkv[1]), heads(qkv[2]), {},
                                                   is_training() ? options.dropout : 0,
                                                   /*is_causal=*/true);
  return dropout(attn_proj(y.transpose(1, 2).reshape({B, T, C})));
}

Tensor BlockImpl::forward(const Tensor& x) {
  const Tensor y = x + attention(ln_1(x));
  return y + dropout(mlp_proj(F::gelu(c_fc(ln_2(y)))));
}

GPTImpl::GPTImpl(const GPTOptions& o)
    : options(o),
      wte(o.vocab_size, o.n_embd),
      wpe(o.block_size, o.n_embd),
      dropout(o.dropout),
      ln_f(o) {
  register_module("wte", wte);
  register_module("wpe", wpe);
  register_module("dropout", dropout);
  for (int64_t i = 0; i < o.n_layer; ++i)
    blocks.push_back(register_module("h" + std::to_string(i), Block(o)));
  register_module("ln_f", ln_f);

  const NoGradGuard no_grad;
  for (const auto& p : named_parameters()) {
    if (p.key().ends_with("bias"))
      nn::init::zeros_(p.value());
    else if (p.key().ends_with("_proj.weight"))  // so that the sum over all blocks stays small
      nn::init::normal_(p.value(), 0, 0.02 / std::sqrt(2.0 * static_cast<double>(o.n_layer)));
    else if (p.value().dim() == 2)
      nn::init::normal_(p.value(), 0, 0.02);
  }
}

Tensor GPTImpl::forward(const Tensor& tokens) {
  const int64_t T = tokens.size(1);
  HALFTAPE_CHECK(T <= options.block_size, "GPT: ", T, " tokens are more than block_size, ",
                 options.block_size);
  if (!places.defined() || places.device() != tokens.device())
    places = arange(options.block_size, TensorOptions(kInt64).device(tokens.device()));
  Tensor x = dropout(wte(tokens) + wpe(places.slice(0, 0, T)));
  for (Block& block : blocks) x = block(x);
  return F::linear(ln_f(x), wte->weight);
}

Tensor GPTImpl::generate(Tensor tokens, int64_t count, double temperature, int64_t top_k) {
  const NoGradGuard no_grad;
  for (int64_t i = 0; i < count; ++i) {
    const Tensor context =
        tokens.slice(1, std::max<int64_t>(0, tokens.size(1) - options.block_size));
    Tensor scores = forward(context).select(1, -1).to(kFloat32) / temperature;
    if (top_k > 0 && top_k < options.vocab_size) {
      const Tensor least = std::get<0>(topk(scores, top_k)).slice(1, top_k - 1);
      scores = where(scores < least, -std::numeric_limits<double>::infinity(), scores);
    }
    tokens = cat({tokens, multinomial(softmax(scores, -1), 1)}, 1);
  }
  return tokens;
}

optim::AdamW make_optimizer(const GPT& model, double lr, double beta2, double weight_decay) {
  std::vector<Tensor> decays, others;
  for (const Tensor& p : model->parameters()) (p.dim() >= 2 ? decays : others).push_back(p);
  const auto options = optim::AdamWOptions(lr).betas({0.9, beta2});
  return optim::AdamW({{decays, optim::AdamWOptions(options).weight_decay(weight_decay).clone()},
                       {others, optim::AdamWOptions(options).weight_decay(0).clone()}},
                      options);
}
