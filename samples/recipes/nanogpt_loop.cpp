// The loop of nanoGPT: warm-up and cosine for the learning rate, accumulation over micro-steps,
// clipping, decay for matrices only, and a scaler that is enabled for float16 alone. The text is
// made by a Markov chain, so that the best possible loss is known: the chain's entropy.
#include <numbers>

#include "recipe.h"

using namespace recipe;

namespace {

constexpr int kLetters = 16, kBatch = 32, kMicroSteps = 4, kSteps = 400, kWarmup = 40;
constexpr double kMaxLr = 1e-2, kMinLr = 1e-3, kGradClip = 1;

double learning_rate(int it) {
  if (it < kWarmup) return kMaxLr * (it + 1) / (kWarmup + 1);
  const double done = double(it - kWarmup) / (kSteps - kWarmup);
  return kMinLr + 0.5 * (1 + std::cos(std::numbers::pi * done)) * (kMaxLr - kMinLr);
}

/// The chances of the next letter after each letter.
Tensor chain() {
  manual_seed(7);
  return softmax(randn({kLetters, kLetters}) * 2, 1);
}
/// Pairs of a letter and its successor.
std::pair<Tensor, Tensor> get_batch(const Tensor& chances) {
  const Tensor x = randint(0, kLetters, {kBatch}, kInt64);
  return {x, multinomial(chances.index_select(0, x), 1).squeeze(1)};
}
/// What a model that knew the chain would lose on average.
double entropy(const Tensor& chances) {
  return -(chances * log(chances)).sum(1).mean().item<double>();
}

/// The mean loss over the last fifth of the run.
double train(Dtype dtype) {
  const Tensor chances = chain();
  manual_seed(1);
  nn::Sequential head{nn::Linear(32, 64), nn::GELU(), nn::Linear(64, kLetters)};
  const Tensor embedding = (randn({kLetters, 32}) * 0.02).requires_grad_();

  // Matrices decay, biases do not.
  std::vector<Tensor> all = head->parameters(), decays, others;
  all.push_back(embedding);
  for (const Tensor& p : all) (p.dim() >= 2 ? decays : others).push_back(p);
  const auto options = optim::AdamWOptions(kMaxLr).betas({0.9, 0.95});
  optim::AdamW optimizer({{decays, optim::AdamWOptions(options).weight_decay(0.1).clone()},
                          {others, optim::AdamWOptions(options).weight_decay(0).clone()}},
                         options);
  amp::GradScaler scaler({.enabled = dtype == kFloat16});

  double mean = 0;
  for (int it = 0; it < kSteps; ++it) {
    for (auto& group : optimizer.param_groups()) group.options().set_lr(learning_rate(it));
    for (int micro = 0; micro < kMicroSteps; ++micro) {
      const auto [x, y] = get_batch(chances);
      Tensor loss;
      {
        const amp::autocast region(kCPU, is_16bit(dtype) ? dtype : kBFloat16, is_16bit(dtype));
        loss = cross_entropy(head->forward(embedding.index_select(0, x)), y) / kMicroSteps;
      }
      scaler.scale(loss).backward();
      if (it >= kSteps * 4 / 5) mean += loss.item<double>() / (kSteps / 5);
    }
    scaler.unscale_(optimizer);
    nn::utils::clip_grad_norm_(optimizer.parameters(), kGradClip);
    scaler.step(optimizer);
    scaler.update();
    optimizer.zero_grad(/*set_to_none=*/true);
  }
  return mean;
}

}  // namespace

int main() {
  const double best = entropy(chain()), single = train(kFloat32);
  std::printf("entropy of the chain %.3f, of guessing %.3f\n", best, std::log(kLetters));
  for (const Dtype dtype : {kFloat32, kBFloat16, kFloat16}) {
    const double loss = dtype == kFloat32 ? single : train(dtype);
    std::printf("%-8s loss %.3f\n", type_name(dtype), loss);
    expect(loss < best + 0.1, "the model comes near the best loss there is");
    expect(std::abs(loss - single) < 0.02, "in every precision alike");
  }
  return verdict();
}
