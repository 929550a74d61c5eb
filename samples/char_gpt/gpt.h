// The GPT of nanoGPT: pre-norm blocks of causal attention and an MLP, and an embedding that is also
// the output layer. Radford et al. 2019, "Language Models are Unsupervised Multitask Learners".
#pragma once
#include <halftape/halftape.h>

#include <vector>

struct GPTOptions {
  int64_t vocab_size = 0, block_size = 64;  // characters; the longest context
  int64_t n_layer = 4, n_head = 4, n_embd = 128;
  double dropout = 0;
  bool bias = false;  // in Linear and LayerNorm
};

/// Layer normalisation with an optional bias.
struct NormImpl : halftape::nn::Module {
  explicit NormImpl(const GPTOptions& o);
  halftape::Tensor forward(const halftape::Tensor& x) const;
  halftape::Tensor weight, bias;  // (n_embd); the second may be undefined
};
HALFTAPE_MODULE(Norm);

struct BlockImpl : halftape::nn::Module {
  explicit BlockImpl(const GPTOptions& o);
  /// x: (B, T, C) → (B, T, C).
  halftape::Tensor forward(const halftape::Tensor& x);
  halftape::Tensor attention(const halftape::Tensor& x);

  GPTOptions options;
  Norm ln_1, ln_2;
  halftape::nn::Linear c_attn, attn_proj, c_fc, mlp_proj;
  halftape::nn::Dropout dropout;
};
HALFTAPE_MODULE(Block);

struct GPTImpl : halftape::nn::Module {
  explicit GPTImpl(const GPTOptions& o);
  /// The scores for each next character: (B, T) of int64, T ≤ block_size → (B, T, vocab_size).
  halftape::Tensor forward(const halftape::Tensor& tokens);
  /// `tokens`, (1, T), and `count` more, each drawn from the model's distribution: the scores are
  /// divided by `temperature`, and only the top_k best take part; 0: all.
  halftape::Tensor generate(halftape::Tensor tokens, int64_t count, double temperature,
                            int64_t top_k);

  GPTOptions options;
  halftape::nn::Embedding wte, wpe;
  halftape::nn::Dropout dropout;
  std::vector<Block> blocks;
  Norm ln_f;
  // 0, 1, … made by the first call: the host makes them, which a Graph's step cannot wait for.
  halftape::Tensor places;
};
HALFTAPE_MODULE(GPT);

/// Two groups: matrices and embeddings decay, the rest does not.
halftape::optim::AdamW make_optimizer(const GPT& model, double lr, double beta2,
                                      double weight_decay);
