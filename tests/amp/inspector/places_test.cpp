// Where numbers are stored in programs of unusual shape: layers in one op, branches, parameters
// that are frozen, unused or empty. Each has its own place or none.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <algorithm>
#include <cmath>
#include <sstream>

using namespace halftape;
using amp::Inspector;
using amp::LedgerPlace;

namespace {

std::vector<std::string> texts_of(const std::vector<LedgerPlace>& places, LedgerPlace::Kind kind) {
  std::vector<std::string> all;
  for (const LedgerPlace& p : places) {
    std::ostringstream text;
    text << p;
    if (p.kind == kind) all.push_back(text.str());
  }
  return all;
}

bool one_of(const std::vector<std::string>& all, const std::string& text) {
  return std::count(all.begin(), all.end(), text) == 1;
}

/// The two halves of x; gives `unused` no gradient.
struct Halves : autograd::Function<Halves> {
  static constexpr const char* name = "halves";
  static autograd::variable_list forward(autograd::AutogradContext* context, const Tensor& x,
                                         const Tensor& unused) {
    (void)unused;
    context->set_materialize_grads(false);
    return {x.slice(0, 0, 2).clone(), x.slice(0, 2, 4).clone()};
  }
  static autograd::variable_list backward(autograd::AutogradContext*, autograd::variable_list g) {
    for (Tensor& half : g)
      if (!half.defined()) half = zeros({2});
    return {cat({g[0], g[1]}), {}};
  }
};

/// A model of which a part is frozen, a part is not used, and one parameter has no numbers.
struct PartsImpl : nn::Module {
  nn::Linear frozen = register_module("frozen", nn::Linear(3, 4)),
             used = register_module("used", nn::Linear(4, 2)),
             unused = register_module("unused", nn::Linear(2, 2));
  Tensor empty = register_parameter("empty", zeros({0})),
         constant = register_buffer("constant", ones({2}));
  PartsImpl() {
    for (const Tensor& p : frozen->parameters()) p.requires_grad_(false);
  }
  Tensor loss(const Tensor& x) {
    const amp::autocast region(kCPU, kFloat16);
    return used->forward(frozen->forward(x)).to(kFloat32).square().mean() + empty.sum();
  }
};
HALFTAPE_MODULE(Parts);

}  // namespace

TEST_CASE("the layers of an mlp in one op are known by their weights, if those are parameters") {
  const struct {
    const char* what;
    const char* first;  // the module of the first layer
  } rows[] = {{"parameters", "fc1"}, {"frozen", ""}, {"computed", ""}};
  for (const auto& row : rows) {
    CAPTURE(row.what);
    nn::Sequential model;
    nn::Linear stem(3, 4), fc1(4, 4), fc2(4, 2);
    model->push_back("stem", stem), model->push_back("fc1", fc1), model->push_back("fc2", fc2);
    amp::GradScaler scaler;
    Inspector inspector(*model, scaler);
    Tensor w = fc1->weight;
    if (row.what == std::string("frozen")) w = w.requires_grad_(false);
    if (row.what == std::string("computed")) w = w * 2;
    scaler.scale(mlp(stem->forward(ones({5, 3})), {w, fc2->weight}, {}).sum()).backward();
    inspector.step();
    const auto in = [](const std::string& module) { return module.empty() ? "" : " in " + module; };
    const auto values = texts_of(inspector.places(), LedgerPlace::Kind::Value),
               gradients = texts_of(inspector.places(), LedgerPlace::Kind::Gradient);
    CHECK(one_of(values, "linear" + in(row.first) + ", float32"));
    CHECK(one_of(values, "linear in fc2, float32"));
    CHECK(one_of(gradients, "gradient of linear in stem, by the rule of linear" + in(row.first) +
                                ", float32"));
    CHECK(one_of(gradients,
                 "gradient of linear" + in(row.first) + ", by the rule of linear in fc2, float32"));
  }
}

TEST_CASE("branches that alternate keep their places, and outputs of an op have one each") {
  nn::Sequential model;
  nn::Linear stem(4, 4), left(2, 1), right(2, 1);
  model->push_back("stem", stem), model->push_back("left", left), model->push_back("right", right);
  amp::GradScaler scaler;
  Inspector inspector(*model, scaler);
  const Tensor unused = ones({2}, requires_grad());
  for (const size_t branch : {0, 1, 0, 1, 1}) {
    const Tensor half = Halves::apply(stem->forward(ones({4})), unused)[branch];
    const Tensor four = cat({half, half, half, half}).reshape({4, 2});
    scaler.scale((branch ? right : left)->forward(four).sum()).backward();
    inspector.step();
  }
  int64_t of_output[2] = {0, 0}, by_head[2] = {0, 0};
  for (size_t i = 0; i < inspector.places().size(); ++i) {
    const LedgerPlace& p = inspector.places()[i];
    CHECK_FALSE(p.rule_module == "halves");
    if (p.kind == LedgerPlace::Kind::Sum && p.op == "halves")
      of_output[p.output] += inspector.totals()[i].total();
    if (p.kind == LedgerPlace::Kind::Gradient && p.rule == "linear")
      by_head[p.rule_module == "right"] += inspector.totals()[i].total();
  }
  CHECK(of_output[0] == 2 * 2);
  CHECK(of_output[1] == 3 * 2);
  CHECK(by_head[0] == 2 * 8);
  CHECK(by_head[1] == 3 * 8);
  CHECK_FALSE(unused.grad().defined());
}

TEST_CASE(
    "frozen, unused and empty parameters have no places, and disturb neither shadow nor replay") {
  manual_seed(1);
  Parts model;
  optim::SGD optimizer(model->parameters(), optim::SGDOptions(0.1));
  amp::GradScaler scaler;
  Inspector inspector(*model, scaler, {.every = 1, .shadow_every = 1});
  const Tensor x = randn({6, 3});
  const auto loss = [&] { return model->loss(x); };
  for (const bool overflows : {false, true}) {
    if (overflows) scaler.update(0x1p30);
    optimizer.zero_grad();
    scaler.scale(loss()).backward();
    CHECK(scaler.step(optimizer).found_inf() == overflows);
    scaler.update();
    inspector.step(loss);
    std::vector<std::string> names;
    for (const LedgerPlace& p : inspector.places())
      if (p.kind == LedgerPlace::Kind::Parameter) names.push_back(p.parameter);
    std::sort(names.begin(), names.end());
    CHECK(names == std::vector<std::string>{"used.bias", "used.weight"});
  }
  for (const amp::LedgerRow& row : inspector.rows()) {
    const bool parameter = inspector.places()[row.place].kind == LedgerPlace::Kind::Parameter;
    CHECK(row.error.has_value() == parameter);
    if (row.error && row.step == 0) CHECK(*row.error < 2e-3);
  }
  const auto overflow = inspector.last_overflow();
  REQUIRE(overflow);
  CHECK(overflow->largest_scale_that_passes.value() > 1);

  const amp::ScaleTrials trials = amp::try_scales(*model, loss, 0, 2);
  CHECK(trials.parameters == std::vector<std::string>{"empty", "used.weight", "used.bias",
                                                      "unused.weight", "unused.bias"});
  for (const amp::ScaleTrials::Trial& trial : trials.trials) {
    CHECK_FALSE(trial.overflows);
    CHECK(trial.errors[1] < 2e-3);
    CHECK(std::isnan(trial.errors[3]));
  }
  for (const amp::UsefulScales& s : amp::useful_scales(trials)) {
    CHECK(s.smallest == 1.0);
    CHECK(s.largest == 4.0);
  }
}

TEST_CASE("parameters whose names change are known by the new ones from the next step on") {
  nn::ModuleList layers(nn::Linear(2, 2), nn::Linear(2, 2));
  amp::GradScaler scaler({.enabled = false});
  Inspector inspector(*layers, scaler, {.values = false});
  const Tensor late = ones({2}).requires_grad_();
  const auto counted_in_a_step = [&] {
    const std::vector<amp::ClassCounts> before = inspector.totals();
    Tensor x = ones({1, 2}) * late;
    for (const auto& layer : *layers) x = layer->as<nn::Linear>()->forward(x);
    x.sum().backward();
    inspector.step();
    std::vector<std::string> parameters;
    for (size_t i = 0; i < inspector.totals().size(); ++i) {
      const amp::LedgerPlace& p = inspector.places()[i];
      if (p.kind == LedgerPlace::Kind::Parameter &&
          (i >= before.size() || inspector.totals()[i].total() > before[i].total()))
        parameters.push_back(p.parameter);
    }
    std::sort(parameters.begin(), parameters.end());
    return parameters;
  };
  using Names = std::vector<std::string>;
  const Names two{"", "0.bias", "0.weight", "1.bias", "1.weight"};
  CHECK(counted_in_a_step() == two);
  CHECK(counted_in_a_step() == two);
  layers->insert(0, nn::Linear(2, 2));  // the others are 1 and 2 now
  counted_in_a_step();                  // notices a parameter that it does not know
  const Names three{"", "0.bias", "0.weight", "1.bias", "1.weight", "2.bias", "2.weight"};
  CHECK(counted_in_a_step() == three);
  layers->register_parameter("late", late);
  counted_in_a_step();
  CHECK(counted_in_a_step().back() == "late");
  CHECK(counted_in_a_step().front() == "0.bias");
}

TEST_CASE("a step in which nothing is computed counts, and has no numbers") {
  const nn::Linear layer(2, 1);
  const amp::GradScaler scaler({.enabled = false});
  Inspector inspector(*layer, scaler);
  inspector.step();
  CHECK(inspector.steps() == 1);
  CHECK(inspector.places().empty());
  CHECK(inspector.totals().empty());
  CHECK_FALSE(inspector.last_overflow());
  // Nor have gradients of which all are 0 a share that is lost.
  amp::LedgerRow row;
  CHECK_FALSE(row.lost());
  row.shadow = amp::count_exponents(zeros({3}));
  CHECK_FALSE(row.lost());
  CHECK(amp::lost_share(3, *row.shadow) == 0);
}

TEST_CASE("trials of a loss that uses no parameter of the model overflow nowhere") {
  const nn::Linear layer(2, 1);
  const Tensor x = ones({}, requires_grad());
  const amp::ScaleTrials trials = amp::try_scales(
      *layer, [&] { return x * 1e30; }, 0, 100);
  CHECK(trials.places.empty());
  for (const amp::ScaleTrials::Trial& trial : trials.trials) {
    CHECK_FALSE(trial.overflows);
    CHECK(std::all_of(trial.errors.begin(), trial.errors.end(),
                      [](double e) { return std::isnan(e); }));
  }
}

TEST_CASE("a loss that takes another way the second time has no errors where the ways differ") {
  manual_seed(1);
  nn::Sequential model;
  nn::Linear stem(2, 2), left(2, 1), right(2, 1);
  model->push_back("stem", stem), model->push_back("left", left), model->push_back("right", right);
  int calls = 0;
  const auto loss = [&] {
    const Tensor h = stem->forward(ones({1, 2}));
    return (calls++ % 2 ? right : left)->forward(h).sum();
  };
  const amp::ScaleTrials trials = amp::try_scales(*model, loss, 0, 0);
  const std::vector<double>& errors = trials.trials[0].errors;
  REQUIRE(errors.size() == 6);
  CHECK(errors[0] > 0);  // the stem's, by another head
  for (size_t i = 2; i < 6; ++i) CHECK(std::isnan(errors[i]));
}

TEST_CASE("what a shadow has in 16 bits and the step had not is left out") {
  nn::Linear layer(3, 2);
  amp::GradScaler scaler;
  Inspector inspector(*layer, scaler, {.shadow_every = 1});
  const auto loss = [&](bool low) {
    const amp::autocast region(kCPU, kFloat16, low);
    return layer->forward(ones({4, 3})).to(kFloat32).square().sum() * 1e-3;
  };
  scaler.scale(loss(false)).backward();
  inspector.step([&] { return loss(true); });
  CHECK(inspector.rows().size() == 2);
  for (const amp::LedgerRow& row : inspector.rows())
    CHECK(inspector.places()[row.place].kind == LedgerPlace::Kind::Parameter);
}

TEST_CASE("a shadow is of as many numbers as it is compared with, in a recurrent layer, too") {
  nn::LSTM model(nn::LSTMOptions(6, 8).num_layers(2));
  optim::SGD optimizer(model->parameters(), optim::SGDOptions(0.1));
  amp::GradScaler scaler;
  Inspector inspector(*model, scaler, {.every = 1, .shadow_every = 1});
  const Tensor x = randn({5, 3, 6});
  const auto loss = [&] {
    const amp::autocast region(kCPU, kFloat16);
    return std::get<0>(model->forward(x)).square().mean();
  };
  scaler.scale(loss()).backward();
  scaler.step(optimizer);
  scaler.update();
  inspector.step(loss);
  for (const amp::LedgerRow& row : inspector.rows())
    if (row.shadow) CHECK(row.seen.total() == row.shadow->total());
}
