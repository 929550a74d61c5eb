// Random programs: each step as the library does it, as plain loops over doubles do, and as an
// expression for PyTorch.
#pragma once
#include <random>
#include <sstream>

#include "halftape/tests/support/ops.h"

namespace halftape::testing {

/// One operation, as the library does it and as plain loops do. `margin` is lowered to how far the
/// plain values keep from a kink.
struct Step {
  std::string text;    // for people
  std::string python;  // ["expression of x and y for torch", which value is x, which y]
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
      const char *name, *python;
      Tensor (*eager)(const Tensor&);
      double (*plain)(double);
      bool kink;
    };
    static const Entry table[] = {
        {"tanh", "torch.tanh(x)", [](const Tensor& x) { return halftape::tanh(x); }, std::tanh,
         false},
        {"sigmoid", "torch.sigmoid(x)", [](const Tensor& x) { return sigmoid(x); },
         [](double x) { return 1 / (1 + std::exp(-x)); }, false},
        {"gelu", "F.gelu(x)", [](const Tensor& x) { return gelu(x); },
         [](double x) { return 0.5 * x * std::erfc(-x / std::sqrt(2.0)); }, false},
        {"softplus", "F.softplus(x, 1, 700)", [](const Tensor& x) { return softplus(x, 1, 700); },
         [](double x) { return std::log1p(std::exp(-std::abs(x))) + std::max(x, 0.0); }, false},
        {"exp(-x*x)", "torch.exp(-(x * x))", [](const Tensor& x) { return exp(-(x * x)); },
         [](double x) { return std::exp(-(x * x)); }, false},
        {"relu", "torch.relu(x)", [](const Tensor& x) { return relu(x); },
         [](double x) { return std::max(x, 0.0); }, true},
        {"abs", "torch.abs(x)", [](const Tensor& x) { return halftape::abs(x); },
         [](double x) { return std::abs(x); }, true},
        {"1.5 - 2x", "1.5 - 2 * x", [](const Tensor& x) { return 1.5 - 2 * x; },
         [](double x) { return 1.5 - 2 * x; }, false},
        {"sqrt(1 + x*x)", "torch.sqrt(1 + x * x)",
         [](const Tensor& x) { return sqrt(1 + square(x)); },
         [](double x) { return std::sqrt(1 + x * x); }, false},
    };
    const Entry* e = &table[pick(0, static_cast<int>(std::size(table)) - 1)];
    out = shapes_[a];
    return Step{name(e->name, {a}), python(e->python, {a}),
                [=](const TensorList& v) { return e->eager(v[a]); },
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
      const char *name, *python;
      Tensor (*eager)(const Tensor&, const Tensor&);
      double (*plain)(double, double);
      bool kink;
    };
    static const Entry table[] = {
        {"add", "x + y", [](const Tensor& x, const Tensor& y) { return x + y; },
         [](double x, double y) { return x + y; }, false},
        {"sub", "x - y", [](const Tensor& x, const Tensor& y) { return x - y; },
         [](double x, double y) { return x - y; }, false},
        {"mul, bounded", "torch.tanh(x) * y",
         [](const Tensor& x, const Tensor& y) { return halftape::tanh(x) * y; },
         [](double x, double y) { return std::tanh(x) * y; }, false},
        {"div, bounded", "x / (1 + y * y)",
         [](const Tensor& x, const Tensor& y) { return x / (1 + y * y); },
         [](double x, double y) { return x / (1 + y * y); }, false},
        {"maximum", "torch.maximum(x, y)",
         [](const Tensor& x, const Tensor& y) { return maximum(x, y); },
         [](double x, double y) { return std::max(x, y); }, true},
        {"where", "torch.where(x > y, 2 * x, y * y)",
         [](const Tensor& x, const Tensor& y) { return where(x > y, 2 * x, y * y); },
         [](double x, double y) { return x > y ? 2 * x : y * y; }, true},
    };
    const Entry* e = &table[pick(0, static_cast<int>(std::size(table)) - 1)];
    return Step{name(e->name, {a, b}), python(e->python, {a, b}),
                [=](const TensorList& v) { return e->eager(v[a], v[b]); },
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
        python(
            std::string(mean ? "x.mean(" : "x.sum(") + list(dims) + (keep ? ", True)" : ", False)"),
            {a}),
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
        name("x @ tanh(x).T", {a}), python("x @ torch.tanh(x).transpose(-2, -1)", {a}),
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
    return Step{
        name(log ? "log_softmax" : "softmax", {a}),
        python(std::string(log ? "F.log_softmax(x, " : "F.softmax(x, ") + std::to_string(dim) + ")",
               {a}),
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
    auto step = [&](const char* what, const std::string& expression, auto eager,
                    std::function<Dims(Dims)> from) {
      return Step{name(what, {a}), python("x." + expression, {a}),
                  [=](const TensorList& v) { return eager(v[a]); },
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
            "transpose", call("transpose", {d, e}),
            [=](const Tensor& x) { return x.transpose(d, e); },
            [=](Dims i) { return std::swap(i[d], i[e]), i; });
      case 1: {
        const int64_t at = pick(0, static_cast<int>(s[d]) - 1);
        out = s;
        out.erase(d);
        return step(
            "select", call("select", {d, at}), [=](const Tensor& x) { return x.select(d, at); },
            [=](Dims i) { return i.insert(d, at), i; });
      }
      case 2: {
        const int64_t from = pick(0, static_cast<int>(s[d]) - 1), by = pick(1, 2);
        out = s;
        out[d] = (s[d] - from + by - 1) / by;
        return step(
            "slice",
            "index_select(" + std::to_string(d) + ", torch.arange(" + std::to_string(from) + ", " +
                std::to_string(s[d]) + ", " + std::to_string(by) + "))",
            [=](const Tensor& x) { return x.slice(d, from, 99, by); },
            [=](Dims i) { return i[d] = from + by * i[d], i; });
      }
      case 3: {
        if (s.size() > 3) return {};
        out = s;
        out.insert(0, 2);
        return step(
            "expand", "expand(" + list(out) + ")",
            [=, shape = out](const Tensor& x) { return x.expand(shape); },
            [](Dims i) { return i.erase(0), i; });
      }
      default: {
        out = Shape{numel(s)};
        return step(
            "flatten", "flatten()", [](const Tensor& x) { return x.flatten(); },
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
    return Step{
        name("index_select", {a}),
        python("x.index_select(" + std::to_string(d) + ", torch.tensor(" + list(index) + "))", {a}),
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
                python("written(x, " + std::to_string(d) + ", " + std::to_string(at) + ", " +
                           digits(factor) + ")",
                       {a}),
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

  /// "[1, 2]".
  template <class List>
  static std::string list(const List& numbers) {
    std::string text;
    for (int64_t n : numbers) text += (text.empty() ? "" : ", ") + std::to_string(n);
    return "[" + text + "]";
  }
  static std::string call(const std::string& method, std::initializer_list<int64_t> arguments) {
    const std::string all = list(arguments);
    return method + "(" + all.substr(1, all.size() - 2) + ")";
  }
  static std::string digits(double x) {
    std::ostringstream text;
    text.precision(17);
    text << x;
    return text.str();
  }
  /// The expression, and the values that it calls x and y.
  static std::string python(const std::string& expression, const std::vector<size_t>& from) {
    return "[\"" + expression + "\", " + std::to_string(from.front()) + ", " +
           std::to_string(from.back()) + "]";
  }
  static std::string name(const std::string& op, const std::vector<size_t>& from) {
    std::string text = op + " of";
    for (size_t i : from) text += " v" + std::to_string(i);
    return text;
  }

  std::mt19937 random_;
  std::vector<Shape> shapes_;
};

}  // namespace halftape::testing
