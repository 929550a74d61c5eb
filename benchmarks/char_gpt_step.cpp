// A training step of a character GPT (4 blocks, 128 wide, 4 heads, context 64, batch 12) with AdamW
// and clipping, and its forward pass. The same source builds against LibTorch (benchmarks/compare);
// with --check, the losses of ten steps, which both must print alike.
#include <memory>

#include "char_gpt.h"
#include "harness.h"
#include "library.h"

namespace {

constexpr int64_t kBatch = 12;

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
  for (const auto mode : {Autocast::Mode::Float32, Autocast::Mode::BFloat16,
                          Autocast::Mode::ExactBFloat16, Autocast::Mode::NativeBFloat16}) {
    if (!Autocast::has(mode)) continue;
    const std::string in = std::string(", ") + Autocast::name(mode);
    if (!table.wants("char_gpt, step" + in) && !table.wants("char_gpt, loss without history" + in))
      continue;
    auto job = std::make_shared<Job>(mode, 1e-8);
    table.add("char_gpt, step" + in, [job] { bench::keep(job->step()); });
    table.add("char_gpt, loss without history" + in, [job] {
      const lib::NoGradGuard guard;
      bench::keep(job->loss());
    });
  }
  table.run();
}
