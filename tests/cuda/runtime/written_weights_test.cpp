// Captured steps of 16-bit weights with a master or a remainder, which others write, too.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <memory>
#include <optional>
#include <vector>

#include "halftape/tests/support/close.h"

using namespace halftape;
using optim::Weights;
using testing::same_bits;

namespace {

/// Where the step itself writes its weight.
enum class Clamps { Never, Before, After };

struct Training {
  Tensor weight;
  std::unique_ptr<optim::SGD> optimizer;
  Tensor x = zeros({64});
  Clamps clamps;
  std::optional<Graph> graph;

  Training(Weights kept, Dtype dtype, bool flat, Clamps where) : clamps(where) {
    manual_seed(8);
    weight = (randn({64}) * 100).to(dtype).set_requires_grad(true);
    optimizer = std::make_unique<optim::SGD>(std::vector<Tensor>{weight},
                                             optim::SGDOptions(0x1p-5).momentum(0.5).weights(kept));
    if (flat) optimizer->flatten();
  }
  void clamp() {
    const NoGradGuard no_grad;
    weight.clamp_(-64, 64);
  }
  void call() {
    optimizer->zero_grad();
    if (clamps == Clamps::Before) clamp();
    (weight.to(kFloat32) * x).sum().backward();
    optimizer->step();
    if (clamps == Clamps::After) clamp();
  }
  void capture() {
    graph.emplace(kCUDA, [this] { call(); });
  }
  void step(int i) {
    x.copy_((arange(0, 64).to(kFloat32) * (0.1 + 0.05 * i)).sin());
    graph ? graph->replay() : call();
  }
  void fill(int from, int to, double value) {
    const NoGradGuard no_grad;
    weight.slice(0, from, to).fill_(value);
  }
  Tensor extra(Weights kept) const {
    return Tensor(optimizer->state_of(weight).at(kept == Weights::Master ? "master" : "remainder"));
  }
};

}  // namespace

TEST_CASE("weights that are written between replays go on from what was written") {
  for (const Weights kept : {Weights::Master, Weights::Kahan})
    for (const Dtype dtype : {kFloat16, kBFloat16})
      for (const bool flat : {false, true})
        for (const Clamps where : {Clamps::Never, Clamps::Before, Clamps::After}) {
          CAPTURE(static_cast<int>(kept));
          CAPTURE(dtype);
          CAPTURE(flat);
          CAPTURE(static_cast<int>(where));
          Training called(kept, dtype, flat, where), replayed(kept, dtype, flat, where);
          const auto both = [&](const auto& act) { act(called), act(replayed); };
          const auto check = [&] {
            CHECK(same_bits(called.weight, replayed.weight));
            CHECK(same_bits(called.extra(kept), replayed.extra(kept)));
          };
          both([](Training& t) { t.step(0), t.fill(0, 8, 3); });
          replayed.capture();
          both([](Training& t) { t.step(1), t.step(2); });
          check();
          both([](Training& t) { t.fill(4, 16, 0x1p-10), t.step(3), t.step(4); });
          check();
          // A state that is loaded is older than the weight.
          both([](Training& t) {
            const auto saved = t.optimizer->state_dict();
            t.step(5), t.fill(32, 40, -7), t.optimizer->load_state_dict(saved), t.step(6);
          });
          check();
          // A step between replays.
          both([](Training& t) { t.fill(40, 48, 9), t.call(), t.step(7), t.step(8); });
          check();
        }
}

TEST_CASE("a weight that is written alone is looked at again before a replay") {
  Training t(Weights::Master, kBFloat16, false, Clamps::Never);
  t.capture();
  t.step(0);
  const auto versions = [&] {
    const auto before = t.extra(Weights::Master).version();
    t.step(1);
    return t.extra(Weights::Master).version() - before;
  };
  CHECK(versions() == 1);  // the update
  t.fill(0, 1, 1);
  CHECK(versions() == 2);  // and the master that follows
  CHECK(versions() == 1);
}
