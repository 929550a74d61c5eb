// L-BFGS against PyTorch's, with and without line search: scripts/torch_vectors/lbfgs.py states the
// same problems. Then its state, its limits, and what it refuses.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <cmath>
#include <functional>

#include "halftape/tests/support/close.h"
#include "halftape/tests/support/message.h"
#include "halftape/tests/support/temp_folder.h"
#include "halftape/tests/support/vectors.h"

using namespace halftape;
using optim::LBFGS;
using optim::LBFGSOptions;

namespace {

Tensor sines(const Shape& shape, double factor, double offset) {
  std::vector<double> values;
  for (int64_t i = 0; i < numel(shape); ++i)
    values.push_back(std::sin(factor * static_cast<double>(i) + offset));
  return tensor(values, kFloat64).reshape(shape);
}

struct Problem {
  std::vector<Tensor> params;
  std::function<Tensor()> loss;
};

Problem rosenbrock(Dtype d) {
  const Tensor p = tensor({-1.2, 1.0}, kFloat64).to(d).requires_grad_();
  return {{p}, [p] {
            const Tensor x = p[0], y = p[1];
            return (1 - x).square() + 100 * (y - x * x).square();
          }};
}

Problem regression(Dtype d) {
  const Tensor x = sines({12, 3}, 0.7, 0.1).to(d), y = sines({12, 1}, 1.3, 0.5).to(d);
  const Tensor w1 = (0.5 * sines({3, 4}, 0.9, 0.2)).to(d).requires_grad_();
  const Tensor w2 = (0.5 * sines({4, 1}, 1.1, 0.4)).to(d).requires_grad_();
  return {{w1, w2}, [=] {
            const Tensor error = (tanh(x.matmul(w1)).matmul(w2) - y).square().mean();
            return error + 0.01 * (w1 * w1).sum() + 0.01 * (w2 * w2).sum();
          }};
}

Tensor all_of(const std::vector<Tensor>& params) {
  std::vector<Tensor> flat;
  for (const Tensor& p : params) flat.push_back(p.detach().reshape({-1}));
  return cat(flat).clone();
}

const std::vector<std::pair<std::string, LBFGSOptions>>& options() {
  static const std::vector<std::pair<std::string, LBFGSOptions>> all = {
      {"fixed", LBFGSOptions(0.5)},
      {"fixed_short", LBFGSOptions(0.2).max_iter(5).history_size(3)},
      {"wolfe", LBFGSOptions().line_search_fn("strong_wolfe")},
      {"wolfe_short",
       LBFGSOptions(0.8).max_iter(6).max_eval(9).history_size(2).line_search_fn("strong_wolfe")},
      {"wolfe_far", LBFGSOptions(50).max_iter(4).line_search_fn("strong_wolfe")},
      {"wolfe_near", LBFGSOptions(1e-4).max_iter(4).line_search_fn("strong_wolfe")},
  };
  return all;
}

/// A closure that counts its calls.
struct Closure {
  LBFGS& optimizer;
  const Problem& problem;
  int calls = 0;
  Tensor operator()() {
    ++calls;
    optimizer.zero_grad();
    Tensor loss = problem.loss();
    loss.backward();
    return loss;
  }
};

void check_close(const Tensor& got, const std::vector<double>& expected, double relative) {
  const std::vector<double> values = got.to_vector();
  REQUIRE(values.size() == expected.size());
  double largest = 0;
  for (const double e : expected) largest = std::max(largest, std::abs(e));
  for (size_t i = 0; i < values.size(); ++i) {
    CAPTURE(i);
    CHECK(std::abs(values[i] - expected[i]) <= relative * largest);
  }
}

/// Of the options: losses, in float64 also parameters and how often the closure was called.
void compare(const char* problem, Problem (*make)(Dtype), int steps, Dtype dtype, double relative) {
  const testing::Vectors torch("lbfgs.txt");
  for (const auto& [name, o] : options()) {
    if (problem == std::string("regression") && name == "wolfe_near") continue;  // see the script
    const std::string run =
        std::string(problem) + "/" + name + (dtype == kFloat64 ? "/float64/" : "/float32/");
    CAPTURE(run);
    const Problem p = make(dtype);
    LBFGS optimizer(p.params, o);
    Closure closure{optimizer, p};
    for (int step = 0; step < steps; ++step) {
      CAPTURE(step);
      const double loss = optimizer.step(std::ref(closure)).item<double>();
      const double expected = torch[run + "losses"][static_cast<size_t>(step)];
      CHECK(std::abs(loss - expected) <= relative * std::max(1e-3, std::abs(expected)));
      if (dtype != kFloat64) continue;
      check_close(all_of(p.params), torch[run + std::to_string(step) + "/params"], relative);
      CHECK(closure.calls == torch[run + std::to_string(step) + "/calls"][0]);
    }
    auto& state =
        static_cast<optim::LBFGSParamState&>(*optimizer.state()[p.params[0].unsafeGetTensorImpl()]);
    if (dtype == kFloat64) CHECK(state.n_iter() == torch[run + "n_iter"][0]);
    CHECK(state.func_evals() == closure.calls);
  }
}

double distance(const Tensor& a, const Tensor& b) { return (a - b).abs().max().item<double>(); }

}  // namespace

// Measured: 3e-10 after six steps through the valley, 1e-12 otherwise.
TEST_CASE("in float64 L-BFGS goes through Rosenbrock's valley as PyTorch's does") {
  compare("rosenbrock", rosenbrock, 6, kFloat64, 1e-9);
}

TEST_CASE("in float64 L-BFGS fits a small regression as PyTorch's does") {
  compare("regression", regression, 4, kFloat64, 1e-10);
}

TEST_CASE("in float32 L-BFGS fits a small regression as PyTorch's does") {
  compare("regression", regression, 4, kFloat32, 1e-5);
}

TEST_CASE("L-BFGS finds Rosenbrock's minimum") {
  const Problem p = rosenbrock(kFloat64);
  LBFGS optimizer(p.params, LBFGSOptions().line_search_fn("strong_wolfe").max_iter(100));
  optimizer.step(Closure{optimizer, p});
  CHECK(distance(p.params[0].detach(), ones({2}, kFloat64)) < 1e-4);
}

TEST_CASE("tolerance_change ends a step, and no line search") {
  const Tensor p = tensor({1.7, -0.4}, kFloat64).requires_grad_();
  LBFGS optimizer({p}, LBFGSOptions(3).tolerance_change(0.3).line_search_fn("strong_wolfe"));
  int evaluations = 0;
  optimizer.step([&] {
    ++evaluations;
    optimizer.zero_grad();
    const Tensor loss = (p[0] - 0.3).abs() + (p[1] - 0.123).abs() * 3;
    loss.backward();
    return loss;
  });
  CHECK(evaluations == 19);  // as torch 2.15's
  CHECK(p[0].item() == doctest::Approx(1.5068).epsilon(1e-4));
  CHECK(p[1].item() == doctest::Approx(0.1230).epsilon(1e-4));
}

TEST_CASE("tolerance_grad ends a step before its first iteration, and after a later one") {
  // The gradient of p² is 2·p. By the first iteration p moves by 0.5/|gradient|₁·gradient = 0.25,
  // by the second, which knows the curvature, by half of itself: 1, 0.75, 0.375.
  struct Run {
    double tolerance, left;
    int calls;
  };
  for (const Run& run : {Run{2, 1, 1}, Run{1.75, 0.75, 2}, Run{1.5, 0.75, 2}, Run{1.25, 0.375, 3},
                         Run{0.75, 0.375, 3}}) {
    CAPTURE(run.tolerance);
    const Tensor p = tensor({1., -1.}).requires_grad_();
    const Problem problem{{p}, [p] { return p.square().sum(); }};
    LBFGS optimizer({p}, LBFGSOptions(0.5).tolerance_grad(run.tolerance));
    Closure closure{optimizer, problem};
    CHECK(optimizer.step(std::ref(closure)).item() == 2);
    CHECK(closure.calls == run.calls);
    CHECK(p.to_vector() == std::vector<double>{run.left, -run.left});
    const optim::ParamState& state = optimizer.state_of(p);
    CHECK(read_int64(state.at("func_evals")) == run.calls);
    CHECK(read_int64(state.at("n_iter")) == run.calls - 1);
  }
}

TEST_CASE("an L-BFGS run that was saved and loaded goes on bit for bit") {
  for (const auto& [called, o] : options()) {
    const auto& name = called;  // Clang 14 captures no structured binding
    CAPTURE(name);
    const Problem whole = regression(kFloat32), other = regression(kFloat32);
    LBFGS one(whole.params, o), two(other.params);
    for (int t = 0; t < 2; ++t) one.step(Closure{one, whole});
    {
      const NoGradGuard no_grad;
      for (size_t i = 0; i < whole.params.size(); ++i) other.params[i].copy_(whole.params[i]);
    }
    two.load_state_dict(one.state_dict());
    CHECK(two.param_groups()[0].options() == one.param_groups()[0].options());
    for (int t = 0; t < 2; ++t) one.step(Closure{one, whole}), two.step(Closure{two, other});
    for (size_t i = 0; i < whole.params.size(); ++i)
      CHECK(testing::same_bits(whole.params[i].detach(), other.params[i].detach()));
  }
}

TEST_CASE("a checkpoint holds L-BFGS's history") {
  const testing::TempFolder folder;
  const Tensor x = sines({12, 3}, 0.7, 0.1).to(kFloat32), y = sines({12, 1}, 1.3, 0.5).to(kFloat32);
  const auto steps = [&](nn::Linear& model, LBFGS& optimizer, int count) {
    for (int t = 0; t < count; ++t)
      optimizer.step([&] {
        optimizer.zero_grad();
        const Tensor loss = (tanh(model->forward(x)) - y).square().mean();
        loss.backward();
        return loss;
      });
  };
  manual_seed(2);
  nn::Linear model(3, 1), other(3, 1);
  LBFGS whole(model->parameters(), LBFGSOptions(0.2).max_iter(3)), resumed(other->parameters());
  steps(model, whole, 3);
  TrainState one, two;
  one.add("model", model), two.add("model", other);
  one.add("optimizer", whole), two.add("optimizer", resumed);
  one.save(folder.path() / "run.safetensors");
  two.load(folder.path() / "run.safetensors");
  CHECK(resumed.state_dict().state[0].size() == whole.state_dict().state[0].size());
  steps(model, whole, 2), steps(other, resumed, 2);
  CHECK(testing::same_bits(model->weight.detach(), other->weight.detach()));
}

TEST_CASE("a saved L-BFGS state of other parameters is refused, and nothing changes") {
  const Problem p = regression(kFloat32), wide = regression(kFloat64);
  LBFGS one(p.params), two(wide.params);
  one.step(Closure{one, p});
  CHECK_THROWS_WITH_AS(two.load_state_dict(one.state_dict()),
                       doctest::Contains("\"d\" of parameter 0 is float32 [16], expected float64"),
                       Error);
  CHECK(two.state_of(wide.params[0]).empty());
}

TEST_CASE("a state of L-BFGS by name is refused where the parameters have another order") {
  using Named = OrderedDict<std::string, Tensor>;
  const testing::TempFolder folder;
  const auto path = folder.path() / "run.safetensors";
  nn::Linear model(2, 1), other(2, 1);
  const auto group = [](nn::Linear& m, bool swapped) {
    const Named both{{"weight", m->weight}, {"bias", m->bias}};
    const Named turned{{"bias", m->bias}, {"weight", m->weight}};
    return std::vector<optim::OptimizerParamGroup>{{swapped ? turned : both}};
  };
  LBFGS one(group(model, false)), same(group(other, false)), swapped(group(other, true));
  TrainState saved, alike, turned;
  saved.add("model", model), alike.add("model", other), turned.add("model", other);
  saved.add("optimizer", one), alike.add("optimizer", same), turned.add("optimizer", swapped);
  saved.save(path);
  turned.load(path);  // nothing is kept yet
  swapped.load_state_dict(one.named_state_dict());
  one.step([&] {
    one.zero_grad();
    const Tensor loss = (model->forward(ones({1, 2})) - 3).square().sum();
    loss.backward();
    return loss;
  });
  const auto by_name = one.named_state_dict();
  CHECK(testing::has(
      testing::message([&] { swapped.load_state_dict(by_name); }),
      "\"bias\" is its parameter 1, this optimizer's parameter 0, and its state is of all"));
  same.load_state_dict(by_name);
  saved.save(path);
  const std::string said = testing::message([&] { turned.load(path); });
  CHECK(testing::has(said,
                     "expected the parameter \"model.weight\" as number 1, found it as "
                     "number 0, and the state fits one order of the parameters alone"));
  alike.load(path);
  auto former = safetensors::read_file(path);  // a file that does not tell the order
  for (const char* name : {"weight", "bias"})
    CHECK(former.metadata.erase(std::string("optimizer.place.model.") + name) == 1);
  safetensors::save_file(former.tensors, path, former.metadata);
  alike.load(path);
  CHECK(testing::same_bits(Tensor(same.state_of(other->weight).at("d")),
                           Tensor(one.state_of(model->weight).at("d"))));
}

TEST_CASE("L-BFGS trains 16-bit parameters with vectors in float32, in a region of autocast too") {
  for (const Dtype d : {kFloat16, kBFloat16}) {
    const Tensor p = full({4}, 3.0, d).requires_grad_();
    LBFGS optimizer({p}, LBFGSOptions(0.5).max_iter(8));
    const amp::autocast region(get_default_device().type(), d);
    bool lowered = false;
    optimizer.step([&] {
      optimizer.zero_grad();
      const Tensor x = p.to(kFloat32);
      lowered = matmul(x.reshape({1, 4}), x.reshape({4, 1})).dtype() == d;
      const Tensor loss = (x - 1).square().sum();
      loss.backward();
      return loss;
    });
    CHECK(lowered);  // the closure is in the region
    CHECK(distance(p.detach().to(kFloat32), ones({4})) < 0.05);
    CHECK(optimizer.state_dict().state[0].at("d").dtype() == kFloat32);
  }
}

TEST_CASE("parameters without a gradient stay, and the others move") {
  const Tensor a = full({2}, 3.0, requires_grad()), b = full({3}, 2.0, requires_grad());
  LBFGS optimizer({b, a});
  optimizer.step([&] {
    optimizer.zero_grad();
    const Tensor loss = a.square().sum();
    loss.backward();
    return loss;
  });
  CHECK(distance(a.detach(), zeros({2})) < 1e-5);
  CHECK(b.equal(full({3}, 2.0)));
}

TEST_CASE("what a closure throws leaves parameters and state as they were") {
  for (const bool search : {false, true}) {
    const Problem p = regression(kFloat64);
    LBFGSOptions o;
    if (search) o.line_search_fn("strong_wolfe");
    LBFGS optimizer(p.params, o);
    optimizer.step(Closure{optimizer, p});
    const Tensor before = all_of(p.params);
    const auto state = optimizer.state_dict();
    Closure closure{optimizer, p};
    int calls = 0;
    CHECK_THROWS_WITH(optimizer.step([&] {
      if (++calls == 2) throw std::runtime_error("no data");
      return closure();
    }),
                      "no data");
    CHECK(testing::same_bits(all_of(p.params), before));
    const auto after = optimizer.state_dict();
    CHECK(after.state[0].size() == state.state[0].size());
    for (const auto& [key, value] : after.state[0])
      CHECK(testing::same_bits(Tensor(value), Tensor(state.state[0].at(key))));
  }
}

TEST_CASE("what L-BFGS cannot do is refused by name") {
  const Tensor p = ones({2}, requires_grad()), q = ones({1}, requires_grad());
  LBFGS optimizer({p});
  CHECK_THROWS_WITH_AS(optimizer.step(), doctest::Contains("needs a closure"), Error);
  CHECK_THROWS_WITH_AS(optimizer.step(StepControl{}), doctest::Contains("without control"), Error);
  CHECK_THROWS_WITH_AS(LBFGS({p}, LBFGSOptions().line_search_fn("armijo")),
                       doctest::Contains("\"armijo\" is not known"), Error);
  CHECK_THROWS_WITH_AS(LBFGS({p}, LBFGSOptions().max_iter(0)),
                       doctest::Contains("max_iter value: 0"), Error);
  CHECK_THROWS_WITH_AS(LBFGS({p}, LBFGSOptions().max_eval(0)),
                       doctest::Contains("max_eval value: 0"), Error);
  CHECK_THROWS_WITH_AS(LBFGS({p}, LBFGSOptions().history_size(0)),
                       doctest::Contains("history_size value: 0"), Error);
  CHECK_THROWS_WITH_AS(LBFGS({p}, LBFGSOptions(-1)), doctest::Contains("learning rate: -1"), Error);
  using Groups = std::vector<optim::OptimizerParamGroup>;
  using Group = optim::OptimizerParamGroup;
  CHECK_THROWS_WITH_AS(LBFGS(Groups{Group(TensorList{p}), Group(TensorList{q})}),
                       doctest::Contains("got 2"), Error);
  CHECK_THROWS_WITH_AS(optimizer.add_param_group(Group(TensorList{q})),
                       doctest::Contains("expected one parameter group"), Error);
  CHECK(optimizer.param_groups().size() == 1);
  const auto loss = [&] {
    optimizer.zero_grad();
    const Tensor value = p.square().sum();
    value.backward();
    return value;
  };
  optimizer.step(loss);
  optimizer.add_parameters({q});
  CHECK_THROWS_WITH_AS(optimizer.step([&] { return p.mutable_grad() = ones({2}), loss(); }),
                       doctest::Contains("3 elements of parameters"), Error);
}

TEST_CASE("LBFGS refuses saved counts that no run can have") {
  const Tensor p = tensor({1.0, 2.0}, requires_grad());
  LBFGS optimizer({p}, LBFGSOptions(0.1).max_iter(3));
  optimizer.step([&] {
    optimizer.zero_grad();
    const Tensor loss = p.square().sum();
    loss.backward();
    return loss;
  });
  const auto good = optimizer.state_dict();
  for (const char* name : {"n_iter", "func_evals"})
    for (const int64_t count : {int64_t{-5}, std::numeric_limits<int64_t>::max()}) {
      auto bad = good;
      bad.state[0][name] = full({}, count, kInt64).array();
      CHECK_THROWS_WITH_AS(optimizer.load_state_dict(bad),
                           doctest::Contains("expected a whole number from 0 on"), Error);
    }
  optimizer.load_state_dict(good);
}
