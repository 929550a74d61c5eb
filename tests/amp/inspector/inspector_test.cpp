// The Inspector sees every number that is stored in 16 bits, names the first that is not finite,
// and changes nothing.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <cmath>
#include <sstream>

#include "halftape/core/machine/os.h"
#include "halftape/tests/support/close.h"
#include "halftape/tests/support/message.h"
#include "halftape/tests/support/warnings.h"

using namespace halftape;
using amp::Alarm;
using amp::ClassCounts;
using amp::Inspector;
using amp::LedgerPlace;
using amp::Overflow;
using testing::message;
namespace F = nn::functional;

namespace {

nn::Sequential make_mlp(int64_t in, int64_t hidden, int64_t out) {
  nn::Sequential model;
  model->push_back("fc1", nn::Linear(in, hidden));
  model->push_back("relu1", nn::ReLU());
  model->push_back("fc2", nn::Linear(hidden, hidden));
  model->push_back("relu2", nn::ReLU());
  model->push_back("fc3", nn::Linear(hidden, out));
  return model;
}

/// A small training in float16.
struct Training {
  explicit Training(amp::GradScalerOptions options = {}, double loss_weight = 1,
                    std::optional<Dtype> computed_in = kFloat16)
      : weight(loss_weight), dtype(computed_in), scaler(options) {}
  double weight;
  std::optional<Dtype> dtype;
  nn::Sequential model = (manual_seed(5), make_mlp(16, 32, 4));
  optim::Adam optimizer{model->parameters(), optim::AdamOptions(1e-2)};
  amp::GradScaler scaler;
  Tensor x = randn({24, 16}), y = randint(4, {24});

  Tensor loss() {
    const amp::autocast region(kCPU, dtype, dtype.has_value());
    return F::cross_entropy(model->forward(x), y) * weight;
  }
  amp::StepResult step() {
    optimizer.zero_grad();
    scaler.scale(loss()).backward();
    amp::StepResult result = scaler.step(optimizer);
    scaler.update();
    return result;
  }
};

size_t count_of(const std::vector<LedgerPlace>& places, LedgerPlace::Kind kind) {
  return static_cast<size_t>(std::count_if(places.begin(), places.end(),
                                           [&](const LedgerPlace& p) { return p.kind == kind; }));
}

}  // namespace

TEST_CASE("every gradient that is stored in 16 bits has a place, by op, module and parameter") {
  Training t;
  Inspector inspector(*t.model, t.scaler, {.every = 1});
  t.step();
  inspector.step();
  std::vector<std::string> stored, parameters;
  for (const LedgerPlace& p : inspector.places()) {
    if (p.kind == LedgerPlace::Kind::Gradient && p.dtype == kFloat16)
      stored.push_back(p.op + " in " + p.module);
    if (p.kind == LedgerPlace::Kind::Parameter) parameters.push_back(p.parameter);
  }
  CHECK(stored == std::vector<std::string>{"linear in fc3", "linear in fc2", "linear in fc1"});
  std::sort(parameters.begin(), parameters.end());
  CHECK(parameters == std::vector<std::string>{"fc1.bias", "fc1.weight", "fc2.bias", "fc2.weight",
                                               "fc3.bias", "fc3.weight"});
  CHECK(inspector.steps() == 1);

  // What it counted is what hooks see.
  std::vector<amp::ExponentCounts> hooked;
  Tensor h = t.x;
  {
    const amp::autocast region(kCPU, kFloat16);
    for (const auto& layer : *t.model) {
      h = layer.forward(h);
      h.register_hook([&hooked](const Tensor& g) {
        hooked.push_back(amp::count_exponents(g));
        return Tensor();
      });
    }
    t.optimizer.zero_grad();
    h = F::cross_entropy(h, t.y);
  }
  t.scaler.scale(h).backward();
  inspector.step();
  std::vector<amp::ExponentCounts> seen;
  for (const amp::LedgerRow& row : inspector.rows())
    if (row.step == 1 && inspector.places()[row.place].kind == LedgerPlace::Kind::Gradient)
      seen.push_back(row.seen);
  CHECK(seen == hooked);
}

TEST_CASE("totals are sums over all steps, and samples are taken of every n-th") {
  Training t;
  Inspector inspector(*t.model, t.scaler, {.every = 4, .kept = 2});
  for (int i = 0; i < 13; ++i) {
    t.step();
    inspector.step();
  }
  CHECK(inspector.steps() == 13);
  std::vector<int64_t> steps;
  for (const amp::LedgerRow& row : inspector.rows())
    if (steps.empty() || steps.back() != row.step) steps.push_back(row.step);
  CHECK(steps == std::vector<int64_t>{8, 12});
  for (size_t i = 0; i < inspector.places().size(); ++i) {
    const LedgerPlace& p = inspector.places()[i];
    if (p.op == "linear" && p.module == "fc1") CHECK(inspector.totals()[i].total() == 13 * 24 * 32);
    if (p.parameter == "fc3.weight") CHECK(inspector.totals()[i].total() == 13 * 4 * 32);
  }
}

TEST_CASE("a training has the same bits with an inspector, shadows and replays") {
  const auto train = [](bool inspected, bool checkpointed) {
    manual_seed(11);
    nn::Sequential model(nn::Linear(16, 32), nn::BatchNorm1d(32), nn::ReLU(), nn::Dropout(0.3),
                         nn::Linear(32, 4));
    optim::AdamW optimizer(model->parameters(), optim::AdamWOptions(1e-2));
    amp::GradScaler scaler({.init_scale = 0x1p40, .growth_interval = 3});
    const Tensor x = randn({40, 16}), y = randint(4, {40});
    const amp::Injection fault = amp::inject({.step = 33, .parameter = 1});
    std::optional<Inspector> inspector;
    if (inspected)
      inspector.emplace(*model, scaler, amp::InspectorOptions{.every = 2, .shadow_every = 4});
    for (int i = 0; i < 60; ++i) {
      const auto forward = [&](const TensorList& in) { return model->forward(in[0]); };
      const auto loss = [&] {
        const amp::autocast region(kCPU, kFloat16);
        return F::cross_entropy(checkpointed ? autograd::checkpoint(forward, {x}) : forward({x}),
                                y);
      };
      optimizer.zero_grad();
      scaler.scale(loss()).backward();
      scaler.step(optimizer);
      scaler.update();
      if (inspector) inspector->step(loss);
    }
    TensorList state = model->parameters();
    for (const Tensor& b : model->buffers()) state.push_back(b);
    state.push_back(randn({3}));  // the random generator
    state.push_back(tensor({static_cast<double>(scaler.stats().skips), scaler.get_scale()}));
    if (inspector) {
      CHECK(scaler.stats().skips > 10);
      CHECK(static_cast<int64_t>(inspector->overflows().size()) == scaler.stats().skips);
    }
    return state;
  };
  for (const bool checkpointed : {false, true}) {
    const TensorList without = train(false, checkpointed), with = train(true, checkpointed);
    for (size_t i = 0; i < without.size(); ++i) CHECK(testing::same_bits(without[i], with[i]));
  }
}

TEST_CASE("the first overflow is named, with the largest scale that passes") {
  Training t;
  Inspector inspector(*t.model, t.scaler);
  t.scaler.update(0x1p40);
  CHECK(t.step().found_inf());
  inspector.step([&] { return t.loss(); });
  const auto overflow = inspector.last_overflow();
  REQUIRE(overflow);
  CHECK(overflow->step == 0);
  CHECK(overflow->scale == 0x1p40);
  CHECK(overflow->where == Overflow::Where::Backward);
  CHECK(overflow->dtype == kFloat16);
  CHECK_FALSE(overflow->nan);
  CHECK(overflow->op == "cross_entropy");  // whose gradient is rounded to float16
  CHECK(overflow->parameter == "fc1.weight");
  REQUIRE(overflow->largest_scale_that_passes);
  const double passes = *overflow->largest_scale_that_passes;
  CHECK(passes < 0x1p40);
  for (const double scale : {passes, 2 * passes}) {
    Training again(amp::GradScalerOptions::fixed(scale));
    CHECK(again.step().found_inf() == (scale > passes));
  }
  std::ostringstream text;
  text << *overflow;
  CHECK(testing::has(text.str(),
                     "step 0, scale 1.09951e+12: cross_entropy gave an infinity in float16, "
                     "backward; parameter fc1.weight; passes at "));
}

/// Neither inlined nor local, so that the call has a name.
[[gnu::noinline]] Tensor one_layer(const nn::Linear& layer, const Tensor& x) {
  const amp::autocast region(kCPU, kFloat16);
  return F::cross_entropy(layer->forward(x), tensor({1}, kInt64));
}

TEST_CASE("with anomaly mode on, an overflow is named with the call that recorded its op") {
  manual_seed(5);
  nn::Linear layer(16, 4);  // of one sample the gradients are products, so that no inf makes a NaN
  optim::SGD optimizer(layer->parameters(), optim::SGDOptions(0.1));
  amp::GradScaler scaler(amp::GradScalerOptions::fixed(0x1p40));
  Inspector inspector(*layer, scaler);
  const autograd::DetectAnomalyGuard calls;
  scaler.scale(one_layer(layer, randn({1, 16}))).backward();
  CHECK(scaler.step(optimizer).found_inf());
  scaler.update();
  inspector.step();
  const auto overflow = inspector.last_overflow();
  REQUIRE(overflow);
  CHECK(testing::has(overflow->call_site,
                     os::output_of("addr2line --version").empty() ? "+0x" : "one_layer"));
  std::ostringstream text;
  text << *overflow;
  CHECK(testing::has(text.str(), "; called at " + overflow->call_site));
}

TEST_CASE("an overflow in forward, a bad loss and a NaN have other names") {
  Training t;
  Inspector inspector(*t.model, t.scaler);
  t.step();
  inspector.step();
  SUBCASE("a value beyond float16") {
    const NoGradGuard no_grad;
    t.model->named_parameters()["fc2.weight"].mul_(2e5);  // each weight is still finite
  }
  SUBCASE("the labels' weight") { t.weight = std::numeric_limits<double>::infinity(); }
  const bool forward = std::isfinite(t.weight);
  CHECK(t.step().bad_loss());
  inspector.step([&] { return t.loss(); });
  const auto overflow = inspector.last_overflow();
  REQUIRE(overflow);
  CHECK(overflow->where == Overflow::Where::Forward);
  CHECK(overflow->op == (forward ? "linear" : "affine"));
  CHECK(overflow->module == (forward ? "fc2" : ""));
  CHECK(overflow->dtype == (forward ? kFloat16 : kFloat32));
  CHECK(overflow->largest_scale_that_passes == 0);
}

TEST_CASE("a gradient that only the division makes infinite is named by its parameter") {
  nn::Linear model(nn::LinearOptions(1, 1).bias(false));
  optim::SGD optimizer(model->parameters(), optim::SGDOptions(0.1));
  amp::GradScaler scaler(amp::GradScalerOptions::fixed(0x1p-10));
  Inspector inspector(*model, scaler, {.optimizer = &optimizer});
  {
    const NoGradGuard no_grad;
    model->weight.fill_(1e-10);
  }
  for (int i = 0; i < 2; ++i) scaler.scale(model->forward(ones({1, 1})).sum() * 3e38).backward();
  CHECK(scaler.step(optimizer).found_inf());
  scaler.update();
  inspector.step();
  const auto overflow = inspector.last_overflow();
  REQUIRE(overflow);
  CHECK(overflow->where == Overflow::Where::Unscale);
  CHECK(overflow->parameter == "weight");
}

TEST_CASE("skips before the inspector came are not its own") {
  Training t({.init_scale = 0x1p38});
  CHECK(t.step().found_inf());
  CHECK(t.step().found_inf());
  Inspector inspector(*t.model, t.scaler);
  t.scaler.update(1024.0);
  CHECK(t.step().applied());
  inspector.step();
  CHECK(inspector.overflows().empty());
  t.scaler.update(0x1p60);
  CHECK(t.step().found_inf());
  inspector.step();
  CHECK(inspector.overflows().size() == 1);
}

TEST_CASE("a mask of −inf is not what went wrong") {
  manual_seed(3);
  nn::MultiheadAttention attention(nn::MultiheadAttentionOptions(8, 2));
  optim::SGD optimizer(attention->parameters(), optim::SGDOptions(0.1));
  amp::GradScaler scaler({.init_scale = 0x1p40});
  Inspector inspector(*attention, scaler);
  const Tensor x = randn({5, 2, 8});
  const Tensor mask = triu(full({5, 5}, -std::numeric_limits<double>::infinity()), 1);
  for (int i = 0; i < 40; ++i) {
    optimizer.zero_grad();
    const amp::autocast region(kCPU, kFloat16);
    const Tensor y = std::get<0>(attention->forward(x, x, x, {}, true, mask));
    scaler.scale((y * y).mean()).backward();
    scaler.step(optimizer);
    scaler.update();
    inspector.step();
  }
  CHECK(inspector.overflows().size() > 5);
  CHECK(inspector.overflows().size() < 40);
  for (const Overflow& o : inspector.overflows()) CHECK(o.where == Overflow::Where::Backward);
}

TEST_CASE("shadows tell flushed zeros from true ones, and give the error of weight gradients") {
  const auto rows = [](double scale) {
    Training t(amp::GradScalerOptions::fixed(scale), 1e-5);
    Inspector inspector(*t.model, t.scaler, {.alarms = {.report = [](const Alarm&) {}}});
    t.step();
    inspector.step([&] { return t.loss(); });
    struct Found {
      double lost = 0, error = 0;
    } found;
    for (const amp::LedgerRow& row : inspector.rows()) {
      const LedgerPlace& p = inspector.places()[row.place];
      REQUIRE(row.shadow);
      CHECK(row.seen.total() == row.shadow->total());
      if (p.module == "fc1")
        found.lost = static_cast<double>(row.seen.zeros() - row.shadow->zeros()) /
                     static_cast<double>(row.shadow->numbers());
      if (p.parameter == "fc1.weight") found.error = row.error.value();
    }
    return found;
  };
  const auto low = rows(1), high = rows(65536);
  CHECK(low.lost > 0.5);
  CHECK(low.error > 0.1);
  CHECK(high.lost == 0);
  CHECK(high.error < 2e-3);
  CHECK(high.error > 1e-5);  // float16 rounds
}

TEST_CASE("alarms say what to do, once") {
  testing::Warnings warnings;
  SUBCASE("lost gradients") {
    Training t(amp::GradScalerOptions::fixed(1), 1e-6);
    Inspector inspector(*t.model, t.scaler, {.every = 1, .shadow_every = 1});
    for (int i = 0; i < 3; ++i) {
      t.step();
      inspector.step([&] { return t.loss(); });
    }
    const std::vector<Alarm>& all = inspector.alarms();
    REQUIRE(!all.empty());
    CHECK(all[0].kind == Alarm::Kind::Lost);
    CHECK(all[0].where == "fc1");
    CHECK(testing::has(warnings.seen[0], "Inspector: step 0: fc1: "));
    CHECK(testing::has(warnings.seen[0], "raise init_scale"));
    CHECK(warnings.seen.size() == all.size());
    for (size_t i = 1; i < all.size(); ++i)
      CHECK((all[i].kind != all[0].kind || all[i].where != all[0].where));
  }
  SUBCASE("a dead module") {
    Training t;
    {
      const NoGradGuard no_grad;
      t.model->named_parameters()["fc1.bias"].fill_(-100);
    }
    Inspector inspector(*t.model, t.scaler);
    t.step();
    inspector.step();
    REQUIRE(inspector.alarms().size() == 1);
    CHECK(inspector.alarms()[0].kind == Alarm::Kind::Dead);
    CHECK(inspector.alarms()[0].where == "fc1");
  }
  SUBCASE("updates that vanish") {
    Training t({.enabled = false}, 1, std::nullopt);
    t.model->to(kBFloat16);
    t.x = t.x.to(kBFloat16);
    optim::SGD small(t.model->parameters(), optim::SGDOptions(1e-5));
    Inspector inspector(*t.model, t.scaler);
    t.loss().backward();
    small.step();
    inspector.step();
    REQUIRE(inspector.alarms().size() == 6);
    CHECK(inspector.alarms()[0].kind == Alarm::Kind::Stagnant);
    CHECK(inspector.alarms()[0].where == "fc1.weight");
    CHECK(testing::has(inspector.alarms()[0].text, "bfloat16"));
  }
  SUBCASE("a bound of the scale, and skips in a row") {
    Training t({.init_scale = 0x1p60, .min_scale = 0x1p58});
    Inspector inspector(*t.model, t.scaler, {.alarms = {.skips_in_row = 4}});
    for (int i = 0; i < 6; ++i) {
      t.step();
      inspector.step();
    }
    REQUIRE(inspector.alarms().size() == 2);
    CHECK(inspector.alarms()[0].kind == Alarm::Kind::ScaleAtBound);
    CHECK(inspector.alarms()[0].step == 1);
    CHECK(inspector.alarms()[1].kind == Alarm::Kind::SkipsInRow);
    CHECK(inspector.alarms()[1].step == 3);
  }
  SUBCASE("a schedule that runs ahead of skips") {
    for (const bool careful : {false, true}) {
      Training t({.init_scale = 0x1p40});
      optim::StepLR schedule(t.optimizer, 1, 0.99);
      Inspector inspector(*t.model, t.scaler, {.every = 4, .optimizer = &t.optimizer});
      for (int i = 0; i < 40; ++i) {
        const amp::StepResult result = t.step();
        if (!careful || result.applied()) schedule.step();
        inspector.step();
      }
      const auto ahead = [](const Alarm& a) { return a.kind == Alarm::Kind::ScheduleAhead; };
      CHECK(std::count_if(inspector.alarms().begin(), inspector.alarms().end(), ahead) ==
            (careful ? 0 : 1));
    }
  }
}

TEST_CASE("without a scaler, and with several backward passes in a step") {
  Training t({.enabled = false}, 1, kBFloat16);
  Inspector inspector(*t.model, t.scaler, {.every = 1});
  for (int i = 0; i < 2; ++i) {
    t.optimizer.zero_grad();
    for (int micro = 0; micro < 3; ++micro) t.loss().backward();
    t.optimizer.step();
    inspector.step();
  }
  for (const amp::LedgerRow& row : inspector.rows()) {
    CHECK(row.scale == 1);
    if (inspector.places()[row.place].module == "fc2") CHECK(row.seen.total() == 3 * 24 * 32);
  }
  CHECK(count_of(inspector.places(), LedgerPlace::Kind::Parameter) == 6);
}

TEST_CASE("senseless options and closures are refused") {
  Training t;
  const auto made = [&](const amp::InspectorOptions& o) {
    return message([&] { const Inspector inspector(*t.model, t.scaler, o); });
  };
  CHECK(testing::has(made({.every = -1}), "Inspector: every -1"));
  CHECK(testing::has(made({.kept = 0}), "kept 0"));
  CHECK(testing::has(made({.alarms = {.lost = -1}}), "lost -1"));
  Inspector inspector(*t.model, t.scaler);
  CHECK(testing::has(made({}), "Inspector: this thread has a ValueWatcher already"));
  t.step();
  CHECK(testing::has(message([&] { inspector.step([] { return Tensor(); }); }),
                     "the closure must return the loss"));
  // The training goes on.
  CHECK(t.step().applied());
  inspector.step([&] { return t.loss(); });
}
