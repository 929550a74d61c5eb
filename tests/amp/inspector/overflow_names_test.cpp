// Which number of a skipped step the Inspector names, and what an overflow prints.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <limits>
#include <memory>
#include <sstream>
#include <thread>

#include "halftape/tests/support/message.h"
#include "halftape/tests/support/warnings.h"

using namespace halftape;
using amp::Inspector;
using amp::Overflow;

namespace {

/// A parameter, whose steps leave it as it is.
struct OneParameter {
  explicit OneParameter(const std::vector<double>& values)
      : x(model.register_parameter("x", tensor(values))) {}
  nn::Module model;
  Tensor x;
  optim::SGD optimizer{{x}, optim::SGDOptions(0.0)};
  amp::GradScaler scaler{{.init_scale = 1024}};
  void step(const Tensor& loss) {
    optimizer.zero_grad();
    scaler.scale(loss).backward();
    scaler.step(optimizer);
    scaler.update();
  }
};

}  // namespace

TEST_CASE("an overflow prints where it was, and as much as is known of it") {
  const auto printed = [](const Overflow& overflow) {
    std::ostringstream text;
    text << overflow;
    return text.str();
  };
  Overflow o;
  o.step = 7, o.scale = 1024, o.where = Overflow::Where::Loss;
  CHECK(printed(o) == "step 7, scale 1024: the loss is not finite");
  o.where = Overflow::Where::Unscale, o.parameter = "fc.weight";
  CHECK(printed(o) ==
        "step 7, scale 1024: a gradient is not finite once it is divided by the scale; parameter "
        "fc.weight");
  o.where = Overflow::Where::Forward, o.parameter = "", o.op = "log", o.nan = true;
  o.largest_scale_that_passes = 0;
  CHECK(printed(o) == "step 7, scale 1024: log gave a NaN in float32, forward; no scale passes");
  o.where = Overflow::Where::Backward, o.module = "head", o.dtype = kFloat16, o.nan = false;
  o.largest_scale_that_passes = 512;
  CHECK(printed(o) ==
        "step 7, scale 1024: log in head gave an infinity in float16, backward; passes at "
        "512");
  o.largest_scale_that_passes = 0x1p-30;
  CHECK(printed(o).ends_with("passes at 9.31323e-10"));
}

TEST_CASE("an infinity that a mask hides from the loss is named once a step without it passed") {
  // Where x is 0, log gives −inf, which the mask hides, and its rule 0 / 0, which no scale cures.
  for (const bool trained : {false, true}) {
    CAPTURE(trained);
    OneParameter t({2, 1});
    Inspector inspector(t.model, t.scaler);
    const auto loss = [&] { return where(t.x > 0, log(t.x), zeros({2})).sum(); };
    if (trained) {
      t.step(loss());
      inspector.step();
    }
    t.x.detach()[1].fill_(0);
    t.step(loss());
    inspector.step(loss);
    REQUIRE(inspector.overflows().size() == 1);
    const Overflow& o = inspector.overflows()[0];
    CHECK(o.op == "log");
    CHECK(o.where == (trained ? Overflow::Where::Forward : Overflow::Where::Backward));
    CHECK(o.nan == !trained);
    CHECK(o.parameter == "x");
    CHECK(o.largest_scale_that_passes == 0);
  }
}

TEST_CASE("an infinity that was there in steps that passed is not what made a gradient infinite") {
  OneParameter t({0, 1e-10, 0});
  Inspector inspector(t.model, t.scaler);
  const Tensor mask = tensor({0., 0., -std::numeric_limits<double>::infinity()}, kFloat32);
  const auto loss = [&] { return softmax(t.x * 1e10 + mask, -1).square().sum(); };
  t.step(loss());
  inspector.step();
  CHECK_FALSE(inspector.last_overflow());
  t.scaler.update(0x1p110);
  t.step(loss());
  inspector.step();
  const auto o = inspector.last_overflow();
  REQUIRE(o);
  CHECK(o->where == Overflow::Where::Backward);
  CHECK(o->op == "affine");  // x · 1e10
  CHECK(o->parameter == "x");
}

TEST_CASE("a skip that no recorded number explains has the parameter's name, if that is known") {
  const struct {
    const char* what;
    int known;  // of the optimizers below, to the Inspector
    const char* parameter;
  } rows[] = {{"the optimizer", 0, "bias"},
              {"an optimizer of less", 1, ""},
              {"an optimizer in another order", 2, ""},
              {"no optimizer", 3, ""}};
  for (const auto& row : rows) {
    CAPTURE(row.what);
    nn::Linear layer(2, 1);
    optim::SGD all(layer->parameters(), optim::SGDOptions(0.1)),
        less({layer->weight}, optim::SGDOptions(0.1)),
        other({layer->bias, layer->weight}, optim::SGDOptions(0.1));
    const optim::Optimizer* const optimizers[] = {&all, &less, &other, nullptr};
    amp::GradScaler scaler;
    Inspector inspector(*layer, scaler, {.optimizer = optimizers[row.known]});
    const auto step = [&](double data_loss) {
      all.zero_grad();
      scaler.scale(layer->forward(ones({1, 2})).sum() * 1e-3).backward();
      (void)scaler.scale(full({}, data_loss));  // has no history, and is no event
      CHECK(scaler.step(all).found_inf());
      scaler.update();
    };
    {
      const amp::Injection fault = amp::inject({.parameter = int64_t{1}});
      step(1);
    }
    inspector.step();
    REQUIRE(inspector.overflows().size() == 1);
    CHECK(inspector.overflows()[0].where == Overflow::Where::Unscale);
    CHECK(inspector.overflows()[0].parameter == row.parameter);
    step(std::nan(""));
    inspector.step();
    REQUIRE(inspector.overflows().size() == 2);
    CHECK(inspector.overflows()[1].where == Overflow::Where::Loss);
    CHECK(inspector.overflows()[1].parameter.empty());
  }
}

TEST_CASE("a skip after a scaler's state was loaded is noted, however many were before") {
  nn::Linear layer(2, 1);
  optim::SGD optimizer(layer->parameters(), optim::SGDOptions(0.1));
  amp::GradScaler scaler;
  Inspector inspector(*layer, scaler, {.optimizer = &optimizer});
  const auto earlier = scaler.state_dict();
  const auto skip = [&] {
    const amp::Injection fault = amp::inject({.parameter = int64_t{1}});
    optimizer.zero_grad();
    scaler.scale(layer->forward(ones({1, 2})).sum() * 1e-3).backward();
    CHECK(scaler.step(optimizer).found_inf());
    scaler.update();
    inspector.step();
  };
  for (int i = 0; i < 3; ++i) skip();
  CHECK(inspector.overflows().size() == 3);
  scaler.load_state_dict(earlier);
  skip();
  REQUIRE(inspector.overflows().size() == 4);
  CHECK(inspector.last_overflow()->where == Overflow::Where::Unscale);
}

TEST_CASE("a parameter that takes the place in memory of a replaced one has its own name") {
  nn::Sequential net{nn::Linear(4, 4), nn::Linear(4, 4)};
  amp::GradScaler scaler(amp::GradScalerOptions::fixed(1));
  Inspector inspector(*net, scaler, {.values = false});
  const auto step = [&](double weight) {
    const Tensor h = net[0]->as<nn::Linear>()->forward(ones({3, 4})) * 0 + 1e20;
    scaler.scale((net[1]->as<nn::Linear>()->forward(h) * weight).sum()).backward();
    inspector.step();
  };
  step(1);
  for (const char* name : {"0", "1"}) net->replace_module(name, nn::Linear(4, 4));
  for (const Tensor& p : net->parameters()) p.detach().zero_();
  step(1e20);  // the gradients of 1.weight are 3e40, those of 1.bias 3e20
  REQUIRE(inspector.overflows().size() == 1);
  CHECK(inspector.overflows()[0].parameter == "1.weight");
}

TEST_CASE("a skip before the last update of a step of the inspector is not that update's") {
  OneParameter t({1, 2});
  Inspector inspector(t.model, t.scaler);
  {
    const amp::Injection fault = amp::inject({});
    t.step(t.x.sum());
  }
  t.step(t.x.sum());
  inspector.step();
  CHECK(t.scaler.stats().skips == 1);
  CHECK(inspector.overflows().empty());
}

TEST_CASE("of 1003 skipped steps the last 1000 are kept") {
  const testing::Warnings warnings;
  OneParameter t({1});
  Inspector inspector(t.model, t.scaler, {.every = 0});
  for (int i = 0; i < 1003; ++i) {
    t.step(t.x.sum() * std::numeric_limits<double>::infinity());
    inspector.step();
  }
  CHECK(inspector.steps() == 1003);
  REQUIRE(inspector.overflows().size() == 1000);
  CHECK(inspector.overflows().front().step == 3);
  CHECK(inspector.overflows().back().step == 1002);
}

TEST_CASE("without values a bad loss is still named, and nothing else of forward is counted") {
  OneParameter t({1});
  Inspector inspector(t.model, t.scaler, {.values = false});
  t.step(exp(t.x * 1000).sum());
  inspector.step();
  const auto o = inspector.last_overflow();
  REQUIRE(o);
  CHECK(o->where == Overflow::Where::Forward);
  CHECK(o->op == "scale");
  for (const amp::LedgerPlace& p : inspector.places())
    CHECK((p.kind != amp::LedgerPlace::Kind::Value || p.op == "scale"));
}

TEST_CASE("the step is computed again only where the options ask for it") {
  for (const bool asked : {false, true}) {
    OneParameter t({1});
    Inspector inspector(t.model, t.scaler, {.shadow_every = asked ? 1 : 0, .replay = asked});
    int calls = 0;
    const auto loss = [&] { return ++calls, t.x.sum() * 1e10; };
    t.scaler.update(0x1p126);
    t.step(loss());
    calls = 0;
    inspector.step(loss);
    const auto o = inspector.last_overflow();
    REQUIRE(o);
    CHECK(o->largest_scale_that_passes.has_value() == asked);
    CHECK(calls == (asked ? 3 : 0));  // twice for the shadow, once for the scale
  }
}

TEST_CASE(
    "a scale that passes is one that was tried, though forward has gradients ready for another") {
  nn::FusedMLP model((manual_seed(0), nn::FusedMLPOptions(4, 16, 2, 3)));
  optim::SGD optimizer(model->parameters(), optim::SGDOptions(0.0));
  const Tensor x = randn({1, 4}), y = zeros({1}, kInt64);
  for (const bool ready : {false, true}) {
    CAPTURE(ready);
    amp::GradScaler scaler({.init_scale = 0x1p20, .warn_after_skips = 0});
    Inspector inspector(*model, scaler, {.every = 0, .shadow_every = 0});
    const auto loss = [&] {
      const amp::autocast region(kCPU, kFloat16);
      return model->loss(x, y, ready ? scaler.factor() : Tensor());
    };
    bool applied = false;
    while (!applied) {
      optimizer.zero_grad();
      scaler.scale(loss()).backward();
      applied = scaler.step(optimizer).applied();
      scaler.update();
      inspector.step(loss);
    }
    REQUIRE(inspector.overflows().size() > 1);
    for (const Overflow& o : inspector.overflows())
      CHECK(o.largest_scale_that_passes == scaler.get_scale());
  }
}

TEST_CASE("of skips that no recorded number explains the last 1000 are kept, too") {
  const testing::Warnings warnings;
  OneParameter t({1});
  Inspector inspector(t.model, t.scaler, {.every = 0});
  for (int i = 0; i < 1003; ++i) {
    (void)t.scaler.scale(full({}, std::numeric_limits<double>::quiet_NaN()));  // a second loss
    t.step(t.x.sum());
    inspector.step();
  }
  CHECK(inspector.overflows().size() == 1000);
}

TEST_CASE("a model that is frozen as a whole has nothing to try, and is looked at all the same") {
  OneParameter t({1});
  t.x.requires_grad_(false);
  const Tensor in = ones({1}).requires_grad_();
  CHECK_THROWS_WITH_AS(amp::try_scales(t.model, [&] { return (in * t.x).sum(); }),
                       doctest::Contains("no parameter of the model requires grad"), Error);
  // A head that is not the model's trains on; its steps are counted, and not computed again.
  optim::SGD head({in}, optim::SGDOptions(0.0));
  Inspector inspector(t.model, t.scaler, {.shadow_every = 1});
  for (const double weight : {1., 1e38}) {
    head.zero_grad();
    t.scaler.scale((in * t.x).sum() * weight).backward();
    t.scaler.step(head);
    t.scaler.update();
    inspector.step([&]() -> Tensor { halftape::detail::fail("was called"); });
    REQUIRE(inspector.overflows().size() == (weight == 1 ? 0 : 1));
  }
  CHECK_FALSE(inspector.overflows()[0].largest_scale_that_passes);
}

TEST_CASE("an inspector says that its optimizer is gone, and ends in another thread without harm") {
  OneParameter t({1});
  auto optimizer = std::make_unique<optim::SGD>(std::vector<Tensor>{t.x}, optim::SGDOptions(0.1));
  Inspector inspector(t.model, t.scaler, {.every = 0, .optimizer = optimizer.get()});
  inspector.step();
  optimizer.reset();
  CHECK_THROWS_WITH_AS(inspector.step(), doctest::Contains("InspectorOptions::optimizer is gone"),
                       Error);
  const testing::Warnings warnings;
  std::thread([] {
    auto own = std::make_unique<OneParameter>(std::vector<double>{1});
    auto here = std::make_unique<Inspector>(own->model, own->scaler);
    own->step(own->x.sum());
    std::thread([&] { here.reset(); }).join();
    own.reset();
    OneParameter other({1});  // what this thread computes from now on is not looked at
    other.step(other.x.sum());
  }).join();
  REQUIRE(warnings.seen.size() == 1);
  CHECK(testing::has(warnings.seen[0], "destroyed in another thread"));
}
