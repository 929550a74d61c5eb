// The loop of samples/char_gpt on its own text, one batch at a time.
#include <fmt/format.h>

#include <algorithm>

#include "batches.h"
#include "gpt.h"
#include "program.h"
#include "text.h"
#include "training.h"

using namespace halftape;
namespace F = halftape::nn::functional;
using data::datasets::TextWindows;

namespace lab {
namespace {

constexpr int64_t kBatch = 12, kEvaluated = 20;  // windows in a batch, batches in an evaluation
constexpr double kClip = 1;

struct Sentences {
  Sentences() : text(make_text(200000)), vocabulary(text.characters) {}
  Tensor tokens() const { return vocabulary.encode(text.characters); }
  Text text;
  data::CharVocabulary vocabulary;
};

class GPTTraining final : public Training {
 public:
  explicit GPTTraining(const TrainingOptions& o)
      : options_(o),
        steps_(o.steps.value_or(600)),
        tokens_(sentences_.tokens()),
        train_(tokens_.slice(0, 0, tokens_.numel() * 9 / 10), model_options_.block_size),
        val_(tokens_.slice(0, tokens_.numel() * 9 / 10), model_options_.block_size,
             model_options_.block_size),
        batches_(train_, kBatch, o.seed),
        model_((manual_seed(o.seed), model_options())),
        optimizer_((model_->to(o.device), make_optimizer(model_, o.lr.value_or(1e-3), 0.99, 0.1))),
        schedule_(optimizer_, std::min<int64_t>(100, steps_ / 2), std::max<int64_t>(steps_, 1),
                  1e-4) {
    for (optim::OptimizerParamGroup& group : optimizer_.param_groups())
      static_cast<optim::AdamWOptions&>(group.options()).eps(1e-8 * o.loss_weight);
  }

  nn::Module& model() override { return *model_; }
  optim::Optimizer& optimizer() override { return optimizer_; }
  int64_t steps() const override { return steps_; }
  int64_t growth_interval() const override { return amp::GradScalerOptions().growth_interval; }

  void next_batch() override {
    if (step_++ > 0) schedule_.step();
    batch_ = batches_.next();
    if (step_ == 1) first_ = batch_;
  }
  Tensor loss() override { return loss_of(batch_) * options_.loss_weight; }
  Tensor loss_of_fixed_batch() override { return loss_of(first_) * options_.loss_weight; }
  void before_step(amp::GradScaler& scaler) override {
    scaler.unscale_(optimizer_);
    nn::utils::clip_grad_norm_(model_->parameters(), kClip * options_.loss_weight);
  }

  /// The mean loss of batches spread evenly over the validation text, always the same ones.
  double measure() override {
    const NoGradGuard no_grad;
    model_->eval();
    const auto all = static_cast<int64_t>(*val_.size()), n = std::min(all, kEvaluated * kBatch);
    double sum = 0;
    for (int64_t i = 0; i < n; i += kBatch) {
      std::vector<size_t> chosen;
      for (int64_t j = i; j < std::min(n, i + kBatch); ++j)
        chosen.push_back(static_cast<size_t>(j * all / n));
      const Tensor loss = loss_of(data::transforms::Stack<>().apply_batch(val_.get_batch(chosen)));
      sum += loss.item<double>() * static_cast<double>(chosen.size());
    }
    model_->train();
    return sum / static_cast<double>(n);
  }
  std::string measure_name() const override { return "validation loss"; }
  bool measures_after(int64_t step) const override {
    return step == steps_ || step % std::max<int64_t>(1, steps_ / 4) == 0;
  }

  std::string data_text() const override {
    return fmt::format("sentences of a grammar: {} characters, {} different", tokens_.numel(),
                       sentences_.vocabulary.size());
  }
  std::string model_text() const override {
    return fmt::format(
        "GPT of {} layers, {} heads, {} features, context {}, {} parameters; AdamW, lr {:g} with "
        "warm-up and cosine, batch {}, gradients clipped to {:g}",
        model_options_.n_layer, model_options_.n_head, model_options_.n_embd,
        model_options_.block_size, count_parameters(*model_), options_.lr.value_or(1e-3), kBatch,
        kClip * options_.loss_weight);
  }

 private:
  GPTOptions model_options() const {
    GPTOptions o = model_options_;
    o.vocab_size = sentences_.vocabulary.size();
    return o;
  }
  Tensor loss_of(const data::Example<>& batch) {
    const amp::autocast region = sample::autocast_to(options_.dtype, options_.device);
    const Tensor scores = model_->forward(batch.data.to(options_.device));
    return F::cross_entropy(scores.flatten(0, 1), batch.target.to(options_.device).flatten());
  }

  TrainingOptions options_;
  GPTOptions model_options_;
  int64_t steps_;
  Sentences sentences_;
  Tensor tokens_;
  TextWindows train_, val_;
  Batches batches_;
  GPT model_;
  optim::AdamW optimizer_;
  optim::WarmupCosineLR schedule_;
  data::Example<> batch_, first_;
  int64_t step_ = 0;
};

}  // namespace

std::unique_ptr<Training> train_char_gpt(const TrainingOptions& options) {
  return std::make_unique<GPTTraining>(options);
}

}  // namespace lab
