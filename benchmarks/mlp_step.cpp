// A training step of three MLPs, with SGD and Adam, in float32 and under autocast. The same source
// builds against LibTorch (benchmarks/compare), with extras/libtorch/amp.h. Then the step of the
// second one with a loss so small that all gradients are subnormal.
//
// With --check, the losses of twenty steps on fixed numbers instead: both must print the same ones,
// so that nobody is timed doing other work.
#include <cmath>
#include <memory>
#include "harness.h"
#include "library.h"

namespace {

using lib::Tensor;
namespace nn = lib::nn;

using Mode = Autocast::Mode;

struct Net : nn::Module {
  explicit Net(const std::vector<int64_t>& widths) {
    for (size_t i = 0; i + 1 < widths.size(); ++i)
      layers.push_back(
          register_module("fc" + std::to_string(i), nn::Linear(widths[i], widths[i + 1])));
  }
  Tensor forward(Tensor x) {
    for (size_t i = 0; i + 1 < layers.size(); ++i) x = lib::relu(layers[i]->forward(x));
    return layers.back()->forward(x);
  }
  std::vector<nn::Linear> layers;
};

/// Training of one net on one batch.
class Job {
 public:
  /// With a small rate what is learnt stays far from subnormal numbers, which cost time.
  Job(const std::vector<int64_t>& widths, int64_t batch, bool adam, Mode mode, double rate,
      double weight = 1)
      : net_(std::make_shared<Net>(widths)), mode_(mode), weight_(weight) {
    FixedNumbers numbers;
    {
      const lib::NoGradGuard guard;
      for (Tensor& p : net_->parameters())
        numbers.fill(p, p.dim() == 2 ? 1 / std::sqrt(static_cast<double>(p.size(1))) : 0.1);
    }
    x_ = lib::empty({batch, widths.front()});
    numbers.fill(x_, 1);
    y_ = lib::arange(batch, lib::kLong).remainder(widths.back());
    const auto parameters = net_->parameters();
    if (adam)
      optimizer_ = std::make_unique<lib::optim::Adam>(parameters, lib::optim::AdamOptions(rate));
    else
      optimizer_ =
          std::make_unique<lib::optim::SGD>(parameters, lib::optim::SGDOptions(rate).momentum(0.9));
  }
  Tensor step() {
    for (Tensor& p : net_->parameters()) p.mutable_grad() = Tensor();
    const Tensor loss = [&] {
      const Autocast autocast(mode_);
      const Tensor mean = nn::functional::cross_entropy(net_->forward(x_), y_);
      return weight_ == 1 ? mean : mean * weight_;
    }();
    if (mode_ == Mode::Float16) {
      scaler_.scale(loss).backward();
      scaler_.step(*optimizer_);
      scaler_.update();
      return loss;
    }
    loss.backward();
    optimizer_->step();
    return loss;
  }

 private:
  std::shared_ptr<Net> net_;
  Mode mode_;
  double weight_;  // of the loss
  Tensor x_, y_;
  std::unique_ptr<lib::optim::Optimizer> optimizer_;
  Scaler scaler_;
};

void add_subnormal(bench::Table& table, const std::vector<int64_t>& widths, int64_t batch) {
  for (const bool small : {false, true}) {
    for (const bool flush : {false, true}) {
      const std::string name = std::string("b, ") + (small ? "subnormal" : "normal") +
                               " gradients" + (flush ? ", flushed" : "");
      if (!table.wants(name)) continue;
      auto job =
          std::make_shared<Job>(widths, batch, false, Mode::Float32, 1e-8, small ? 1e-37 : 0.5);
      table.add(name, [job, flush] {
        const FlushDenormal guard(flush);
        bench::keep(job->step());
      });
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  struct Work {
    const char* name;
    std::vector<int64_t> widths;
    int64_t batch;
  };
  const Work works[] = {{"a", {64, 64, 64, 10}, 32},
                        {"b", {784, 256, 256, 10}, 128},
                        {"c", {1024, 1024, 1024, 1024, 1024}, 512}};
  bench::Table table(library(), argc, argv);
  lib::set_num_threads(table.threads());
  for (const Work& w : works) {
    for (const Mode mode : {Mode::Float32, Mode::BFloat16, Mode::ExactBFloat16,
                            Mode::NativeBFloat16, Mode::Float16}) {
      if (!Autocast::has(mode)) continue;
      for (const bool adam : {false, true}) {
        const std::string name =
            std::string(w.name) + ", " + (adam ? "Adam" : "SGD") + ", " + Autocast::name(mode);
        if (table.checks()) {
          if (mode != Mode::Float32) continue;
          Job job(w.widths, w.batch, adam, mode, adam ? 1e-4 : 1e-3);
          for (int i = 0; i < 20; ++i)
            table.check(name + ", loss " + std::to_string(i), job.step().item<float>());
        } else if (table.wants(name)) {
          auto job = std::make_shared<Job>(w.widths, w.batch, adam, mode, 1e-8);
          table.add(name, [job] { bench::keep(job->step()); });
        }
      }
    }
  }
  if (!table.checks()) add_subnormal(table, works[1].widths, works[1].batch);
  table.run();
}
