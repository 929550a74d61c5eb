// Whole runs of the optimizers against PyTorch's: scripts/make_torch_vectors.py states the same
// problem and options.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <cmath>
#include <functional>

#include "halftape/tests/support/optimizers.h"
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

using testing::OptimizerKind;
template <class O, class Options>
OptimizerKind run(const char* name, Options options) {
  return testing::optimizer_kind<O>(name, options);
}

/// AdamOptions' setters give an AdamOptions&, which would lose AdamW's own type.
AdamWOptions adamw_options(const std::function<void(AdamWOptions&)>& change) {
  AdamWOptions o(0.02);
  change(o);
  return o;
}

const std::vector<OptimizerKind>& runs() {
  using Betas = AdamOptions::Betas;
  static const std::vector<OptimizerKind> all = {
      run<optim::SGD>("sgd_plain", SGDOptions(0.1)),
      run<optim::SGD>("sgd_momentum", SGDOptions(0.05).momentum(0.9)),
      run<optim::SGD>("sgd_dampening", SGDOptions(0.05).momentum(0.9).dampening(0.3)),
      run<optim::SGD>("sgd_nesterov", SGDOptions(0.05).momentum(0.9).nesterov(true)),
      run<optim::SGD>("sgd_weight_decay", SGDOptions(0.1).weight_decay(0.05)),
      run<optim::SGD>("sgd_everything",
                      SGDOptions(0.05).momentum(0.8).weight_decay(0.05).nesterov(true)),
      run<optim::SGD>("sgd_maximize",
                      SGDOptions(0.05).momentum(0.9).weight_decay(0.05).maximize(true)),
      run<optim::Adam>("adam_default", AdamOptions(0.02)),
      run<optim::Adam>("adam_weight_decay", AdamOptions(0.02).weight_decay(0.1)),
      run<optim::Adam>("adam_amsgrad", AdamOptions(0.02).amsgrad(true)),
      run<optim::Adam>("adam_betas_eps", AdamOptions(0.002).betas(Betas(0.8, 0.95)).eps(1e-4)),
      run<optim::Adam>("adam_short_memory", AdamOptions(0.002).betas(Betas(0.3, 0.4))),
      run<optim::Adam>("adam_maximize", AdamOptions(0.02).weight_decay(0.1).maximize(true)),
      run<optim::AdamW>("adamw_default", AdamWOptions(0.02)),
      run<optim::AdamW>("adamw_weight_decay", adamw_options([](auto& o) { o.weight_decay(0.1); })),
      run<optim::AdamW>("adamw_amsgrad", adamw_options([](auto& o) { o.amsgrad(true); })),
      run<optim::AdamW>("adamw_maximize",
                        adamw_options([](auto& o) { o.weight_decay(0.1).maximize(true); })),
      run<optim::RMSprop>("rmsprop_default", RMSpropOptions(0.002)),
      run<optim::RMSprop>("rmsprop_momentum", RMSpropOptions(0.0002).alpha(0.9).momentum(0.9)),
      run<optim::RMSprop>("rmsprop_centered", RMSpropOptions(0.0002).eps(1e-4).centered(true)),
      run<optim::RMSprop>(
          "rmsprop_everything",
          RMSpropOptions(0.0001).alpha(0.95).momentum(0.5).weight_decay(0.05).centered(true)),
      run<optim::RMSprop>("rmsprop_maximize",
                          RMSpropOptions(0.002).weight_decay(0.05).maximize(true)),
      run<optim::Adagrad>("adagrad_default", AdagradOptions(0.1)),
      run<optim::Adagrad>("adagrad_decay", AdagradOptions(0.1).lr_decay(0.01).weight_decay(0.05)),
      run<optim::Adagrad>("adagrad_accumulator",
                          AdagradOptions(0.1).initial_accumulator_value(0.5).eps(1e-4)),
      run<optim::Adagrad>("adagrad_maximize",
                          AdagradOptions(0.1).weight_decay(0.05).maximize(true)),
      run<optim::Lion>("lion_default", LionOptions(0.005)),
      run<optim::Lion>("lion_weight_decay",
                       LionOptions(0.005).betas({0.8, 0.95}).weight_decay(0.1)),
      run<optim::Lion>("lion_maximize", LionOptions(0.005).weight_decay(0.1).maximize(true)),
  };
  return all;
}

/// The largest |ours/torch's − 1| over the parameters, at each of the stored steps.
template <class T>
double worst_relative_error(const OptimizerKind& run, const testing::Vectors& torch) {
  const std::string dtype = sizeof(T) == 8 ? "float64" : "float32";
  std::vector<T> values;
  for (int i = 0; i < kParameters; ++i) values.push_back(static_cast<T>(start(i)));
  const Tensor p = tensor(values, dtype_of<T>).requires_grad_();
  const auto optimizer = run.make({p});
  const bool maximize = optimizer->defaults().to_map().at("maximize") != 0;
  double worst = 0;
  for (int t = 1; t <= 1000; ++t) {
    std::vector<T> g;
    const auto now = p.detach().to_vector();
    for (int i = 0; i < kParameters; ++i) {
      const double up = gradient(now[static_cast<size_t>(i)], i, t);
      g.push_back(static_cast<T>(maximize ? -up : up));
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
  for (const OptimizerKind& run : runs()) {
    CAPTURE(run.name);
    CHECK(worst_relative_error<double>(run, torch) <= 1e-14);
  }
}

// Measured: 1.7e-7, two units in the last place.
TEST_CASE("in float32 every optimizer stays with PyTorch's to 1e-6 over 1000 steps") {
  const testing::Vectors torch("optimizers.txt");
  for (const OptimizerKind& run : runs()) {
    CAPTURE(run.name);
    CHECK(worst_relative_error<float>(run, torch) <= 1e-6);
  }
}
