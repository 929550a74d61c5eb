// GradScaler against runs of torch.amp.GradScaler: scale, growth tracker and parameters after every
// step, with overflows where the vector says.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <cmath>
#include <limits>

#include "halftape/tests/support/poke.h"
#include "halftape/tests/support/vectors.h"

using namespace halftape;

TEST_CASE("scale, tracker and parameters follow PyTorch's scaler through any series of overflows") {
  const testing::Vectors torch("grad_scaler.txt");
  for (const std::string name :
       {"usual", "every_step", "odd_factors", "growth_to_the_limit", "far_below_one",
        "defaults_never_grow_early", "overflow_when_growth_is_due"}) {
    CAPTURE(name);
    const auto& given = torch[name + "/options"];
    amp::GradScalerOptions options;
    options.init_scale = given.at(0);
    options.growth_factor = given.at(1);
    options.backoff_factor = given.at(2);
    options.growth_interval = static_cast<int64_t>(given.at(3));
    amp::GradScaler scaler(options);
    const Tensor p = tensor({1.0, -2.0}, requires_grad());
    optim::SGD optimizer({p}, optim::SGDOptions(0.125).momentum(0.5));
    const auto &bad = torch[name + "/found_inf"], &scales = torch[name + "/scale"],
               &trackers = torch[name + "/growth_tracker"], &values = torch[name + "/parameter"];
    REQUIRE(bad.size() >= 15);
    for (size_t t = 0; t < bad.size(); ++t) {
      CAPTURE(t);
      optimizer.zero_grad();
      scaler.scale(p.sum()).backward();
      // The scaled gradient of p²/2, bounded as in the script, or an infinity.
      const double scale = std::min(scaler.get_scale(), 1e37);
      const auto now = p.to_vector();
      for (size_t i = 0; i < 2; ++i)
        testing::poke(
            p.grad(), static_cast<int64_t>(i),
            i == 1 && bad[t] != 0 ? std::numeric_limits<double>::infinity() : now[i] * scale);
      CHECK(scaler.step(optimizer).found_inf() == (bad[t] != 0));
      scaler.update();
      CHECK(scaler.get_scale() == scales[t]);
      CHECK(static_cast<double>(scaler.get_growth_tracker()) == trackers[t]);
      for (size_t i = 0; i < 2; ++i) {
        const double expected = values[2 * t + i];
        CHECK(std::abs(p.to_vector()[i] / expected - 1) <= 1e-6);
      }
    }
  }
}

TEST_CASE("a gradient shared by two parameters through create_graph is unscaled once") {
  const Tensor a = zeros({4}, requires_grad()), b = zeros({4}, requires_grad());
  optim::SGD optimizer({a, b}, optim::SGDOptions(1.0));
  amp::GradScalerOptions options;
  options.init_scale = 16;
  amp::GradScaler scaler(options);
  scaler.scale((a + b).sum()).backward({}, {}, true);
  scaler.step(optimizer);
  CHECK(a.equal(full({4}, -1.0)));
  CHECK(b.equal(full({4}, -1.0)));
}
