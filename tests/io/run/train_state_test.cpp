// A run that is stopped after any step and resumed from its file in new objects is the run that was
// not stopped.
#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <optional>

#include <halftape/halftape.h>

#include "halftape/tests/support/message.h"
#include "halftape/tests/support/temp_folder.h"

using namespace halftape;
using testing::has;
using testing::message;
using testing::read_bytes;
using testing::TempFolder;

namespace {

constexpr int64_t kSteps = 12;

using MakeOptimizer = std::function<std::unique_ptr<optim::Optimizer>(const std::vector<Tensor>&)>;
template <class O, class Options>
MakeOptimizer make(Options options) {
  return [=](const std::vector<Tensor>& parameters) {
    return std::make_unique<O>(parameters, options);
  };
}

struct Setup {
  const char* name;
  MakeOptimizer optimizer;
  std::optional<Dtype> autocast = {};
  Dtype weights = kFloat32;
};
std::vector<Setup> setups() {
  using optim::AdamWOptions, optim::SGDOptions;
  return {{"SGD", make<optim::SGD>(SGDOptions(0.1).momentum(0.9).weight_decay(0.01))},
          {"Adam", make<optim::Adam>(optim::AdamOptions(0.01).amsgrad(true))},
          {"AdamW", make<optim::AdamW>(AdamWOptions(0.01))},
          {"SGD in float16", make<optim::SGD>(SGDOptions(0.1).momentum(0.9)), kFloat16},
          {"AdamW in float16", make<optim::AdamW>(AdamWOptions(0.01)), kFloat16},
          {"AdamW in bfloat16", make<optim::AdamW>(AdamWOptions(0.01)), kBFloat16},
          {"AdamW with stochastic rounding of bfloat16 weights",
           make<optim::AdamW>(AdamWOptions(AdamWOptions(0.01).weights(Weights::Stochastic))),
           {},
           kBFloat16},
          {"SGD with masters of bfloat16 weights",
           make<optim::SGD>(SGDOptions(0.1).momentum(0.9).weights(Weights::Master)),
           {},
           kBFloat16}};
}

/// A model with dropout, a learning rate that falls, and data drawn from a generator of its own.
class SetupRun {
 public:
  explicit SetupRun(const Setup& setup) : setup_(setup) {
    const bool torchs = cpu_random_engine() == RandomEngine::Mt19937;
    if (torchs && get_default_device() == Device(kCPU)) data_.mt19937.emplace(77);
    model_->to(get_default_device(), setup.weights);
    optimizer_ = setup.optimizer(model_->parameters());
    state_.add("model", model_);
    state_.add("optimizer", *optimizer_);
    state_.add("scaler", scaler_);
    state_.add("data", data_);
    state_.add_numbers(
        "schedule",
        [this] {
          return TrainState::Numbers{{"rate", rate_}};
        },
        [this](const TrainState::Numbers& saved) { rate_ = saved.at("rate"); });
  }
  void steps(int64_t to) {
    for (; state_.step < to; ++state_.step) step();
  }
  TrainState& state() { return state_; }
  nn::Sequential& model() { return model_; }
  optim::Optimizer& optimizer() { return *optimizer_; }

 private:
  void step() {
    model_->train();
    // The position in the data alone decides the batch; dropout draws from the default stream.
    const Generator dropout = get_generator(get_default_device());
    set_generator(data_, get_default_device());
    const Tensor x = randn({4, 5}, setup_.weights), y = randn({4, 2}, setup_.weights);
    data_ = get_generator(get_default_device());
    set_generator(dropout, get_default_device());
    optimizer_->zero_grad();
    Tensor loss;
    {
      const amp::autocast region(get_default_device().type(), setup_.autocast.value_or(kBFloat16),
                                 setup_.autocast.has_value());
      loss = mse_loss(model_->forward(x), y);
    }
    const bool overflow = setup_.autocast == kFloat16 && state_.step % 5 == 3;
    if (setup_.autocast == kFloat16) {
      scaler_.scale(overflow ? loss * std::numeric_limits<double>::infinity() : loss).backward();
      scaler_.step(*optimizer_);
      scaler_.update();
    } else {
      loss.backward();
      optimizer_->step();
    }
    rate_ *= 0.97;
    for (auto& group : optimizer_->param_groups()) group.options().set_lr(rate_);
  }

  Setup setup_;
  nn::Sequential model_{nn::Linear(5, 8), nn::Tanh(), nn::Dropout(0.3), nn::Linear(8, 2)};
  std::unique_ptr<optim::Optimizer> optimizer_;
  amp::GradScaler scaler_{{.init_scale = 1024, .growth_interval = 3}};
  Generator data_{.seed = 77};
  double rate_ = 0.05;
  TrainState state_;
};

std::string saved_bytes(SetupRun& run, const TempFolder& folder) {
  run.state().save(folder / "compare");
  return read_bytes(folder / "compare");
}

}  // namespace

namespace {
void check_resumes(const Setup& setup, const TempFolder& folder) {
  CAPTURE(setup.name);
  manual_seed(3);
  SetupRun whole(setup);
  for (int64_t stop = 0; stop <= kSteps; ++stop) {
    whole.steps(stop);
    whole.state().save(folder / std::to_string(stop));
  }
  const std::string end = read_bytes(folder / std::to_string(kSteps));
  for (int64_t stop = 0; stop < kSteps; ++stop) {
    CAPTURE(stop);
    manual_seed(static_cast<uint64_t>(1000 + stop));
    SetupRun resumed(setup);  // other weights, another seed
    resumed.steps(2);         // and a state that must go
    resumed.state().load(folder / std::to_string(stop));
    CHECK(resumed.state().step == stop);
    CHECK(saved_bytes(resumed, folder) == read_bytes(folder / std::to_string(stop)));
    resumed.steps(kSteps);
    CHECK(saved_bytes(resumed, folder) == end);
  }
}

/// PyTorch's random numbers on the CPU, for its lifetime.
struct TorchNumbers {
  RandomState before = get_random_state();
  TorchNumbers() { set_cpu_random_engine(RandomEngine::Mt19937); }
  ~TorchNumbers() { set_random_state(before); }
};
}  // namespace

TEST_CASE("resuming from the file of any step gives the bytes of the run that never stopped") {
  TempFolder folder;
  for (const Setup& setup : setups()) check_resumes(setup, folder);
}

TEST_CASE("so does a run that draws PyTorch's numbers") {
  TempFolder folder;
  const TorchNumbers on;
  check_resumes(setups()[1], folder);
}

TEST_CASE("a file brings the engine back, and the normal number that waits") {
  TempFolder folder;
  const TorchNumbers on;
  const TensorOptions o = TensorOptions(kFloat64).device(kCPU);
  Generator own{.seed = 9};
  own.mt19937.emplace(9).normal();
  TrainState state;
  state.add("own", own);
  manual_seed(6);
  state.save(folder / "no number drawn");
  randn({3}, o);
  state.save(folder / "one waits");
  const std::vector<double> expected = randn({4}, o).to_vector();
  const double expected_own = own.mt19937->normal();
  set_cpu_random_engine(RandomEngine::Philox);
  CHECK(randn({4}, o).to_vector() != expected);
  state.load(folder / "one waits");
  CHECK(cpu_random_engine() == RandomEngine::Mt19937);
  CHECK(randn({4}, o).to_vector() == expected);
  CHECK(own.mt19937->normal() == expected_own);
  set_cpu_random_engine(RandomEngine::Philox);
  state.load(folder / "no number drawn");
  randn({3}, o);
  CHECK(randn({4}, o).to_vector() == expected);
}

TEST_CASE("a checkpoint is a safetensors file under the model's names") {
  TempFolder folder;
  manual_seed(1);
  SetupRun run(setups()[2]);
  run.steps(2);
  run.state().save(folder / "x");
  const safetensors::Contents file = safetensors::read_file(folder / "x");
  for (const char* name : {"model.0.weight", "model.3.bias", "optimizer.model.0.weight.exp_avg",
                           "optimizer.model.3.bias.step"})
    CHECK_MESSAGE(file.tensors.contains(name), name);
  CHECK(file.metadata.at("run.step") == "2");
  CHECK(file.metadata.at("scaler.scale") == "1024");
  CHECK(file.metadata.at("optimizer.group0.weight_decay") == "0.01");
  CHECK(file.metadata.at("run.part.scaler") == "numbers");
  CHECK(has(file.metadata.at("run.random." + get_default_device().str()), "1 "));
}

TEST_CASE("an optimizer's state goes by name, whatever the order of its parameters") {
  TempFolder folder;
  nn::Sequential a(nn::Linear(2, 2), nn::Linear(2, 2)), b(nn::Linear(2, 2), nn::Linear(2, 2));
  std::vector<Tensor> backwards = b->parameters();
  std::reverse(backwards.begin(), backwards.end());
  optim::Adam one(a->parameters()), two(backwards);
  TrainState saving, loading;
  saving.add("m", a);
  saving.add("o", one);
  loading.add("o", two);  // and whatever the order of the parts
  loading.add("m", b);
  a->forward(a->forward(ones({1, 2}))).sum().backward();
  one.step();
  saving.save(folder / "x");
  loading.load(folder / "x");
  for (size_t i = 0; i < 4; ++i)
    CHECK(Tensor(one.state_of(a->parameters()[i]).at("exp_avg"))
              .equal(Tensor(two.state_of(b->parameters()[i]).at("exp_avg"))));
}

namespace {

/// The parts of a SetupRun, which a case adds to a TrainState in its own way.
struct Parts {
  nn::Sequential model{nn::Linear(5, 8), nn::Tanh(), nn::Dropout(0.3), nn::Linear(8, 2)};
  optim::Adam optimizer{model->parameters(), optim::AdamOptions(0.01).amsgrad(true)};
  amp::GradScaler scaler;
  Generator data;
  TrainState::Numbers schedule;

  void add_all(TrainState& s) { add_all(s, model, optimizer); }
  void add_all(TrainState& s, nn::Sequential& m, optim::Optimizer& o) {
    s.add("model", m);
    s.add("optimizer", o);
    s.add("scaler", scaler);
    s.add("data", data);
    s.add_numbers(
        "schedule", [this] { return schedule; },
        [this](const TrainState::Numbers& saved) { schedule = saved; });
  }
};

void save_run(const std::filesystem::path& path) {
  manual_seed(1);
  SetupRun run(setups()[1]);
  run.steps(3);
  run.state().save(path);
}

/// The error of loading a SetupRun's checkpoint into the parts that `add` has added; nothing
/// changes.
std::string refusal(const std::function<void(TrainState&, Parts&)>& add) {
  TempFolder folder;
  save_run(folder / "x");
  Parts parts;
  TrainState other;
  other.step = 5;
  add(other, parts);
  other.save(folder / "before");
  const std::string text = message([&] { other.load(folder / "x"); });
  other.save(folder / "after");
  CHECK(read_bytes(folder / "before") == read_bytes(folder / "after"));
  return text;
}

}  // namespace

TEST_CASE("a checkpoint that fits is loaded") {
  TempFolder folder;
  save_run(folder / "x");
  Parts parts;
  TrainState right;
  parts.add_all(right);
  right.load(folder / "x");
  CHECK(right.step == 3);
  CHECK(parts.schedule.size() == 1);
}

TEST_CASE("missing parts, surplus parts and parts of another kind are listed") {
  std::string text = refusal([](TrainState& s, Parts& p) {
    s.add("model", p.model);
    s.add("other", p.optimizer);
  });
  for (const char* line : {"expected the part \"other\", found none of that name",
                           "expected no part \"optimizer\", found one of the kind optimizer",
                           "expected no part \"scaler\", found one of the kind numbers"})
    CHECK_MESSAGE(has(text, line), text);
  text = refusal([](TrainState& s, Parts& p) {
    s.add("model", p.model);
    s.add("optimizer", p.optimizer);
    s.add("scaler", p.scaler);
    s.add("schedule", p.data);
    s.add("data", p.optimizer);
  });
  CHECK(has(text, "expected the part \"schedule\" to be of the kind text, found numbers"));
}

TEST_CASE("another model, and an optimizer with other parameters and groups, are listed") {
  nn::Sequential model(nn::Linear(5, 8), nn::Tanh(), nn::Dropout(0.3), nn::Linear(8, 3));
  optim::Adam optimizer({optim::OptimizerParamGroup({model->parameters()[0]}),
                         optim::OptimizerParamGroup({model->parameters()[1]})});
  const std::string text =
      refusal([&](TrainState& s, Parts& p) { p.add_all(s, model, optimizer); });
  for (const char* line :
       {"\"model.3.weight\": expected float32 [3, 8], found float32 [2, 8]",
        "\"optimizer\": expected the parameter \"model.0.bias\" in group 1, found it in group 0",
        "\"optimizer\": expected no parameter \"model.3.bias\", found one"})
    CHECK_MESSAGE(has(text, line), text);
}

TEST_CASE("when a part refuses its state, the parts before it get theirs back") {
  std::string text = refusal([](TrainState& s, Parts& p) {
    s.add("model", p.model);
    s.add("optimizer", p.optimizer);
    s.add("scaler", p.scaler);
    s.add("data", p.data);
    s.add_numbers(
        "schedule", [&p] { return p.schedule; },
        [](const TrainState::Numbers&) { throw std::runtime_error("no such schedule"); });
  });
  CHECK(has(text, "\"schedule\" refuses its state, and nothing was changed: no such schedule"));
  std::optional<optim::SGD> sgd;
  text = refusal([&](TrainState& s, Parts& p) {
    p.add_all(s, p.model, sgd.emplace(p.model->parameters(), optim::SGDOptions(0.1)));
  });
  CHECK_MESSAGE(has(text, "\"optimizer\" refuses its state, and nothing was changed: "), text);
}

TEST_CASE("when a module cannot take its values, it and the parts before it get theirs back") {
  const std::string text = refusal([](TrainState& s, Parts& p) {
    p.add_all(s);
    p.model->parameters()[3].set_data(ones({1}).expand({2}));  // two elements that are one
  });
  CHECK_MESSAGE(has(text, "several elements are one place in memory"), text);
}

TEST_CASE("a part's name must be new and without dots, and an optimizer needs its module") {
  TempFolder folder;
  TrainState state;
  nn::Linear model(2, 2);
  Generator generator;
  for (const char* name : {"", "a.b", "run", "halftape", "\xff"})
    CHECK(has(message([&] { state.add(name, generator); }), "cannot be called"));
  state.add("a", generator);
  CHECK(has(message([&] { state.add("a", model); }), "is taken"));
  optim::SGD optimizer(model->parameters(), optim::SGDOptions(0.1));
  state.add("sgd", optimizer);
  CHECK(has(message([&] { state.save(folder / "x"); }), "add its module, too"));
  CHECK(!std::filesystem::exists(folder / "x"));
}

TEST_CASE("numbers keep all their bits, also those that are not finite, and text its bytes") {
  TempFolder folder;
  TrainState::Numbers numbers = {{"a", 0.1},
                                 {"b", -0.0},
                                 {"c", 5e-324},
                                 {"d", 1.7976931348623157e308},
                                 {"e", -std::numeric_limits<double>::infinity()},
                                 {"f.g\n", 1.0 / 3},
                                 {"nan", std::numeric_limits<double>::quiet_NaN()}};
  TrainState::Text text = {{"", "\"\n"}, {"x.y", ""}};
  TrainState::Numbers numbers_before = numbers;
  const TrainState::Text text_before = text;
  TrainState state;
  state.add_numbers(
      "n", [&] { return numbers; }, [&](const auto& saved) { numbers = saved; });
  state.add_text(
      "t", [&] { return text; }, [&](const auto& saved) { text = saved; });
  state.step = std::numeric_limits<int64_t>::max();
  state.save(folder / "x");
  numbers.clear();
  text.clear();
  state.step = 0;
  state.load(folder / "x");
  CHECK(std::isnan(numbers.at("nan")));
  for (auto* all : {&numbers, &numbers_before}) all->erase("nan");  // which equals nothing
  CHECK(numbers == numbers_before);
  CHECK(std::signbit(numbers.at("b")));
  CHECK(text == text_before);
  CHECK(state.step == std::numeric_limits<int64_t>::max());
}

TEST_CASE("what is no number, and what is no generator, is refused, and nothing changes") {
  TempFolder folder;
  TrainState state;
  Generator own{.seed = 9};
  TrainState::Numbers numbers = {{"a", 1}};
  state.add("g", own);
  state.add_numbers(
      "n", [&] { return numbers; }, [&](const auto& saved) { numbers = saved; });
  state.step = 5;
  state.save(folder / "good");
  const safetensors::Contents good = safetensors::read_file(folder / "good");
  const auto refused = [&](const char* key, std::optional<std::string> text, const char* reason) {
    safetensors::Metadata changed = good.metadata;
    changed.erase(key);
    if (text) changed.emplace(key, *text);
    safetensors::save_file(good.tensors, folder / "bad", changed);
    const std::string said = message([&] { state.load(folder / "bad"); });
    CHECK_MESSAGE(has(said, reason), said);
    state.save(folder / "after");
    CHECK(read_bytes(folder / "after") == read_bytes(folder / "good"));
  };
  refused("run.step", "two", "TrainState: \"step\": expected a number, found \"two\"");
  refused("n.a", "1.5x", "\"n\" refuses its state");
  refused("n.a", "1.5x", "\"n.a\": expected a number, found \"1.5x\"");
  refused("g.generator", "9", "\"g\": expected a number, found \"\"");
  refused("g.generator", "9 0 philox", "\"g\": an unknown kind of generator");
  refused("g.generator", std::nullopt, "TrainState: \"g\" is no generator there");
  refused("run.random.cpu", "9 0 philox", "\"cpu\": an unknown kind of generator");
}

TEST_CASE("a safetensors file of a module, and one without a check sum, is no checkpoint") {
  TempFolder folder;
  save(nn::Linear(2, 2), folder / "x");
  TrainState state;
  const auto said = [&] { return message<FileError>([&] { state.load(folder / "x"); }); };
  CHECK(has(said(), "that no TrainState saved"));
  state.save(folder / "x");
  CHECK(said().empty());
  std::string bytes = read_bytes(folder / "x");
  for (size_t at; (at = bytes.find("halftape.")) != bytes.npos;) bytes[at] = 'H';
  testing::write_bytes(folder / "x", bytes);
  CHECK(has(said(), "that no TrainState saved"));
}

TEST_CASE("whatever a part throws, those before it get theirs back") {
  TempFolder folder;
  TrainState state;
  Generator own{.seed = 9};
  state.add("g", own);
  state.add_numbers(
      "n", [] { return TrainState::Numbers(); }, [](const TrainState::Numbers&) { throw "no"; });
  state.save(folder / "x");
  CHECK_THROWS_AS((own.seed = 1, state.load(folder / "x")), const char*);
  CHECK(own.seed == 1);
}
