// Whole runs of the optimizers against PyTorch's: scripts/make_torch_vectors.py states the same
// problem and options.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <cmath>
#include <functional>

#include "halftape/tests/support/vectors.h"

using namespace halftape;
using optim::AdagradOptions;
using optim::AdamOptions;
using optim::AdamWOptions;
using optim::LionOptions;
using optim::RMSpropOptions;
using optim::SGDOptions;

namespace {

constexpr int kParameters = 8;

double start(int i) { return 1.5 + 0.375 * i; }
/// Eight noisy bowls; see the script.
double gradient(double p, int i, int t) {
  return (0.1 + 0.2 * i) * (p - (4.0 + 0.5 * i)) + 0.3 * std::sin(0.1 * t + i);
}

struct Run {
  std::string name;
  std::function<std::unique_ptr<optim::Optimizer>(const std::vector<Tensor>&)> make;
  bool maximize = false;
};

template <class O, class Options>
Run run(const char* name, Options options) {
  return {name, [=](const std::vector<Tensor>& p) { return std::make_unique<O>(p, options); },
          options.maximize()};
}
Run sgd(const char* name, SGDOptions o) { return run<optim::SGD>(name, o); }
Run adam(const char* name, AdamOptions o) { return run<optim::Adam>(name, o); }
Run adamw(const char* name, AdamWOptions o) { return run<optim::AdamW>(name, o); }
Run rmsprop(const char* name, RMSpropOptions o) { return run<optim::RMSprop>(name, o); }
Run adagrad(const char* name, AdagradOptions o) { return run<optim::Adagrad>(name, o); }
Run lion(const char* name, LionOptions o) { return run<optim::Lion>(name, o); }

/// AdamOptions' setters give an AdamOptions&, which would lose AdamW's own type.
AdamWOptions adamw_options(const std::function<void(AdamWOptions&)>& change) {
  AdamWOptions o(0.02);
  change(o);
  return o;
}

const std::vector<Run>& runs() {
  using Betas = AdamOptions::Betas;
  static const std::vector<Run> all = {
      sgd("sgd_plain", SGDOptions(0.1)),
      sgd("sgd_momentum", SGDOptions(0.05).momentum(0.9)),
      sgd("sgd_dampening", SGDOptions(0.05).momentum(0.9).dampening(0.3)),
      sgd("sgd_nesterov", SGDOptions(0.05).momentum(0.9).nesterov(true)),
      sgd("sgd_weight_decay", SGDOptions(0.1).weight_decay(0.05)),
      sgd("sgd_everything", SGDOptions(0.05).momentum(0.8).weight_decay(0.05).nesterov(true)),
      sgd("sgd_maximize", SGDOptions(0.05).momentum(0.9).weight_decay(0.05).maximize(true)),
      adam("adam_default", AdamOptions(0.02)),
      adam("adam_weight_decay", AdamOptions(0.02).weight_decay(0.1)),
      adam("adam_amsgrad", AdamOptions(0.02).amsgrad(true)),
      adam("adam_betas_eps", AdamOptions(0.002).betas(Betas(0.8, 0.95)).eps(1e-4)),
      adam("adam_short_memory", AdamOptions(0.002).betas(Betas(0.3, 0.4))),
      adam("adam_maximize", AdamOptions(0.02).weight_decay(0.1).maximize(true)),
      adamw("adamw_default", AdamWOptions(0.02)),
      adamw("adamw_weight_decay", adamw_options([](auto& o) { o.weight_decay(0.1); })),
      adamw("adamw_amsgrad", adamw_options([](auto& o) { o.amsgrad(true); })),
      adamw("adamw_maximize", adamw_options([](auto& o) { o.weight_decay(0.1).maximize(true); })),
      rmsprop("rmsprop_default", RMSpropOptions(0.002)),
      rmsprop("rmsprop_momentum", RMSpropOptions(0.0002).alpha(0.9).momentum(0.9)),
      rmsprop("rmsprop_centered", RMSpropOptions(0.0002).eps(1e-4).centered(true)),
      rmsprop("rmsprop_everything",
              RMSpropOptions(0.0001).alpha(0.95).momentum(0.5).weight_decay(0.05).centered(true)),
      rmsprop("rmsprop_maximize", RMSpropOptions(0.002).weight_decay(0.05).maximize(true)),
      adagrad("adagrad_default", AdagradOptions(0.1)),
      adagrad("adagrad_decay", AdagradOptions(0.1).lr_decay(0.01).weight_decay(0.05)),
      adagrad("adagrad_accumulator", AdagradOptions(0.1).initial_accumulator_value(0.5).eps(1e-4)),
      adagrad("adagrad_maximize", AdagradOptions(0.1).weight_decay(0.05).maximize(true)),
      lion("lion_default", LionOptions(0.005)),
      lion("lion_weight_decay", LionOptions(0.005).betas({0.8, 0.95}).weight_decay(0.1)),
      lion("lion_maximize", LionOptions(0.005).weight_decay(0.1).maximize(true)),
  };
  return all;
}

/// The largest |ours/torch's − 1| over the parameters, at each of the stored steps.
template <class T>
double worst_relative_error(const Run& run, const testing::Vectors& torch) {
  const std::string dtype = sizeof(T) == 8 ? "float64" : "float32";
  std::vector<T> values;
  for (int i = 0; i < kParameters; ++i) values.push_back(static_cast<T>(start(i)));
  const Tensor p = tensor(values, dtype_of<T>).requires_grad_();
  const auto optimizer = run.make({p});
  double worst = 0;
  for (int t = 1; t <= 1000; ++t) {
    std::vector<T> g;
    const auto now = p.detach().to_vector();
    for (int i = 0; i < kParameters; ++i) {
      const double up = gradient(now[static_cast<size_t>(i)], i, t);
      g.push_back(static_cast<T>(run.maximize ? -up : up));
    }
    p.mutable_grad() = tensor(g, dtype_of<T>);
    optimizer->step();
    if (t != 1 && t != 2 && t != 10 && t != 100 && t != 1000) continue;
    const auto& expected = torch[run.name + ("/" + dtype + "/") + std::to_string(t)];
    REQUIRE(expected.size() == kParameters);
    const auto ours = p.detach().to_vector();
    for (size_t i = 0; i < expected.size(); ++i)
      worst = std::max(worst, std::abs(ours[i] / expected[i] - 1));
  }
  return worst;
}

}  // namespace

// Measured: 2.2e-16, one unit in the last place.
TEST_CASE("in float64 every optimizer stays with PyTorch's to 1e-14 over 1000 steps") {
  const testing::Vectors torch("optimizers.txt");
  for (const Run& run : runs()) {
    CAPTURE(run.name);
    CHECK(worst_relative_error<double>(run, torch) <= 1e-14);
  }
}

// Measured: 1.7e-7, two units in the last place.
TEST_CASE("in float32 every optimizer stays with PyTorch's to 1e-6 over 1000 steps") {
  const testing::Vectors torch("optimizers.txt");
  for (const Run& run : runs()) {
    CAPTURE(run.name);
    CHECK(worst_relative_error<float>(run, torch) <= 1e-6);
  }
}
