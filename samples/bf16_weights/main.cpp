// One small network held entirely in bfloat16, trained four times: with weights rounded to nearest,
// with float32 masters, with stochastic rounding and with Kahan's remainder; and once in float32.
//
//     bf16_weights                     SGD, 60 epochs of the embedded digits, 3 seeds: a minute
//     bf16_weights --optimizer adamw
//
// Last line: "loss float32=… plain=… master=… stochastic=… kahan=…", of training, mean of the
// seeds; without those that Ctrl-C has not let train to their ends. Exit code 2: wrong arguments or
// device.
#include <fmt/format.h>

#include <iterator>
#include <memory>

#include "program.h"

using namespace halftape;
namespace F = halftape::nn::functional;
using optim::Weights;

namespace {

struct Settings {
  sample::Machine machine{.seed = 0};
  Device device;
  std::string optimizer = "sgd";
  int epochs = 60, seeds = 3;
  double lr = 0;  // 0: 0.01 for sgd, 1e-4 for adamw
};

struct Samples {
  Tensor images, labels;
};

Samples samples(const data::Images& digits, Device device) {
  Samples s;
  s.images = empty({digits.count, digits.rows * digits.cols});
  auto* x = s.images.data_ptr<float>();
  for (size_t i = 0; i < digits.pixels.size(); ++i)
    x[i] = static_cast<float>(digits.pixels[i]) / 8 - 1;  // the levels 0…16, exact in bfloat16
  s.labels = tensor(std::vector<int64_t>(digits.labels.begin(), digits.labels.end()), kInt64);
  s.images = s.images.to(device);
  s.labels = s.labels.to(device);
  return s;
}

std::unique_ptr<optim::Optimizer> make_optimizer(const std::vector<Tensor>& parameters,
                                                 Weights weights, const Settings& s) {
  if (s.optimizer == "sgd") {
    const optim::SGDOptions options(s.lr > 0 ? s.lr : 0.01);
    return std::make_unique<optim::SGD>(parameters, optim::SGDOptions(options).weights(weights));
  }
  optim::AdamWOptions options(s.lr > 0 ? s.lr : 1e-4);
  options.weights(weights);
  return std::make_unique<optim::AdamW>(parameters, options);
}

struct Way {
  const char* name;
  Dtype dtype;
  Weights weights;
};
constexpr Way kWays[] = {{"float32", kFloat32, Weights::Plain},
                         {"plain", kBFloat16, Weights::Plain},
                         {"master", kBFloat16, Weights::Master},
                         {"stochastic", kBFloat16, Weights::Stochastic},
                         {"kahan", kBFloat16, Weights::Kahan}};

struct Result {
  double loss = 0, accuracy = 0;  // on all training images; on the test images, in percent
};

/// The mean loss in float32 of what the network says, and the share that it names rightly.
Result evaluate(nn::Sequential& model, const Samples& s, Dtype dtype) {
  const NoGradGuard no_grad;
  const Tensor guess = model->forward(s.images.to(dtype)).to(kFloat32);
  const Tensor right = (guess.argmax(1) == s.labels).to(kFloat32);
  return {F::cross_entropy(guess, s.labels).item(), 100 * right.mean().item()};
}

/// Ends early, and with no result, by Ctrl-C.
Result train(const Way& way, const data::Split& split, const Settings& s, uint64_t seed) {
  manual_seed(seed);  // every way starts from the same weights and sees the same batches
  // In braces the layers, and so their random weights, are made from left to right; in parentheses
  // every compiler has its own order.
  nn::Sequential model{nn::Linear(64, 64), nn::ReLU(), nn::Linear(64, 64), nn::ReLU(),
                       nn::Linear(64, 10)};
  model->to(kBFloat16);
  model->to(way.dtype);
  model->to(s.device);
  const Samples all = samples(split.train, s.device);
  const auto optimizer = make_optimizer(model->parameters(), way.weights, s);
  Generator batches = get_generator();  // the rounding takes its keys from the same stream
  for (int epoch = 0; epoch < s.epochs; ++epoch) {
    set_generator(batches);
    const Tensor order = randperm(all.labels.size(0)).to(s.device);
    batches = get_generator();
    for (int64_t i = 0; i < all.labels.size(0); i += 32) {
      const Tensor batch = order.slice(0, i, i + 32);
      optimizer->zero_grad();
      const Tensor y = model->forward(all.images.index_select(0, batch).to(way.dtype));
      F::cross_entropy(y.to(kFloat32), all.labels.index_select(0, batch)).backward();
      optimizer->step();
      if (sample::Interrupt::asked()) return {};
    }
  }
  return {evaluate(model, all, way.dtype).loss,
          evaluate(model, samples(split.test, s.device), way.dtype).accuracy};
}

void run(const Settings& s) {
  const data::Split split = data::digits();
  std::string last = "loss";
  fmt::print("{}, {} epochs, mean of {} seeds\n\n{:12}{:>15}{:>18}\n", s.optimizer, s.epochs,
             s.seeds, "weights", "training loss", "test accuracy");
  size_t done = 0;
  const sample::Interrupt ctrl_c;
  for (const Way& way : kWays) {
    Result mean;
    for (int i = 0; i < s.seeds && !ctrl_c.asked(); ++i) {
      const Result r = train(way, split, s, s.machine.seed + static_cast<uint64_t>(i));
      mean.loss += r.loss / s.seeds;
      mean.accuracy += r.accuracy / s.seeds;
    }
    if (ctrl_c.asked()) break;
    fmt::print("{:12}{:>15.4f}{:>16.2f} %\n", way.name, mean.loss, mean.accuracy);
    std::fflush(stdout);  // a row is there as soon as it is known
    last += fmt::format(" {}={:.4f}", way.name, mean.loss);
    ++done;
  }
  if (done < std::size(kWays)) fmt::print("stopped after {} of {} ways\n", done, std::size(kWays));
  if (done > 0) fmt::print("{}\n", last);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Trains a network held in bfloat16, with four ways to keep small updates.",
               "bf16_weights"};
  Settings s;
  s.machine.add_options(app);
  app.add_option("--optimizer", s.optimizer)
      ->check(CLI::IsMember({"sgd", "adamw"}))
      ->capture_default_str();
  app.add_option("--epochs", s.epochs)->check(sample::between(1, 10000))->capture_default_str();
  app.add_option("--seeds", s.seeds, "trainings of each way, from --seed on")
      ->check(sample::between(1, 1000))
      ->capture_default_str();
  app.add_option("--lr", s.lr, "default: 0.01 for sgd, 1e-4 for adamw")->check(CLI::PositiveNumber);
  return sample::run(app, argc, argv, [&] {
    s.device = s.machine.prepare();
    run(s);
  });
}
