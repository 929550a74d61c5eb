// Alarms at their thresholds: what raises one, what does not, and what the advice depends on.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <limits>
#include <sstream>

#include "halftape/tests/support/message.h"

using namespace halftape;
using amp::Alarm;
using amp::Inspector;
using testing::has;

namespace {

constexpr auto silent = [](const Alarm&) {};

/// Two layers in float16, the first of which is used twice: a sum of gradients arrives there.
struct Residual {
  explicit Residual(double weight_of_loss, amp::GradScalerOptions options = {.enabled = false})
      : weight(weight_of_loss), scaler(options) {
    model->push_back("fc1", fc1), model->push_back("fc2", fc2);
  }
  double weight;
  nn::Linear fc1 = (manual_seed(3), nn::Linear(8, 16)), fc2{16, 4};
  nn::Sequential model;
  amp::GradScaler scaler;
  Tensor x = randn({32, 8}), y = randint(4, {32});
  Tensor loss() {
    const amp::autocast region(kCPU, kFloat16);
    const Tensor h = fc1->forward(x);
    return cross_entropy(fc2->forward(h + tanh(h)), y) * weight;
  }
  /// The alarms of two steps, at the first of which there is a shadow.
  std::vector<Alarm> alarms(amp::AlarmOptions options) {
    options.report = silent;
    Inspector inspector(*model, scaler, {.every = 1, .shadow_every = 2, .alarms = options});
    for (int i = 0; i < 2; ++i) {
      scaler.scale(loss()).backward();
      inspector.step([&] { return loss(); });
    }
    return inspector.alarms();
  }
};

/// Options without a learning rate, which the optimizers of a user may have.
struct RateOptions : optim::OptimizerCloneableOptions<RateOptions> {
  bool named = true;
  double rate = 0.1;

 private:
  void fields(optim::StateFields& f) override {
    if (named) f.add("rate", rate);
  }
};
struct ByRate : optim::Optimizer {
  ByRate(const TensorList& parameters, const RateOptions& options)
      : Optimizer({optim::OptimizerParamGroup(parameters)},
                  std::make_unique<RateOptions>(options)) {}

 private:
  void update(const optim::OptimizerOptions&, const TensorList&, const StepControl&) override {}
};

}  // namespace

TEST_CASE("gradients that float16 loses altogether are lost, and not dead as well") {
  Residual r(1e-10);
  const std::vector<Alarm> alarms = r.alarms({});  // none of what has no parameters: h + tanh(h)
  REQUIRE(alarms.size() == 2);
  for (const Alarm& a : alarms) {
    CHECK(a.kind == Alarm::Kind::Lost);
    CHECK(a.step == 0);
    CHECK(a.value == 1);  // all of the weight gradient is missing
    CHECK(has(a.text, "100 % of the gradients that arrive here become 0 in 16 bits"));
    CHECK(has(a.text, "scale the loss with a GradScaler"));
  }
}

TEST_CASE("a layer whose gradient repeats one number in float32 alone has a shadow") {
  nn::Sequential model(nn::Linear(8, 16));
  const Tensor x = randn({32, 8});
  const std::function<Tensor()> ends[] = {
      [&] { return model->forward(x).mean() * 1e-7; },
      [&] { return model->forward(x).to(kFloat32).sum() * 1e-10; },
      [&] { return model->forward(x).sum() * 1e-10; }};
  for (const auto& end : ends) {
    const auto loss = [&] {
      const amp::autocast region(kCPU, kFloat16);
      return end();
    };
    amp::GradScaler off({.enabled = false});
    Inspector inspector(*model, off, {.every = 1, .shadow_every = 2, .alarms = {.report = silent}});
    for (int i = 0; i < 2; ++i) {
      loss().backward();
      inspector.step(loss);
    }
    REQUIRE(inspector.alarms().size() == 1);
    CHECK(inspector.alarms()[0].kind == Alarm::Kind::Lost);
    const amp::ScaleTrials trials = amp::try_scales(*model, loss, 0, 0);
    REQUIRE(trials.places.size() == 1);
    CHECK(trials.float32[0].total() == 32 * 16);
  }
}

TEST_CASE("both thresholds count, and shares below a tenth are printed with two digits") {
  Residual r(1e-3);
  const std::vector<Alarm> alarms = r.alarms({.lost = 1e-4, .error = 1e-5});
  REQUIRE(!alarms.empty());
  CHECK(alarms[0].kind == Alarm::Kind::Lost);
  CHECK(alarms[0].value > 0);
  CHECK(alarms[0].value < 0.1);
  std::ostringstream off;
  off.precision(2);
  off << "off by " << 100 * alarms[0].value << " %";
  CHECK(has(alarms[0].text, off.str()));
  CHECK(r.alarms({.lost = 1e-4, .error = 0.5}).empty());
  CHECK(r.alarms({.lost = 0.9, .error = 1e-5}).empty());
}

TEST_CASE("a scale that stands at max_scale is told apart from one at min_scale") {
  const struct {
    amp::GradScalerOptions options;
    double weight;  // of the loss
    double scale;
    const char* text;  // null: no alarm
  } rows[] = {
      {{.init_scale = 1024, .growth_interval = 1, .max_scale = 2048},
       1,
       2048,
       "the scale stands at max_scale, 2048; it would grow further: raise max_scale, unless the "
       "bound is meant"},
      {{.init_scale = 2048, .min_scale = 1024},
       1e36,
       1024,
       "the scale stands at min_scale, 1024; if gradients overflow even there, look for a learning "
       "rate that is too high, or lower min_scale"},
      {{.init_scale = 1024, .min_scale = 1024}, 1, 1024, nullptr},
      {amp::GradScalerOptions::fixed(1024), 1, 1024, nullptr},
      {{.init_scale = 1024}, 1, 1024, nullptr}};
  for (const auto& row : rows) {
    CAPTURE(row.text);
    nn::Linear layer(2, 1);
    optim::SGD optimizer(layer->parameters(), optim::SGDOptions(0.1));
    amp::GradScaler scaler(row.options);
    std::vector<Alarm> reported;
    Inspector inspector(
        *layer, scaler,
        {.every = 1, .alarms = {.report = [&reported](const Alarm& a) { reported.push_back(a); }}});
    for (int i = 0; i < 4; ++i) {
      optimizer.zero_grad();
      scaler.scale(layer->forward(ones({1, 2})).sum() * row.weight).backward();
      scaler.step(optimizer);
      scaler.update();
      inspector.step();
    }
    CHECK(scaler.get_scale() == row.scale);
    REQUIRE(reported.size() == (row.text ? 1 : 0));
    if (!row.text) continue;
    CHECK(reported[0].kind == Alarm::Kind::ScaleAtBound);
    CHECK(reported[0].value == row.scale);
    CHECK(reported[0].text == row.text);
  }
}

TEST_CASE("a 16-bit parameter that moves, changes its dtype or has no numbers is not stagnant") {
  for (const bool converted : {false, true}) {
    CAPTURE(converted);
    nn::Linear layer(4, 2);
    nn::Sequential model{layer};
    const Tensor empty = model->register_parameter("empty", zeros({0}));
    if (!converted) model->to(kBFloat16);
    optim::SGD optimizer(model->parameters(), optim::SGDOptions(converted ? 0.0 : 1.0));
    const amp::GradScaler scaler({.enabled = false});
    Inspector inspector(*model, scaler, {.alarms = {.report = silent}});
    (layer->forward(ones({3, 4}, layer->weight.dtype())).sum() + empty.sum()).backward();
    optimizer.step();
    if (converted) model->to(kBFloat16);
    inspector.step();
    CHECK(inspector.alarms().empty());
  }
}

TEST_CASE("an optimizer that keeps more than 16 bits, and elements without gradients, raise none") {
  for (const optim::Weights weights :
       {optim::Weights::Plain, optim::Weights::Master, optim::Weights::Kahan}) {
    const bool plain = weights == optim::Weights::Plain;
    nn::Linear model(16, 16);
    model->to(kBFloat16);
    optim::SGD optimizer(model->parameters(), optim::SGDOptions(1e-5).weights(weights));
    const amp::GradScaler scaler({.enabled = false});
    for (const bool told : {true, false}) {
      Inspector inspector(
          *model, scaler,
          {.every = 1, .optimizer = told ? &optimizer : nullptr, .alarms = {.report = silent}});
      optimizer.zero_grad();
      model->forward(ones({4, 16}, kBFloat16)).to(kFloat32).sum().backward();
      optimizer.step();
      inspector.step();
      REQUIRE(inspector.alarms().size() == (told && !plain ? 0 : 2));
      for (const Alarm& alarm : inspector.alarms()) {
        CHECK(alarm.kind == Alarm::Kind::Stagnant);
        CHECK(has(alarm.text, "unless the optimizer does") == !told);
      }
    }
  }
  // One row of ten is looked up, and moves.
  nn::Embedding table(10, 4);
  table->to(kBFloat16);
  optim::SGD optimizer(table->parameters(), optim::SGDOptions(1));
  const amp::GradScaler scaler({.enabled = false});
  Inspector inspector(*table, scaler, {.every = 1, .alarms = {.report = silent}});
  table->forward(full({1}, 3, kInt64)).to(kFloat32).sum().backward();
  optimizer.step();
  inspector.step();
  CHECK(inspector.alarms().empty());
}

TEST_CASE("an optimizer without groups or without options has no schedule that could run ahead") {
  for (const bool without_groups : {false, true}) {
    nn::Linear layer(2, 1);
    optim::SGD optimizer(layer->parameters(), optim::SGDOptions(0.1));
    if (without_groups)
      optimizer.param_groups().clear();
    else
      optimizer.param_groups()[0].set_options(nullptr);
    amp::GradScaler scaler;
    Inspector inspector(*layer, scaler,
                        {.every = 1, .optimizer = &optimizer, .alarms = {.report = silent}});
    for (int i = 0; i < 3; ++i) {
      scaler.scale(layer->forward(ones({1, 2})).sum()).backward();
      inspector.step();
    }
    CHECK(inspector.alarms().empty());
  }
}

TEST_CASE("an optimizer that tells neither its learning rate nor its rule has no schedule either") {
  for (const bool named : {true, false}) {
    CAPTURE(named);
    nn::Linear layer(2, 1);
    layer->to(kBFloat16);
    RateOptions options;
    options.named = named;
    ByRate optimizer(layer->parameters(), options);
    amp::GradScaler scaler;
    Inspector inspector(*layer, scaler,
                        {.every = 1, .optimizer = &optimizer, .alarms = {.report = silent}});
    scaler.scale(layer->forward(ones({1, 2}, kBFloat16)).to(kFloat32).sum()).backward();
    inspector.step();
    REQUIRE(inspector.alarms().size() == 2);  // as of any 16-bit weights that stay as they are
    for (const Alarm& alarm : inspector.alarms()) CHECK(alarm.kind == Alarm::Kind::Stagnant);
  }
}

TEST_CASE("a schedule is compared with the updates since a scaler's state was loaded") {
  for (const bool skips : {true, false}) {
    CAPTURE(skips);
    nn::Linear layer(2, 1);
    optim::SGD optimizer(layer->parameters(), optim::SGDOptions(0.1));
    const auto step = [&](amp::GradScaler& scaler, double x) {
      optimizer.zero_grad();
      scaler.scale(layer->forward(full({1, 2}, x)).sum()).backward();
      scaler.step(optimizer);
      scaler.update();
    };
    amp::GradScaler used, fresh;
    for (int i = 0; i < 20; ++i) step(used, 1);
    amp::GradScaler::StateDict state = used.state_dict(), of_torch;
    for (const char* name :
         {"scale", "growth_factor", "backoff_factor", "growth_interval", "_growth_tracker"})
      of_torch[name] = state[name];
    // 20 updates come with the state, or 20 are forgotten; neither are of the steps below.
    amp::GradScaler& scaler = skips ? fresh : used;
    Inspector inspector(*layer, scaler,
                        {.every = 1, .optimizer = &optimizer, .alarms = {.report = silent}});
    scaler.load_state_dict(skips ? state : of_torch);
    for (int i = 1; i <= 5; ++i) {
      step(scaler, skips ? std::numeric_limits<double>::infinity() : 1);
      optimizer.param_groups()[0].options().set_lr(0.1 / (1 + i));
      inspector.step();
    }
    REQUIRE(inspector.alarms().size() == (skips ? 1 : 0));
    if (skips) CHECK(inspector.alarms()[0].kind == Alarm::Kind::ScheduleAhead);
    if (skips) CHECK(has(inspector.alarms()[0].text, "moved 2 times, the parameters 0 times"));
  }
}
