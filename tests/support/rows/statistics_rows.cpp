// Rows of the op table: variance, norms, log-sum-exp, distances.
#include <numeric>

#include "halftape/tests/support/nonfinite.h"
#include "halftape/tests/support/rows/reduce_rows.h"

namespace halftape::testing {
namespace {

double total(const Line& x) { return std::accumulate(x.begin(), x.end(), 0.0); }
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

/// Adds a row with one input.
auto statistic_adder(Rows& rows) {
  return [&rows](std::string name, std::function<Tensor(const Tensor&)> call, Reference reference,
                 Cast cast = Cast::Keep, Shape of = {3, 4, 2}) {
    rows.push_back({.name = std::move(name),
                    .call = [call](const TensorList& x) { return call(x[0]); },
                    .shapes = {of},
                    .reference = std::move(reference),
                    .kinks = {0},
                    .cast = cast,
                    .eps = 32});
  };
}

/// Adds a row with two inputs.
auto pair_adder(Rows& rows) {
  return [&rows](std::string name, std::function<Tensor(const Tensor&, const Tensor&)> call,
                 Shape a, Shape b, Reference reference) {
    rows.push_back({.name = std::move(name),
                    .call = [call](const TensorList& x) { return call(x[0], x[1]); },
                    .shapes = {a, b},
                    .reference = std::move(reference),
                    .cast = Cast::Float32,
                    .eps = 32});
  };
}

void moment_rows(Rows& rows) {
  const auto row = statistic_adder(rows);
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
}

/// Flags instead of numbers, tensors of one element and of none.
void corner_rows(Rows& rows) {
  const auto row = statistic_adder(rows);
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
}

void renorm_rows(Rows& rows) {
  const auto row = statistic_adder(rows);
  for (const double p : {1.0, 2.0, 3.0})
    row(
        "renorm", [=](const Tensor& x) { return renorm(x, p, 1, 3.5); },
        [=](const std::vector<Values>& in) {
          Line out = in[0].v;
          for (size_t j = 0; j < 4; ++j) {
            Line slice;
            for (size_t i = 0; i < 3; ++i)
              for (size_t k = 0; k < 2; ++k) slice.push_back(in[0].v[i * 8 + j * 2 + k]);
            const double size = p_norm(slice, p);
            for (size_t i = 0; i < 3 && size > 3.5; ++i)
              for (size_t k = 0; k < 2; ++k) out[i * 8 + j * 2 + k] *= 3.5 / (size + 1e-7);
          }
          return out;
        },
        Cast::Float32);
}

void distance_rows(Rows& rows) {
  const auto pair = pair_adder(rows);
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
}

void row_distance_rows(Rows& rows) {
  const auto row = statistic_adder(rows);
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
  const auto pair = pair_adder(rows);
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

}  // namespace

void statistics_rows(Rows& rows) {
  moment_rows(rows);
  corner_rows(rows);
  renorm_rows(rows);
  distance_rows(rows);
  row_distance_rows(rows);
}

}  // namespace halftape::testing
