// Three rules by which the loss scale may grow, over five trainings of the digits in float16: by an
// interval of good steps, by headroom, and only as long as the error of the weight gradients falls.
//
//     growth_rules                        five seeds at loss weight 1e-5: a few seconds
//     growth_rules --loss-weight 1        a loss that needs no scale
//     growth_rules --init-scale 1         rules that must find a scale
//
// Last line: "best accuracy … % by …", of the rules that Ctrl-C has let train to their ends. Exit
// code 2: wrong arguments or device.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>

#include "program.h"

using namespace halftape;
namespace F = nn::functional;

namespace {

struct Arguments {
  sample::Machine machine{.seed = 0};
  Device device;
  double loss_weight = 1e-5, init_scale = 65536;
  int64_t epochs = 60, seeds = 5, batch = 128;
};

struct Samples {
  Tensor images, labels;
};

Samples samples_of(const data::Images& images, Device device) {
  std::vector<float> pixels(images.pixels.begin(), images.pixels.end());
  const Tensor x = tensor(pixels).reshape({images.count, images.rows * images.cols});
  const Tensor labels =
      tensor(std::vector<int64_t>(images.labels.begin(), images.labels.end()), kInt64);
  // The mean and deviation of the training images.
  return {((x - 4.88) / 6.02).to(device), labels.to(device)};
}

/// What a rule did in one training.
struct Outcome {
  double accuracy = 0, log2_scale = 0;
  int64_t skips = 0, steps = 0;
};

class Training {
 public:
  Training(const Arguments& a, uint64_t seed, int64_t interval)
      : a_(a),
        model_((manual_seed(seed), make_model(a.device))),
        optimizer_(model_->parameters(), optim::AdamOptions(1e-3).eps(1e-8 * a.loss_weight)),
        scaler_({.init_scale = a.init_scale, .growth_interval = interval, .warn_after_skips = 0}) {}

  /// `update` ends a step, in place of scaler.update(). Ends early, and untested, by Ctrl-C.
  template <class Update>
  Outcome run(const Update& update) {
    Outcome outcome;
    for (int64_t epoch = 0; epoch < a_.epochs; ++epoch) {
      const Tensor order = randperm(train_.labels.size(0)).to(a_.device);
      for (int64_t i = 0; i < order.size(0); i += a_.batch) {
        const Tensor chosen = order.slice(0, i, i + a_.batch);
        x_ = train_.images.index_select(0, chosen);
        y_ = train_.labels.index_select(0, chosen);
        optimizer_.zero_grad();
        scaler_.scale(loss()).backward();
        scaler_.step(optimizer_);
        outcome.log2_scale += std::log2(scaler_.get_scale());
        update(*this, outcome.steps++);
        if (sample::Interrupt::asked()) return outcome;
      }
    }
    outcome.log2_scale /= static_cast<double>(outcome.steps);
    outcome.skips = scaler_.stats().skips;
    const NoGradGuard no_grad;
    const Tensor guess = model_->forward(test_.images).argmax(1);
    outcome.accuracy = 100 * (guess == test_.labels).to(kFloat64).mean().item();
    return outcome;
  }
  Tensor loss() {
    const amp::autocast region(a_.device.type(), kFloat16);
    return F::cross_entropy(model_->forward(x_), y_) * a_.loss_weight;
  }
  amp::GradScaler& scaler() { return scaler_; }
  const optim::Optimizer& optimizer() const { return optimizer_; }
  /// The largest error of a weight gradient of this batch, at a scale of 2^first and the next.
  std::pair<double, double> errors(int first) {
    const amp::ScaleTrials t = amp::try_scales(
        *model_, [&] { return loss(); }, first, first + 1);
    const auto worst = [](const std::vector<double>& errors) {
      return *std::max_element(errors.begin(), errors.end());
    };
    return {worst(t.trials[0].errors), worst(t.trials[1].errors)};
  }

 private:
  static nn::Sequential make_model(Device device) {
    nn::Sequential model{nn::Linear(64, 64), nn::ReLU(), nn::Linear(64, 64), nn::ReLU(),
                         nn::Linear(64, 10)};
    model->to(device);
    return model;
  }

  const Arguments& a_;
  Samples train_ = samples_of(data::digits().train, a_.device);
  Samples test_ = samples_of(data::digits().test, a_.device);
  nn::Sequential model_;
  optim::Adam optimizer_;
  amp::GradScaler scaler_;
  Tensor x_, y_;
};

constexpr int64_t kNever = 1 << 30;

struct Rule {
  std::string name;
  std::function<Outcome(const Arguments&, uint64_t seed)> run;
};

std::vector<Rule> rules() {
  std::vector<Rule> all;
  for (const int64_t interval : {20, 200, 2000})
    all.push_back({fmt::format("interval {}", interval), [=](const Arguments& a, uint64_t seed) {
                     Training t(a, seed, interval);
                     return t.run([](Training& now, int64_t) { now.scaler().update(); });
                   }});
  for (const double room : {2.0, 8.0})
    all.push_back({fmt::format("headroom {}", room), [=](const Arguments& a, uint64_t seed) {
                     Training t(a, seed, kNever);
                     amp::HeadroomGrowth growth(t.scaler(), room);
                     return t.run([&](Training& now, int64_t) { growth.update(now.optimizer()); });
                   }});
  // Every 20th step looks whether gradients are still off by 5 %, as where all are lost, or twice
  // the scale would bring them nearer to float32 by a tenth.
  all.push_back({"until the error's floor", [](const Arguments& a, uint64_t seed) {
                   Training t(a, seed, kNever);
                   return t.run([](Training& now, int64_t step) {
                     now.scaler().update();
                     if (step % 20 != 0) return;
                     const double scale = now.scaler().get_scale();
                     const auto [here, next] = now.errors(std::ilogb(scale));
                     if (here > 0.05 || next < 0.9 * here) now.scaler().update(2 * scale);
                   });
                 }});
  return all;
}

}  // namespace

int main(int argc, char** argv) {
  Arguments a;
  CLI::App app{"Three rules by which the loss scale may grow.", "growth_rules"};
  a.machine.add_options(app);
  app.add_option("--loss-weight", a.loss_weight, "multiplies the loss")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--init-scale", a.init_scale, "the first loss scale")
      ->check(sample::between(1.0, 0x1p100))
      ->capture_default_str();
  app.add_option("--epochs", a.epochs, "12 steps each")
      ->check(sample::between(int64_t{1}, int64_t{10000}))
      ->capture_default_str();
  app.add_option("--seeds", a.seeds, "trainings by each rule, from --seed on")
      ->check(sample::between(int64_t{1}, int64_t{1000}))
      ->capture_default_str();

  return sample::run(app, argc, argv, [&] {
    a.device = a.machine.prepare();
    fmt::print("{:<26}{:>8}{:>8}{:>14}{:>12}\n", "rule", "steps", "skips", "mean log2 S",
               "accuracy");
    std::pair<double, std::string> best;
    const std::vector<Rule> all = rules();
    size_t done = 0;
    const sample::Interrupt ctrl_c;
    for (const Rule& rule : all) {
      Outcome sum;
      for (int64_t i = 0; i < a.seeds && !ctrl_c.asked(); ++i) {
        const Outcome one = rule.run(a, a.machine.seed + static_cast<uint64_t>(i));
        sum.accuracy += one.accuracy / static_cast<double>(a.seeds);
        sum.log2_scale += one.log2_scale / static_cast<double>(a.seeds);
        sum.skips += one.skips;
        sum.steps += one.steps;
      }
      if (ctrl_c.asked()) break;
      fmt::print("{:<26}{:>8}{:>8}{:>14.1f}{:>10.2f} %\n", rule.name, sum.steps, sum.skips,
                 sum.log2_scale, sum.accuracy);
      std::fflush(stdout);  // a row is there as soon as it is known
      best = std::max(best, {sum.accuracy, rule.name});
      ++done;
    }
    if (done < all.size()) fmt::print("stopped after {} of {} rules\n", done, all.size());
    if (done > 0) fmt::print("best accuracy {:.2f} % by {}\n", best.first, best.second);
  });
}
