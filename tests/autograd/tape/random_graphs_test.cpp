// Random programs: eager tensors against a plain interpreter over doubles, and their gradients
// against finite differences of the interpreter along a random direction. Planted with an op whose
// rule gives a NaN, they show that anomaly mode names it.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "halftape/tests/support/close.h"
#include "halftape/tests/support/many.h"
#include "halftape/tests/support/message.h"
#include "halftape/tests/support/random_programs.h"

using namespace halftape;
using testing::Author;
using testing::Program;
using testing::Step;

namespace {

/// All values of a program, the inputs first.
std::vector<testing::Values> interpret(const Program& p, const std::vector<testing::Values>& inputs,
                                       double& margin) {
  std::vector<testing::Values> v = inputs;
  for (const Step& s : p.steps) v.push_back(s.plain(v, margin));
  return v;
}
TensorList run(const Program& p, const TensorList& inputs) {
  TensorList v = inputs;
  for (const Step& s : p.steps) v.push_back(s.eager(v));
  return v;
}

/// Every value counts towards the loss, each element with a weight of its own.
double weight(size_t value, size_t element) {
  return 0.3 + 0.1 * static_cast<double>((value * 7 + element * 3) % 11);
}
double loss(const std::vector<testing::Values>& v) {
  double sum = 0;
  for (size_t i = 0; i < v.size(); ++i)
    for (size_t j = 0; j < v[i].v.size(); ++j) sum += weight(i, j) * v[i].v[j];
  return sum;
}
Tensor loss(const TensorList& v) {
  Tensor sum = zeros({}, kFloat64);
  for (size_t i = 0; i < v.size(); ++i) {
    std::vector<double> w(static_cast<size_t>(v[i].numel()));
    for (size_t j = 0; j < w.size(); ++j) w[j] = weight(i, j);
    sum = sum + (v[i] * tensor(w, kFloat64).reshape(v[i].sizes())).sum();
  }
  return sum;
}
TensorList random_leaves(const Program& p, Author& author) {
  TensorList leaves;
  for (const Shape& s : p.inputs) {
    std::vector<double> v(static_cast<size_t>(numel(s)));
    for (double& x : v) x = author.number(-2, 2);
    leaves.push_back(tensor(v, kFloat64).reshape(s).detach().requires_grad_());
  }
  return leaves;
}

/// x + y·0; the gradient of y is NaN where `hole` is 0.
struct Planted : autograd::Function<Planted> {
  static constexpr auto name = "planted";
  static Tensor forward(autograd::AutogradContext* ctx, const Tensor& x, const Tensor& y,
                        const Tensor& hole) {
    ctx->save_for_backward({hole});
    return x + y * 0;
  }
  static autograd::variable_list backward(autograd::AutogradContext* ctx,
                                          autograd::variable_list g) {
    return {g[0], g[0] * 0 / ctx->get_saved_variables()[0], Tensor()};
  }
};

/// Ops that no random program has, each with a finite value and, where `hole` is 0, a gradient of
/// 0·inf or 0/0: what where() makes of the gradient of the values that it does not take.
struct Plant {
  const char* op;
  int input;
  Tensor (*bad)(const Tensor& x, const Tensor& hole);
};
const Plant kPlants[] = {
    {"planted", 1, [](const Tensor& x, const Tensor& hole) { return Planted::apply(x, x, hole); }},
    {"log", 0, [](const Tensor& x, const Tensor& hole) { return log((1 + x * x) * hole); }},
    {"pow_scalar", 0,
     [](const Tensor& x, const Tensor& hole) { return pow((1 + x * x) * hole, 0.5); }},
    {"acos", 0, [](const Tensor& x, const Tensor& hole) { return acos(1 - hole / (2 + x * x)); }}};

}  // namespace

TEST_CASE("20,000 random programs have an interpreter's values and its differences as gradients") {
  // HALFTAPE_RANDOM_SEED=n gives other programs.
  const char* seed = std::getenv("HALFTAPE_RANDOM_SEED");
  Author author(seed ? static_cast<uint32_t>(std::atoi(seed)) : 1);
  // On a GPU whose threads are taken one by one a program takes milliseconds.
  const int programs = get_default_device().is_cpu() ? 20000 : 2000;
  int differentiated = 0;
  for (int round = 0; round < programs; ++round) {
    const Program p = author.write();
    INFO("program " << round << ":" << p.text());
    std::vector<testing::Values> inputs, ahead, behind;
    TensorList leaves;
    std::vector<std::vector<double>> direction;
    constexpr double step = 1e-5;
    for (const Shape& s : p.inputs) {
      testing::Values x{s, {}};
      std::vector<double> d;
      for (int64_t i = 0; i < numel(s); ++i) {
        x.v.push_back(author.number(-2, 2));
        d.push_back(author.number(-1, 1));
      }
      leaves.push_back(tensor(x.v, kFloat64).reshape(s).detach().requires_grad_());
      ahead.push_back(x), behind.push_back(x), inputs.push_back(x);
      for (size_t i = 0; i < d.size(); ++i)
        ahead.back().v[i] += step * d[i], behind.back().v[i] -= step * d[i];
      direction.push_back(d);
    }
    double margin = 1;
    const auto expected = interpret(p, inputs, margin);
    const TensorList got = run(p, leaves);
    double scale = 1;
    for (size_t i = 0; i < got.size(); ++i) {
      for (double x : expected[i].v) scale = std::max(scale, std::abs(x));
      REQUIRE(got[i].sizes() == expected[i].shape);
      REQUIRE(testing::differ(got[i], expected[i].v, {.eps = 256, .scale = scale}) == "");
    }
    if (margin < 1e-3 || scale > 1e4) continue;  // differences would cross a kink, or cancel
    ++differentiated;
    const TensorList g = autograd::grad({loss(got)}, leaves, {}, true);
    double along = 0, size = 1;
    for (size_t i = 0; i < g.size(); ++i) {
      const auto v = g[i].to_vector();
      for (size_t j = 0; j < v.size(); ++j)
        along += v[j] * direction[i][j], size += std::abs(v[j] * direction[i][j]);
    }
    const double difference =
        (loss(interpret(p, ahead, margin)) - loss(interpret(p, behind, margin))) / (2 * step);
    REQUIRE(std::abs(along - difference) <= 1e-8 * size * scale);
    // A second pass gives the same bits.
    const TensorList again = autograd::grad({loss(got)}, leaves);
    for (size_t i = 0; i < g.size(); ++i) REQUIRE(testing::same_bits(g[i], again[i]));
  }
  CHECK(differentiated > programs / 5 * 3);
}

// The backward pass alone: a NaN that the forward pass makes is nobody's rule.
TEST_CASE("anomaly mode names the op that was planted in each random program") {
  Author author(3);
  const int64_t rounds = testing::many(1000, 200);
  int64_t named = 0, false_alarms = 0;
  for (int64_t round = 0; round < rounds; ++round) {
    Program p = author.write();
    INFO("program " << round << ":" << p.text());
    const TensorList leaves = random_leaves(p, author);
    const auto said = [&] {
      // On in the backward pass alone, as looking up the line of a call takes long.
      const Tensor sum = loss(run(p, leaves));
      const autograd::DetectAnomalyGuard guard;
      return testing::message([&] { sum.backward(); });
    };
    const auto before = said();
    false_alarms += !before.empty();
    CHECK(before == "");
    const Plant& plant = kPlants[static_cast<size_t>(round) % std::size(kPlants)];
    const auto at = static_cast<size_t>(author.number(0, static_cast<double>(p.steps.size())));
    const double where_in_it = author.number(0, 1);
    std::ostringstream expected;
    p.steps[at].text += " with " + std::string(plant.op);
    p.steps[at].eager = [&, eager = p.steps[at].eager](const TensorList& v) {
      const Tensor x = eager(v);
      std::vector<double> hole(static_cast<size_t>(x.numel()), 1);
      hole[static_cast<size_t>(where_in_it * static_cast<double>(hole.size()))] = 0;
      const Tensor h = tensor(hole, kFloat64).reshape(x.sizes());
      expected << '`' << plant.op << "` gave a NaN in the gradient of its input " << plant.input
               << " (" << x.dtype() << ' ' << x.sizes() << ')';
      return where(h > 0, plant.bad(x, h), x);
    };
    const std::string after = said();
    CHECK_MESSAGE(testing::has(after, expected.str()), after);
    named += testing::has(after, expected.str());
  }
  CHECK(named == rounds);
  CHECK(false_alarms == 0);
  MESSAGE(named, " of ", rounds, " planted ops named, ", false_alarms, " false alarms");
}

// For scripts/compare_graphs_with_torch: a program a line, as JSON, to the file HALFTAPE_GRAPHS.
TEST_CASE("random programs are written down for another library" * doctest::skip()) {
  const char* path = std::getenv("HALFTAPE_GRAPHS");
  REQUIRE(path);
  std::ofstream out(path);
  out.precision(17);
  const auto list = [&](const std::string& name, const TensorList& all) {
    out << '"' << name << "\": [";
    for (size_t i = 0; i < all.size(); ++i) {
      out << (i ? ", " : "") << "{\"shape\": " << all[i].sizes() << ", \"v\": [";
      const auto v = all[i].to_vector();
      for (size_t j = 0; j < v.size(); ++j) out << (j ? ", " : "") << v[j];
      out << "]}";
    }
    out << "], ";
  };
  Author author(7);
  const int rounds = get_default_device().is_cpu() ? 20000 : 1000;
  for (int round = 0; round < rounds; ++round) {
    const Program p = author.write();
    const TensorList leaves = random_leaves(p, author);
    const TensorList values = run(p, leaves);
    out << "{";
    list("inputs", leaves);
    list("values", values);
    list("gradients", autograd::grad({loss(values)}, leaves));
    out << "\"steps\": [";
    for (size_t i = 0; i < p.steps.size(); ++i) out << (i ? ", " : "") << p.steps[i].python;
    out << "]}\n";
  }
  CHECK(out.good());
}
