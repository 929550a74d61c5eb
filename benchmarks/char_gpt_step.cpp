// A training step of a character GPT (4 blocks, 128 wide, 4 heads, context 64, batch 12) with AdamW
// and clipping, and its forward pass. The same source builds against LibTorch (benchmarks/compare);
// with --check, the losses of ten steps, which both must print alike.
#include <cmath>
#include <memory>

#include "harness.h"
#include "library.h"

namespace {

using lib::Tensor;
namespace nn = lib::nn;
namespace F = lib::nn::functional;

constexpr int64_t kWidth = 128, kHeads = 4, kBlocks = 4, kContext = 64, kBatch = 12, kSymbols = 65;

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
      return t.reshape({kBatch, kContext, kHeads, kWidth / kHeads}).transpose(1, 2);
    };
    const Tensor scores = lib::matmul(heads(parts[0]), heads(parts[1]).transpose(-2, -1)) *
                          (1 / std::sqrt(static_cast<double>(kWidth / kHeads)));
    const Tensor weights = lib::softmax(scores.masked_fill(future, -1e9), -1);
    const Tensor mixed = lib::matmul(weights, heads(parts[2]));
    return projection->forward(mixed.transpose(1, 2).reshape({kBatch, kContext, kWidth}));
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

class Job {
 public:
  Job(Autocast::Mode mode, double rate) : mode_(mode) {
    FixedNumbers numbers;
    {
      const lib::NoGradGuard guard;
      for (auto& p : net_->named_parameters()) {
        if (p.value().dim() == 2) numbers.fill(p.value(), 0.03);
        if (p.key().find("bias") != std::string::npos) p.value().zero_();
      }
    }
    text_ = lib::arange(kBatch * kContext, lib::kLong).remainder(kSymbols);
    next_ = ((text_ * 7 + 3).remainder(kSymbols)).reshape({kBatch, kContext});
    text_ = text_.reshape({kBatch, kContext});
    optimizer_ =
        std::make_unique<lib::optim::AdamW>(net_->parameters(), lib::optim::AdamWOptions(rate));
  }
  Tensor loss() {
    const Autocast autocast(mode_);
    return F::cross_entropy(net_->forward(text_).reshape({-1, kSymbols}), next_.reshape({-1}));
  }
  Tensor step() {
    for (Tensor& p : net_->parameters()) p.mutable_grad() = Tensor();
    const Tensor l = loss();
    l.backward();
    nn::utils::clip_grad_norm_(net_->parameters(), 1.0);
    optimizer_->step();
    return l;
  }

 private:
  std::shared_ptr<Gpt> net_ = std::make_shared<Gpt>();
  Autocast::Mode mode_;
  Tensor text_, next_;
  std::unique_ptr<lib::optim::Optimizer> optimizer_;
};

}  // namespace

int main(int argc, char** argv) {
  bench::Table table(library(), argc, argv);
  lib::set_num_threads(table.threads());
  if (table.checks()) {
    Job job(Autocast::Mode::Float32, 1e-3);
    for (int i = 0; i < 10; ++i)
      table.check("char_gpt, loss " + std::to_string(i), job.step().item<float>());
    return 0;
  }
  for (const auto mode :
       {Autocast::Mode::Float32, Autocast::Mode::BFloat16, Autocast::Mode::NativeBFloat16}) {
    if (!Autocast::has(mode)) continue;
    auto job = std::make_shared<Job>(mode, 1e-8);
    const std::string in = std::string(", ") + Autocast::name(mode);
    table.add("char_gpt, step" + in, [job] { bench::keep(job->step()); });
    table.add("char_gpt, loss without history" + in, [job] {
      const lib::NoGradGuard guard;
      bench::keep(job->loss());
    });
  }
  table.run();
}
