// Rows of the op table: reductions, running reductions, order, softmax.
#include <algorithm>
#include <limits>
#include <numeric>

#include "halftape/tests/support/ops.h"

namespace halftape::testing {
namespace {

using Rows = std::vector<OpRow>;
using Line = std::vector<double>;
constexpr double kInf = std::numeric_limits<double>::infinity();

/// f(the elements over `dims`) for every element that is kept.
template <class F>
auto grouped(Dims dims, F f) {
  return [=](const std::vector<Values>& in) {
    const Dims over = wrap_dims("reference", dims, in[0].shape.size());
    const Shape kept = reduced_shape(in[0].shape, over, true);
    std::vector<Line> groups(static_cast<size_t>(numel(kept)));
    each_index(in[0].shape, [&](const Dims& i) {
      groups[position(kept, i)].push_back(in[0].v[position(in[0].shape, i)]);
    });
    std::vector<double> out;
    for (const Line& g : groups) out.push_back(f(g));
    return out;
  };
}

/// Each line along `dim` replaced by f(line), which may have another length.
template <class F>
auto along(int64_t dim, F f) {
  return [=](const std::vector<Values>& in) {
    const Shape& shape = in[0].shape;
    if (shape.empty()) return f(in[0].v);
    const int d = wrap_dim("reference", dim, shape.size());
    const Shape kept = reduced_shape(shape, {d}, true);
    std::vector<Line> lines(static_cast<size_t>(numel(kept)));
    each_index(shape, [&](const Dims& i) {
      lines[position(kept, i)].push_back(in[0].v[position(shape, i)]);
    });
    for (Line& line : lines) line = f(line);
    Shape out_shape = shape;
    out_shape[d] = lines.empty() ? 0 : static_cast<int64_t>(lines[0].size());
    std::vector<double> out;
    each_index(out_shape, [&](const Dims& i) {
      out.push_back(lines[position(kept, i)][static_cast<size_t>(i[d])]);
    });
    return out;
  };
}

Tensor turned(const Tensor& x) { return transpose(x, 0, -1); }

double total(const Line& x) { return std::accumulate(x.begin(), x.end(), 0.0); }
double largest(const Line& x) { return *std::max_element(x.begin(), x.end()); }
double smallest(const Line& x) { return *std::min_element(x.begin(), x.end()); }
double product(const Line& x) {
  return std::accumulate(x.begin(), x.end(), 1.0, std::multiplies<>());
}
auto variance(double correction) {
  return [=](const Line& x) {
    const double n = static_cast<double>(x.size()), mean = total(x) / n;
    double sum = 0;
    for (double v : x) sum += (v - mean) * (v - mean);
    return sum / std::max(0.0, n - correction);
  };
}
double p_norm(const Line& x, double p) {
  double sum = 0, top = 0, low = kInf;
  for (double v : x) {
    top = std::max(top, std::abs(v)), low = std::min(low, std::abs(v));
    sum += p == 0 ? double(v != 0) : std::pow(std::abs(v), p);
  }
  return p == 0 ? sum : p == kInf ? top : p == -kInf ? low : std::pow(sum, 1 / p);
}
double log_sum_exp(const Line& x) {
  double sum = 0;
  for (double v : x) sum += std::exp(v);
  return std::log(sum);
}
Line sorted(Line x, bool descending = false) {
  std::sort(x.begin(), x.end());
  if (descending) std::reverse(x.begin(), x.end());
  return x;
}

void basic_rows(Rows& rows) {
  auto plus = [](double a, double b) { return a + b; };
  auto larger = [](double a, double b) { return std::max(a, b); };
  auto smaller = [](double a, double b) { return std::min(a, b); };
  for (const Dims& dims : {Dims{}, Dims{0}, Dims{-1}, Dims{0, 2}, Dims{1}}) {
    for (const bool keep : {false, true}) {
      const std::vector<Shape> shapes{{3, 4, 5}};
      rows.push_back({.name = "sum",
                      .call = [=](const TensorList& x) { return sum(x[0], dims, keep); },
                      .shapes = shapes,
                      .reference = folded(dims, 0, plus),
                      .cast = Cast::Float32});
      rows.push_back({.name = "mean",
                      .call = [=](const TensorList& x) { return mean(x[0], dims, keep); },
                      .shapes = shapes,
                      .reference = folded(dims, 0, plus, true)});
      rows.push_back({.name = "amax",
                      .call = [=](const TensorList& x) { return amax(x[0], dims, keep); },
                      .shapes = shapes,
                      .reference = folded(dims, -kInf, larger)});
      rows.push_back({.name = "amin",
                      .call = [=](const TensorList& x) { return amin(x[0], dims, keep); },
                      .shapes = shapes,
                      .reference = folded(dims, kInf, smaller)});
    }
  }
  rows.push_back({.name = "sum of nothing",
                  .call = [](const TensorList& x) { return sum(x[0], {1}); },
                  .shapes = {{3, 0}},
                  .reference = folded({1}, 0, plus),
                  .cast = Cast::Float32});
  rows.push_back({.name = "sum of a number",
                  .call = [](const TensorList& x) { return sum(x[0]); },
                  .shapes = {{}},
                  .reference = same,
                  .cast = Cast::Float32});
  rows.push_back({.name = "argmax",
                  .call = [](const TensorList& x) { return argmax(x[0], 1); },
                  .shapes = {{3, 7}},
                  .reference =
                      [](const std::vector<Values>& in) {
                        std::vector<double> out;
                        for (auto row = in[0].v.begin(); row != in[0].v.end(); row += 7)
                          out.push_back(static_cast<double>(std::max_element(row, row + 7) - row));
                        return out;
                      },
                  .differentiable = false});
  for (const bool log : {false, true}) {
    auto call = log ? [](const TensorList& x) { return log_softmax(x[0], -1); }
                    : [](const TensorList& x) { return softmax(x[0], -1); };
    rows.push_back(
        {.name = log ? "log_softmax" : "softmax",
         .call = call,
         .shapes = {{3, 5}},
         .reference =
             [log](const std::vector<Values>& in) { return softmax_rows(in[0].v, 5, log); },
         .cast = Cast::Float32});
    rows.push_back({.name = log ? "log_softmax of columns" : "softmax of columns",
                    .call =
                        [log](const TensorList& x) {
                          return log ? log_softmax(made(x[0], turned), 1)
                                     : softmax(made(x[0], turned), 1);
                        },
                    .shapes = {{5, 3}},
                    .reference =
                        [log](const std::vector<Values>& in) {
                          std::vector<double> turned(15);
                          for (size_t i = 0; i < 15; ++i) turned[i % 3 * 5 + i / 3] = in[0].v[i];
                          return softmax_rows(turned, 5, log);
                        },
                    .cast = Cast::Float32});
  }
  rows.push_back({.name = "softmax along 0",
                  .call = [](const TensorList& x) { return turned(softmax(x[0], 0)); },
                  .shapes = {{5, 2}},
                  .reference =
                      [](const std::vector<Values>& in) {
                        std::vector<double> turned(10);
                        for (size_t i = 0; i < 10; ++i) turned[i % 2 * 5 + i / 2] = in[0].v[i];
                        return softmax_rows(turned, 5, false);
                      },
                  .cast = Cast::Float32});
}

void product_rows(Rows& rows) {
  const Cast f32 = Cast::Float32;
  for (const Shape& shape : {Shape{2, 3}, Shape{}, Shape{5}, Shape{0}, Shape{2, 0, 3}})
    rows.push_back({.name = "prod",
                    .call = [](const TensorList& x) { return prod(x[0]); },
                    .shapes = {shape},
                    .reference = grouped({}, product),
                    .cast = f32});
  for (const int64_t dim : {0, 1, -1})
    for (const bool keep : {false, true})
      for (const Shape& shape : {Shape{3, 4, 2}, Shape{2, 0, 3}})
        rows.push_back({.name = "prod along " + std::to_string(dim),
                        .call = [=](const TensorList& x) { return prod(x[0], dim, keep); },
                        .shapes = {shape},
                        .reference = grouped({dim}, product),
                        .cast = f32});
}

void extremum_rows(Rows& rows) {
  auto row = [&](const char* name, Shape shape, std::function<Tensor(const Tensor&)> call,
                 std::function<std::vector<double>(const std::vector<Values>&)> reference,
                 bool differentiable = true) {
    rows.push_back({.name = name,
                    .call = [call](const TensorList& x) { return call(x[0]); },
                    .shapes = {shape},
                    .reference = std::move(reference),
                    .differentiable = differentiable});
  };
  for (const Shape& shape : {Shape{3, 4}, Shape{}, Shape{7}}) {
    row(
        "max", shape, [](const Tensor& x) { return max(x); }, grouped({}, largest));
    row(
        "min", shape, [](const Tensor& x) { return min(x); }, grouped({}, smallest));
    row(
        "median", shape, [](const Tensor& x) { return median(x); },
        grouped({}, [](const Line& x) { return sorted(x)[(x.size() - 1) / 2]; }));
  }
  for (const bool keep : {false, true}) {
    for (const int64_t d : {0, -1}) {
      const Shape shape{4, 3, 5};
      row(
          "max along a dimension", shape,
          [=](const Tensor& x) { return std::get<0>(max(x, d, keep)); }, grouped({d}, largest));
      row(
          "min along a dimension", shape,
          [=](const Tensor& x) { return std::get<0>(min(x, d, keep)); }, grouped({d}, smallest));
      row(
          "aminmax, least", shape,
          [=](const Tensor& x) { return std::get<0>(aminmax(x, d, keep)); },
          grouped({d}, smallest));
      row(
          "aminmax, greatest", shape,
          [=](const Tensor& x) { return std::get<1>(aminmax(x, d, keep)); }, grouped({d}, largest));
      row(
          "median along a dimension", shape,
          [=](const Tensor& x) { return std::get<0>(median(x, d, keep)); },
          grouped({d}, [](const Line& x) { return sorted(x)[(x.size() - 1) / 2]; }));
      row(
          "kthvalue", shape, [=](const Tensor& x) { return std::get<0>(kthvalue(x, 2, d, keep)); },
          grouped({d}, [](const Line& x) { return sorted(x)[1]; }));
      row(
          "argmin", shape, [=](const Tensor& x) { return argmin(x, d, keep); },
          grouped({d},
                  [](const Line& x) {
                    return static_cast<double>(std::min_element(x.begin(), x.end()) - x.begin());
                  }),
          false);
      row(
          "max, indices", shape, [=](const Tensor& x) { return std::get<1>(max(x, d, keep)); },
          grouped({d},
                  [](const Line& x) {
                    return static_cast<double>(std::max_element(x.begin(), x.end()) - x.begin());
                  }),
          false);
    }
  }
  row(
      "max of nothing along another dimension", {0, 3},
      [](const Tensor& x) { return std::get<0>(max(x, 1)); }, grouped({1}, largest));
  rows.push_back({.name = "max of two",
                  .call = [](const TensorList& x) { return max(x[0], x[1]); },
                  .shapes = {{3, 4}, {4}},
                  .reference = elementwise2([](double a, double b) { return std::max(a, b); })});
  rows.push_back({.name = "min of two",
                  .call = [](const TensorList& x) { return min(x[0], x[1]); },
                  .shapes = {{3, 4}, {4}},
                  .reference = elementwise2([](double a, double b) { return std::min(a, b); })});
  for (const Dims& dims : {Dims{}, Dims{0}, Dims{0, 2}}) {
    for (const Shape& shape : {Shape{3, 4, 2}, Shape{0, 4, 2}}) {
      row(
          "any", shape,
          [=](const Tensor& x) {
            return any(made(x, [](const Tensor& t) { return t > 1.5; }), dims);
          },
          grouped(dims,
                  [](const Line& x) {
                    return double(
                        std::any_of(x.begin(), x.end(), [](double v) { return v > 1.5; }));
                  }),
          false);
      row(
          "all", shape,
          [=](const Tensor& x) {
            return all(made(x, [](const Tensor& t) { return t > -1.5; }), dims);
          },
          grouped(dims,
                  [](const Line& x) {
                    return double(
                        std::all_of(x.begin(), x.end(), [](double v) { return v > -1.5; }));
                  }),
          false);
      row(
          "count_nonzero", shape,
          [=](const Tensor& x) { return count_nonzero(made(x, relu), dims); },
          grouped(dims,
                  [](const Line& x) {
                    return double(
                        std::count_if(x.begin(), x.end(), [](double v) { return v > 0; }));
                  }),
          false);
    }
  }
}

void statistics_rows(Rows& rows) {
  const Shape shape{3, 4, 2};
  auto row = [&](std::string name, std::function<Tensor(const Tensor&)> call,
                 std::function<std::vector<double>(const std::vector<Values>&)> reference,
                 Cast cast = Cast::Keep, Shape of = {3, 4, 2}) {
    rows.push_back({.name = std::move(name),
                    .call = [call](const TensorList& x) { return call(x[0]); },
                    .shapes = {of},
                    .reference = std::move(reference),
                    .kinks = {0},
                    .cast = cast,
                    .eps = 32});
  };
  for (const Dims& dims : {Dims{}, Dims{1}, Dims{0, -1}}) {
    for (const bool keep : {false, true}) {
      for (const double c : {0.0, 1.0, 0.5}) {
        row(
            "var", [=](const Tensor& x) { return var(x, dims, Scalar(c), keep); },
            grouped(dims, variance(c)));
        row(
            "std", [=](const Tensor& x) { return std(x, dims, Scalar(c), keep); },
            grouped(dims, [=](const Line& x) { return std::sqrt(variance(c)(x)); }));
      }
      for (const double p : {0.0, 1.0, 2.0, 3.0, 1.5, 0.5, -1.0, kInf, -kInf})
        row(
            "norm " + std::to_string(p), [=](const Tensor& x) { return norm(x, p, dims, keep); },
            grouped(dims, [=](const Line& x) { return p_norm(x, p); }), Cast::Float32);
      row(
          "logsumexp", [=](const Tensor& x) { return logsumexp(x, dims, keep); },
          grouped(dims, log_sum_exp), Cast::Float32);
      row(
          "nansum", [=](const Tensor& x) { return nansum(x, dims, keep); }, grouped(dims, total));
      row(
          "nanmean", [=](const Tensor& x) { return nanmean(x, dims, keep); },
          grouped(dims, [](const Line& x) { return total(x) / static_cast<double>(x.size()); }));
    }
  }
  row(
      "var, biased", [](const Tensor& x) { return var(x, {0}, false); }, grouped({0}, variance(0)));
  row(
      "std_mean", [](const Tensor& x) { return std::get<0>(std_mean(x, true)); },
      grouped({}, [](const Line& x) { return std::sqrt(variance(1)(x)); }));
  row(
      "var_mean", [](const Tensor& x) { return std::get<1>(var_mean(x, {1}, true)); },
      grouped({1}, [](const Line& x) { return total(x) / static_cast<double>(x.size()); }));
  row("var of a number", [](const Tensor& x) { return var(x, false); }, grouped({}, variance(0)),
      Cast::Keep, {});
  row("norm of a number", [](const Tensor& x) { return norm(x); },
      grouped({}, [](const Line& x) { return p_norm(x, 2); }), Cast::Float32, {});
  row("norm of nothing", [](const Tensor& x) { return norm(x, 2, {1}); },
      grouped({1}, [](const Line& x) { return p_norm(x, 2); }), Cast::Float32, {2, 0});
  row("logsumexp of a number", [](const Tensor& x) { return logsumexp(x, 0); },
      grouped({}, log_sum_exp), Cast::Float32, {});
  row(
      "softmin", [](const Tensor& x) { return softmin(x, -1); },
      [](const std::vector<Values>& in) {
        std::vector<double> turned;
        for (double v : in[0].v) turned.push_back(-v);
        return softmax_rows(turned, 5, false);
      },
      Cast::Float32, {3, 5});

  auto pair = [&](std::string name, std::function<Tensor(const Tensor&, const Tensor&)> call,
                  Shape a, Shape b,
                  std::function<std::vector<double>(const std::vector<Values>&)> reference) {
    rows.push_back({.name = std::move(name),
                    .call = [call](const TensorList& x) { return call(x[0], x[1]); },
                    .shapes = {a, b},
                    .reference = std::move(reference),
                    .cast = Cast::Float32,
                    .eps = 32});
  };
  for (const double p : {1.0, 2.0, 3.0}) {
    pair(
        "dist", [=](const Tensor& a, const Tensor& b) { return dist(a, b, p); }, {3, 4}, {3, 4},
        [=](const std::vector<Values>& in) {
          Line d;
          for (size_t i = 0; i < 12; ++i) d.push_back(in[0].v[i] - in[1].v[i]);
          return Line{p_norm(d, p)};
        });
    pair(
        "pairwise_distance",
        [=](const Tensor& a, const Tensor& b) { return pairwise_distance(a, b, p); }, {3, 4}, {4},
        [=](const std::vector<Values>& in) {
          Line out;
          for (size_t r = 0; r < 3; ++r) {
            Line d;
            for (size_t i = 0; i < 4; ++i) d.push_back(in[0].v[r * 4 + i] - in[1].v[i] + 1e-6);
            out.push_back(p_norm(d, p));
          }
          return out;
        });
    pair(
        "cdist", [=](const Tensor& a, const Tensor& b) { return cdist(a, b, p); }, {2, 3}, {4, 3},
        [=](const std::vector<Values>& in) {
          Line out;
          for (size_t m = 0; m < 2; ++m) {
            for (size_t n = 0; n < 4; ++n) {
              Line d;
              for (size_t i = 0; i < 3; ++i) d.push_back(in[0].v[m * 3 + i] - in[1].v[n * 3 + i]);
              out.push_back(p_norm(d, p));
            }
          }
          return out;
        });
  }
  for (const double p : {1.0, 2.0, 3.0})
    row(
        "pdist", [=](const Tensor& x) { return pdist(x, p); },
        [=](const std::vector<Values>& in) {
          Line out;
          for (size_t i = 0; i < 4; ++i)
            for (size_t j = i + 1; j < 4; ++j) {
              Line d;
              for (size_t k = 0; k < 3; ++k) d.push_back(in[0].v[i * 3 + k] - in[0].v[j * 3 + k]);
              out.push_back(p_norm(d, p));
            }
          return out;
        },
        Cast::Float32, {4, 3});
  pair(
      "cosine_similarity", [](const Tensor& a, const Tensor& b) { return cosine_similarity(a, b); },
      {3, 4}, {1, 4},
      [](const std::vector<Values>& in) {
        Line out;
        for (size_t r = 0; r < 3; ++r) {
          const Line a(in[0].v.begin() + static_cast<std::ptrdiff_t>(r) * 4,
                       in[0].v.begin() + static_cast<std::ptrdiff_t>(r) * 4 + 4);
          out.push_back(std::inner_product(a.begin(), a.end(), in[1].v.begin(), 0.0) /
                        (p_norm(a, 2) * p_norm(in[1].v, 2)));
        }
        return out;
      });
}

void running_rows(Rows& rows) {
  auto row = [&](std::string name, std::function<Tensor(const Tensor&, int64_t)> call,
                 std::function<Line(const Line&)> f, Cast cast = Cast::Keep,
                 bool differentiable = true) {
    const std::pair<Shape, int64_t> uses[] = {
        {{3, 4, 2}, 0}, {{3, 4, 2}, 1}, {{3, 4, 2}, -1}, {{7}, 0}, {{2, 0}, 0}};
    for (const auto& use : uses) {
      const int64_t dim = use.second;
      rows.push_back({.name = name,
                      .call = [=](const TensorList& x) { return call(x[0], dim); },
                      .shapes = {use.first},
                      .reference = along(dim, f),
                      .cast = cast,
                      .differentiable = differentiable});
    }
  };
  auto folding = [](double (*f)(double, double)) {
    return [f](Line x) {
      for (size_t i = 1; i < x.size(); ++i) x[i] = f(x[i - 1], x[i]);
      return x;
    };
  };
  row(
      "cumsum", [](const Tensor& x, int64_t d) { return cumsum(x, d); },
      folding([](double a, double b) { return a + b; }), Cast::Float32);
  row(
      "cumprod", [](const Tensor& x, int64_t d) { return cumprod(x, d); },
      folding([](double a, double b) { return a * b; }), Cast::Float32);
  row(
      "cummax", [](const Tensor& x, int64_t d) { return std::get<0>(cummax(x, d)); },
      folding([](double a, double b) { return std::max(a, b); }));
  row(
      "cummin", [](const Tensor& x, int64_t d) { return std::get<0>(cummin(x, d)); },
      folding([](double a, double b) { return std::min(a, b); }));
  row(
      "diff", [](const Tensor& x, int64_t d) { return diff(x, 1, d); },
      [](const Line& x) {
        Line out;
        for (size_t i = 1; i < x.size(); ++i) out.push_back(x[i] - x[i - 1]);
        return out;
      });
  row(
      "sort", [](const Tensor& x, int64_t d) { return std::get<0>(sort(x, d)); },
      [](const Line& x) { return sorted(x); });
  row(
      "sort, descending", [](const Tensor& x, int64_t d) { return std::get<0>(x.sort(d, true)); },
      [](const Line& x) { return sorted(x, true); });
  row(
      "argsort", [](const Tensor& x, int64_t d) { return argsort(x, d); },
      [](const Line& x) {
        Line order(x.size());
        std::iota(order.begin(), order.end(), 0);
        std::stable_sort(order.begin(), order.end(), [&](double a, double b) {
          return x[static_cast<size_t>(a)] < x[static_cast<size_t>(b)];
        });
        return order;
      },
      Cast::Keep, false);
  for (const bool largest_first : {false, true})
    row(
        "topk",
        [=](const Tensor& x, int64_t d) { return std::get<0>(topk(x, 2, d, largest_first)); },
        [=](const Line& x) {
          Line all = sorted(x, largest_first);
          all.resize(std::min<size_t>(2, all.size()));
          return all;
        });
  row(
      "logcumsumexp", [](const Tensor& x, int64_t d) { return logcumsumexp(x, d); },
      folding([](double a, double b) { return std::log(std::exp(a) + std::exp(b)); }));
  rows.push_back({.name = "diff between others",
                  .call = [](const TensorList& x) { return diff(x[1], 1, -1, x[0], x[2]); },
                  .shapes = {{2, 1}, {2, 3}, {2, 2}},
                  .reference =
                      [](const std::vector<Values>& in) {
                        Line out;
                        for (size_t r = 0; r < 2; ++r) {
                          const Line all{in[0].v[r],         in[1].v[3 * r], in[1].v[3 * r + 1],
                                         in[1].v[3 * r + 2], in[2].v[2 * r], in[2].v[2 * r + 1]};
                          for (size_t i = 1; i < 6; ++i) out.push_back(all[i] - all[i - 1]);
                        }
                        return out;
                      }});
  rows.push_back({.name = "diff twice",
                  .call = [](const TensorList& x) { return diff(x[0], 2, 0); },
                  .shapes = {{4, 2}},
                  .reference = along(0,
                                     [](const Line& x) {
                                       return Line{x[2] - 2 * x[1] + x[0], x[3] - 2 * x[2] + x[1]};
                                     }),
                  .one_kernel = false});
  rows.push_back({.name = "cumsum of a number",
                  .call = [](const TensorList& x) { return cumsum(x[0], 0); },
                  .shapes = {{}},
                  .reference = same,
                  .cast = Cast::Float32});
  rows.push_back({.name = "msort",
                  .call = [](const TensorList& x) { return msort(x[0]); },
                  .shapes = {{5, 2}},
                  .reference = along(0, [](const Line& x) { return sorted(x); })});
  rows.push_back({.name = "cumsum_",
                  .call =
                      [](const TensorList& x) {
                        Tensor y = made(x[0], clone);
                        return y.cumsum_(1);
                      },
                  .shapes = {{3, 4}},
                  .reference = along(1, folding([](double a, double b) { return a + b; }))});
  rows.push_back({.name = "cumprod_",
                  .call =
                      [](const TensorList& x) {
                        Tensor y = made(x[0], clone);
                        return y.cumprod_(0);
                      },
                  .shapes = {{3, 4}},
                  .reference = along(0, folding([](double a, double b) { return a * b; }))});
}

}  // namespace

void reduce_rows(Rows& rows) {
  basic_rows(rows);
  product_rows(rows);
  extremum_rows(rows);
  statistics_rows(rows);
  running_rows(rows);
}

}  // namespace halftape::testing
