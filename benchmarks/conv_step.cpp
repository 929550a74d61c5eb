// A training step of a small convnet on 28x28 pictures (batch 32): two convolutions with pooling
// and two linear layers. The same source builds against LibTorch (benchmarks/compare); with
// --check, the losses of ten steps, which both must print alike.
#include <cmath>
#include <memory>

#include "harness.h"
#include "library.h"

namespace {

using lib::Tensor;
namespace nn = lib::nn;
namespace F = lib::nn::functional;

struct Net : nn::Module {
  Net() {
    first = register_module("first", nn::Conv2d(nn::Conv2dOptions(1, 16, 3).padding(1)));
    second = register_module("second", nn::Conv2d(nn::Conv2dOptions(16, 32, 3).padding(1)));
    hidden = register_module("hidden", nn::Linear(32 * 7 * 7, 128));
    output = register_module("output", nn::Linear(128, 10));
  }
  Tensor forward(Tensor x) {
    x = lib::max_pool2d(lib::relu(first->forward(x)), 2);
    x = lib::max_pool2d(lib::relu(second->forward(x)), 2);
    return output->forward(lib::relu(hidden->forward(x.flatten(1))));
  }
  nn::Conv2d first{nullptr}, second{nullptr};
  nn::Linear hidden{nullptr}, output{nullptr};
};

class Job {
 public:
  explicit Job(double rate) {
    FixedNumbers numbers;
    {
      const lib::NoGradGuard guard;
      for (Tensor& p : net_->parameters())
        numbers.fill(
            p, p.dim() == 1 ? 0.1 : 1 / std::sqrt(static_cast<double>(p.numel() / p.size(0))));
    }
    x_ = lib::empty({32, 1, 28, 28});
    numbers.fill(x_, 1);
    y_ = lib::arange(32, lib::kLong).remainder(10);
    optimizer_ = std::make_unique<lib::optim::SGD>(net_->parameters(),
                                                   lib::optim::SGDOptions(rate).momentum(0.9));
  }
  Tensor step() {
    for (Tensor& p : net_->parameters()) p.mutable_grad() = Tensor();
    const Tensor loss = F::cross_entropy(net_->forward(x_), y_);
    loss.backward();
    optimizer_->step();
    return loss;
  }

 private:
  std::shared_ptr<Net> net_ = std::make_shared<Net>();
  Tensor x_, y_;
  std::unique_ptr<lib::optim::Optimizer> optimizer_;
};

}  // namespace

int main(int argc, char** argv) {
  bench::Table table(library(), argc, argv);
  lib::set_num_threads(table.threads());
  Job job(table.checks() ? 1e-2 : 1e-8);
  if (table.checks())
    for (int i = 0; i < 10; ++i)
      table.check("convnet, loss " + std::to_string(i), job.step().item<float>());
  else
    table.add("convnet, step, float32", [&] { bench::keep(job.step()); });
  table.run();
}
