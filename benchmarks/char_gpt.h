// A character GPT: 4 blocks, 128 wide, 4 heads, context 64. The same source builds against
// LibTorch.
#pragma once
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "library.h"

using lib::Tensor;
namespace nn = lib::nn;
namespace F = lib::nn::functional;

constexpr int64_t kWidth = 128, kHeads = 4, kBlocks = 4, kContext = 64, kSymbols = 65;

struct BlockImpl : nn::Module {
  BlockImpl() {
    before_attention =
        register_module("ln_1", nn::LayerNorm(nn::LayerNormOptions(std::vector<int64_t>{kWidth})));
    attention = register_module("attention", nn::Linear(kWidth, 3 * kWidth));
    projection = register_module("projection", nn::Linear(kWidth, kWidth));
    before_mlp =
        register_module("ln_2", nn::LayerNorm(nn::LayerNormOptions(std::vector<int64_t>{kWidth})));
    up = register_module("up", nn::Linear(kWidth, 4 * kWidth));
    down = register_module("down", nn::Linear(4 * kWidth, kWidth));
    future =
        register_buffer("future", lib::triu(lib::ones({kContext, kContext}), 1).to(lib::kBool));
  }
  Tensor forward(const Tensor& x) {
    const Tensor y = x + attend(before_attention->forward(x));
    return y + down->forward(F::gelu(up->forward(before_mlp->forward(y))));
  }
  Tensor attend(const Tensor& x) {
    const auto parts = attention->forward(x).chunk(3, 2);
    auto heads = [](const Tensor& t) {
      return t.reshape({t.size(0), kContext, kHeads, kWidth / kHeads}).transpose(1, 2);
    };
    const Tensor scores = lib::matmul(heads(parts[0]), heads(parts[1]).transpose(-2, -1)) *
                          (1 / std::sqrt(static_cast<double>(kWidth / kHeads)));
    const Tensor weights = lib::softmax(scores.masked_fill(future, -1e9), -1);
    const Tensor mixed = lib::matmul(weights, heads(parts[2]));
    return projection->forward(mixed.transpose(1, 2).reshape(x.sizes()));
  }
  nn::LayerNorm before_attention{nullptr}, before_mlp{nullptr};
  nn::Linear attention{nullptr}, projection{nullptr}, up{nullptr}, down{nullptr};
  Tensor future;
};

struct Gpt : nn::Module {
  Gpt() {
    symbols = register_module("symbols", nn::Embedding(kSymbols, kWidth));
    positions = register_module("positions", nn::Embedding(kContext, kWidth));
    for (int64_t i = 0; i < kBlocks; ++i)
      blocks.push_back(register_module("block" + std::to_string(i), std::make_shared<BlockImpl>()));
    last =
        register_module("last", nn::LayerNorm(nn::LayerNormOptions(std::vector<int64_t>{kWidth})));
    head = register_module("head", nn::Linear(nn::LinearOptions(kWidth, kSymbols).bias(false)));
  }
  Tensor forward(const Tensor& text) {
    Tensor x = symbols->forward(text) + positions->forward(lib::arange(kContext, lib::kLong));
    for (auto& block : blocks) x = block->forward(x);
    return head->forward(last->forward(x));
  }
  nn::Embedding symbols{nullptr}, positions{nullptr};
  std::vector<std::shared_ptr<BlockImpl>> blocks;
  nn::LayerNorm last{nullptr};
  nn::Linear head{nullptr};
};
