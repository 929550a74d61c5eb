// Random programs: eager tensors against a plain interpreter over doubles, and their gradients
// against finite differences of the interpreter along a random direction.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <cstdlib>
#include <random>

#include "halftape/tests/support/close.h"
#include "halftape/tests/support/ops.h"

using namespace halftape;
using testing::each_index;
using testing::position;
using testing::Values;

namespace {

/// One operation, as the library does it and as plain loops do. `margin` is lowered to how far the
/// plain values keep from a kink.
struct Step {
  std::string text;
  std::function<Tensor(const TensorList&)> eager;
  std::function<Values(const std::vector<Values>&, double& margin)> plain;
};

struct Program {
  std::vector<Shape> inputs;
  std::vector<Step> steps;
  std::string text() const {
    std::string all;
    for (size_t i = 0; i < steps.size(); ++i)
      all += "\n  v" + std::to_string(inputs.size() + i) + " = " + steps[i].text;
    return all;
  }
};

/// Draws programs. Shapes are kept small, so that a failure can be read.
class Author {
 public:
  explicit Author(uint32_t seed) : random_(seed) {}

  Program write() {
    Program p;
    shapes_.clear();
    const int inputs = pick(1, 3);
    for (int i = 0; i < inputs; ++i) {
      Shape s;
      const int rank = pick(0, 3);
      for (int d = 0; d < rank; ++d) s.push_back(pick(1, 4));
      p.inputs.push_back(s);
      shapes_.push_back(s);
    }
    const int steps = pick(2, 9);
    while (static_cast<int>(p.steps.size()) < steps) {
      Shape out;
      std::optional<Step> step = any(out);
      if (!step || numel(out) > 120) continue;
      p.steps.push_back(std::move(*step));
      shapes_.push_back(out);
    }
    return p;
  }

  double number(double low, double high) {
    return low + (high - low) * static_cast<double>(random_()) / 4294967296.0;
  }

 private:
  int pick(int low, int high) {  // both included
    return low + static_cast<int>(random_() % static_cast<unsigned>(high - low + 1));
  }
  size_t value() {  // the latest ones more often, so that programs grow deep
    const auto n = static_cast<int>(shapes_.size());
    return static_cast<size_t>(pick(0, 2) ? n - 1 : pick(0, n - 1));
  }

  std::optional<Step> any(Shape& out) {
    const size_t a = value();
    switch (pick(0, 9)) {
      case 0:
      case 1:
        return unary(a, out);
      case 2:
      case 3:
        return binary(a, value(), out);
      case 4:
        return reduction(a, out);
      case 5:
        return product(a, out);
      case 6:
        return softmax(a, out);
      case 7:
        return picked(a, out);
      case 8:
        return written(a, out);
      default:
        return moved(a, out);
    }
  }

  std::optional<Step> unary(size_t a, Shape& out) {
    struct Entry {
      const char* name;
      Tensor (*eager)(const Tensor&);
      double (*plain)(double);
      bool kink;
    };
    static const Entry table[] = {
        {"tanh", [](const Tensor& x) { return halftape::tanh(x); }, std::tanh, false},
        {"sigmoid", [](const Tensor& x) { return sigmoid(x); },
         [](double x) { return 1 / (1 + std::exp(-x)); }, false},
        {"gelu", [](const Tensor& x) { return gelu(x); },
         [](double x) { return 0.5 * x * std::erfc(-x / std::sqrt(2.0)); }, false},
        {"softplus", [](const Tensor& x) { return softplus(x, 1, 700); },
         [](double x) { return std::log1p(std::exp(-std::abs(x))) + std::max(x, 0.0); }, false},
        {"exp(-x*x)", [](const Tensor& x) { return exp(-(x * x)); },
         [](double x) { return std::exp(-(x * x)); }, false},
        {"relu", [](const Tensor& x) { return relu(x); }, [](double x) { return std::max(x, 0.0); },
         true},
        {"abs", [](const Tensor& x) { return halftape::abs(x); },
         [](double x) { return std::abs(x); }, true},
        {"1.5 - 2x", [](const Tensor& x) { return 1.5 - 2 * x; },
         [](double x) { return 1.5 - 2 * x; }, false},
        {"sqrt(1 + x*x)", [](const Tensor& x) { return sqrt(1 + square(x)); },
         [](double x) { return std::sqrt(1 + x * x); }, false},
    };
    const Entry* e = &table[pick(0, static_cast<int>(std::size(table)) - 1)];
    out = shapes_[a];
    return Step{name(e->name, {a}), [=](const TensorList& v) { return e->eager(v[a]); },
                [=](const std::vector<Values>& v, double& margin) {
                  Values y = v[a];
                  for (double& x : y.v) {
                    if (e->kink) margin = std::min(margin, std::abs(x));
                    x = e->plain(x);
                  }
                  return y;
                }};
  }

  std::optional<Step> binary(size_t a, size_t b, Shape& out) {
    const Shape &s = shapes_[a], &t = shapes_[b];
    for (int i = 1; i <= std::min(s.size(), t.size()); ++i) {
      const int64_t x = s[s.size() - i], y = t[t.size() - i];
      if (x != y && x != 1 && y != 1) return {};
    }
    out = broadcast("random program", s, t);
    struct Entry {
      const char* name;
      Tensor (*eager)(const Tensor&, const Tensor&);
      double (*plain)(double, double);
      bool kink;
    };
    static const Entry table[] = {
        {"add", [](const Tensor& x, const Tensor& y) { return x + y; },
         [](double x, double y) { return x + y; }, false},
        {"sub", [](const Tensor& x, const Tensor& y) { return x - y; },
         [](double x, double y) { return x - y; }, false},
        {"mul, bounded", [](const Tensor& x, const Tensor& y) { return halftape::tanh(x) * y; },
         [](double x, double y) { return std::tanh(x) * y; }, false},
        {"div, bounded", [](const Tensor& x, const Tensor& y) { return x / (1 + y * y); },
         [](double x, double y) { return x / (1 + y * y); }, false},
        {"maximum", [](const Tensor& x, const Tensor& y) { return maximum(x, y); },
         [](double x, double y) { return std::max(x, y); }, true},
        {"where", [](const Tensor& x, const Tensor& y) { return where(x > y, 2 * x, y * y); },
         [](double x, double y) { return x > y ? 2 * x : y * y; }, true},
    };
    const Entry* e = &table[pick(0, static_cast<int>(std::size(table)) - 1)];
    return Step{name(e->name, {a, b}), [=](const TensorList& v) { return e->eager(v[a], v[b]); },
                [=, shape = out](const std::vector<Values>& v, double& margin) {
                  Values y{shape, {}};
                  each_index(shape, [&](const Dims& i) {
                    const double l = v[a].v[position(v[a].shape, i)],
                                 r = v[b].v[position(v[b].shape, i)];
                    if (e->kink) margin = std::min(margin, std::abs(l - r));
                    y.v.push_back(e->plain(l, r));
                  });
                  return y;
                }};
  }

  std::optional<Step> reduction(size_t a, Shape& out) {
    const Shape s = shapes_[a];
    Dims dims;
    for (int d = 0; d < s.size(); ++d)
      if (pick(0, 1)) dims.push_back(d);
    if (dims.empty()) dims = wrap_dims("", {}, s.size());
    const bool keep = pick(0, 1), mean = pick(0, 1);
    out = reduced_shape(s, dims, keep);
    const Shape kept = reduced_shape(s, dims, true);
    return Step{
        name(mean ? "mean" : "sum", {a}),
        [=](const TensorList& v) { return mean ? v[a].mean(dims, keep) : v[a].sum(dims, keep); },
        [=, shape = out](const std::vector<Values>& v, double&) {
          Values y{shape, std::vector<double>(static_cast<size_t>(numel(kept)))};
          each_index(s, [&](const Dims& i) { y.v[position(kept, i)] += v[a].v[position(s, i)]; });
          if (mean)
            for (double& x : y.v)
              x /= static_cast<double>(numel(s)) / static_cast<double>(y.v.size());
          return y;
        }};
  }

  /// x·tanh(x)ᵀ, over batches too.
  std::optional<Step> product(size_t a, Shape& out) {
    const Shape s = shapes_[a];
    if (s.size() < 2) return {};
    out = s;
    out[s.size() - 1] = s[s.size() - 2];
    return Step{
        name("x @ tanh(x).T", {a}),
        [=](const TensorList& v) { return matmul(v[a], halftape::tanh(v[a]).transpose(-2, -1)); },
        [=, shape = out](const std::vector<Values>& v, double&) {
          Values t = v[a];
          for (double& x : t.v) x = std::tanh(x);
          return Values{shape, testing::matmul_reference(v[a], t, true)};
        }};
  }

  std::optional<Step> softmax(size_t a, Shape& out) {
    const Shape s = shapes_[a];
    if (s.size() == 0) return {};
    out = s;
    const int dim = pick(0, s.size() - 1);
    const bool log = pick(0, 1);
    return Step{name(log ? "log_softmax" : "softmax", {a}),
                [=](const TensorList& v) {
                  return log ? log_softmax(v[a], dim) : halftape::softmax(v[a], dim);
                },
                [=](const std::vector<Values>& v, double&) {
                  Values y = v[a];
                  each_index(s, [&](const Dims& i) {
                    double sum = 0;
                    Dims j = i;
                    const double here = v[a].v[position(s, i)];
                    for (j[dim] = 0; j[dim] < s[dim]; ++j[dim])
                      sum += std::exp(v[a].v[position(s, j)] - here);
                    y.v[position(s, i)] = log ? -std::log(sum) : 1 / sum;
                  });
                  return y;
                }};
  }

  /// Places of `out` in `a`, by a layout op and by index arithmetic.
  std::optional<Step> moved(size_t a, Shape& out) {
    const Shape s = shapes_[a];
    if (s.size() == 0) return {};
    const int d = pick(0, s.size() - 1), e = pick(0, s.size() - 1);
    auto step = [&](const char* what, auto eager, std::function<Dims(Dims)> from) {
      return Step{name(what, {a}), [=](const TensorList& v) { return eager(v[a]); },
                  [=, shape = out](const std::vector<Values>& v, double&) {
                    Values y{shape, {}};
                    each_index(shape,
                               [&](const Dims& i) { y.v.push_back(v[a].v[position(s, from(i))]); });
                    return y;
                  }};
    };
    switch (pick(0, 4)) {
      case 0:
        out = s;
        std::swap(out[d], out[e]);
        return step(
            "transpose", [=](const Tensor& x) { return x.transpose(d, e); },
            [=](Dims i) { return std::swap(i[d], i[e]), i; });
      case 1: {
        const int64_t at = pick(0, static_cast<int>(s[d]) - 1);
        out = s;
        out.erase(d);
        return step(
            "select", [=](const Tensor& x) { return x.select(d, at); },
            [=](Dims i) { return i.insert(d, at), i; });
      }
      case 2: {
        const int64_t from = pick(0, static_cast<int>(s[d]) - 1), by = pick(1, 2);
        out = s;
        out[d] = (s[d] - from + by - 1) / by;
        return step(
            "slice", [=](const Tensor& x) { return x.slice(d, from, 99, by); },
            [=](Dims i) { return i[d] = from + by * i[d], i; });
      }
      case 3: {
        if (s.size() > 3) return {};
        out = s;
        out.insert(0, 2);
        return step(
            "expand", [=, shape = out](const Tensor& x) { return x.expand(shape); },
            [](Dims i) { return i.erase(0), i; });
      }
      default: {
        out = Shape{numel(s)};
        return step(
            "flatten", [](const Tensor& x) { return x.flatten(); },
            [=](Dims i) {
              Dims at = Dims::filled(s.size(), 0);
              for (int64_t k = s.size() - 1, rest = i[0]; k >= 0; --k)
                at[static_cast<int>(k)] = rest % s[static_cast<int>(k)],
                rest /= s[static_cast<int>(k)];
              return at;
            });
      }
    }
  }

  std::optional<Step> picked(size_t a, Shape& out) {
    const Shape s = shapes_[a];
    if (s.size() == 0) return {};
    const int d = pick(0, s.size() - 1);
    std::vector<int64_t> index;
    for (int i = pick(1, 4); i > 0; --i) index.push_back(pick(0, static_cast<int>(s[d]) - 1));
    out = s;
    out[d] = static_cast<int64_t>(index.size());
    return Step{name("index_select", {a}),
                [=](const TensorList& v) { return v[a].index_select(d, tensor(index)); },
                [=, shape = out](const std::vector<Values>& v, double&) {
                  Values y{shape, {}};
                  each_index(shape, [&](Dims i) {
                    i[d] = index[static_cast<size_t>(i[d])];
                    y.v.push_back(v[a].v[position(s, i)]);
                  });
                  return y;
                }};
  }

  /// A copy whose slice is changed in place, through a view.
  std::optional<Step> written(size_t a, Shape& out) {
    const Shape s = shapes_[a];
    if (s.size() == 0) return {};
    out = s;
    const int d = pick(0, s.size() - 1);
    const int64_t at = pick(0, static_cast<int>(s[d]) - 1);
    const double factor = number(-1.5, 1.5);
    return Step{name("slice written in place", {a}),
                [=](const TensorList& v) {
                  Tensor y = v[a] * 1;
                  y.select(d, at).mul_(factor).add_(v[a].mean());
                  return y;
                },
                [=](const std::vector<Values>& v, double&) {
                  Values y = v[a];
                  double mean = 0;
                  for (double x : y.v) mean += x / static_cast<double>(y.v.size());
                  each_index(s, [&](const Dims& i) {
                    double& x = y.v[position(s, i)];
                    if (i[d] == at) x = x * factor + mean;
                  });
                  return y;
                }};
  }

  static std::string name(const std::string& op, const std::vector<size_t>& from) {
    std::string text = op + " of";
    for (size_t i : from) text += " v" + std::to_string(i);
    return text;
  }

  std::mt19937 random_;
  std::vector<Shape> shapes_;
};

/// All values of a program, the inputs first.
std::vector<Values> interpret(const Program& p, const std::vector<Values>& inputs, double& margin) {
  std::vector<Values> v = inputs;
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
double loss(const std::vector<Values>& v) {
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

}  // namespace

TEST_CASE("20,000 random programs: values of a plain interpreter, gradients of its differences") {
  // HALFTAPE_RANDOM_SEED=n tries others.
  const char* seed = std::getenv("HALFTAPE_RANDOM_SEED");
  Author author(seed ? static_cast<uint32_t>(std::atoi(seed)) : 1);
  int differentiated = 0;
  for (int round = 0; round < 20000; ++round) {
    const Program p = author.write();
    INFO("program " << round << ":" << p.text());
    std::vector<Values> inputs, ahead, behind;
    TensorList leaves;
    std::vector<std::vector<double>> direction;
    constexpr double step = 1e-5;
    for (const Shape& s : p.inputs) {
      Values x{s, {}};
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
    // Twice is the same to the last bit.
    const TensorList again = autograd::grad({loss(got)}, leaves);
    for (size_t i = 0; i < g.size(); ++i) REQUIRE(testing::same_bits(g[i], again[i]));
  }
  CHECK(differentiated > 12000);
}
