// Rows of the op table: losses of elements, margins and distances.
#include <numeric>

#include "halftape/tests/support/ops.h"

namespace halftape::testing {
namespace {

using Line = std::vector<double>;
using Inputs = std::vector<Values>;

const Reduction kinds[] = {Reduction::None, Reduction::Mean, Reduction::Sum};

/// Where inputs are drawn from.
struct Domain {
  double low = -2, high = 2;
  std::vector<double> kinks = {};
};

/// A loss of two tensors, element by element.
void elements(Rows& rows, const std::string& name,
              const std::function<Tensor(const Tensor&, const Tensor&, Reduction)>& call,
              const std::function<double(double, double)>& f, const Domain& domain = {}) {
  for (const Reduction reduction : kinds) {
    rows.push_back({.name = name,
                    .call = [=](const TensorList& x) { return call(x[0], x[1], reduction); },
                    .shapes = {{3, 4}, {3, 4}},
                    .reference =
                        [=](const Inputs& in) {
                          Line out;
                          for (size_t i = 0; i < in[0].v.size(); ++i)
                            out.push_back(f(in[0].v[i], in[1].v[i]));
                          return as_reduced(out, reduction);
                        },
                    .low = domain.low,
                    .high = domain.high,
                    .kinks = domain.kinks,
                    .cast = Cast::Float32});
  }
}

double cut(double x) { return std::max(x, 0.0); }

void element_rows(Rows& rows) {
  elements(
      rows, "l1_loss",
      [](const Tensor& x, const Tensor& y, Reduction r) { return l1_loss(x, y, r); },
      [](double x, double y) { return std::abs(x - y); });
  for (const double beta : {0.0, 0.7, 1.0})
    elements(
        rows, "smooth_l1_loss",
        [=](const Tensor& x, const Tensor& y, Reduction r) {
          return smooth_l1_loss(x, y, r, beta);
        },
        [=](double x, double y) {
          const double d = std::abs(x - y);
          return d < beta ? d * d / 2 / beta : d - beta / 2;
        });
  for (const double delta : {0.7, 1.0})
    elements(
        rows, "huber_loss",
        [=](const Tensor& x, const Tensor& y, Reduction r) { return huber_loss(x, y, r, delta); },
        [=](double x, double y) {
          const double d = std::abs(x - y);
          return d < delta ? d * d / 2 : delta * (d - delta / 2);
        });
  elements(
      rows, "kl_div", [](const Tensor& x, const Tensor& y, Reduction r) { return kl_div(x, y, r); },
      [](double x, double y) { return y * (std::log(y) - x); }, {.low = 0.05, .high = 2});
  elements(
      rows, "kl_div",
      [](const Tensor& x, const Tensor& y, Reduction r) { return kl_div(x, y, r, true); },
      [](double x, double y) { return std::exp(y) * (y - x); });
  elements(
      rows, "poisson_nll_loss",
      [](const Tensor& x, const Tensor& y, Reduction r) {
        return poisson_nll_loss(x, y, true, false, 1e-8, r);
      },
      [](double x, double y) { return std::exp(x) - y * x; });
  elements(
      rows, "poisson_nll_loss",
      [](const Tensor& x, const Tensor& y, Reduction r) {
        return poisson_nll_loss(x, y, false, true, 0.1, r);
      },
      [](double x, double y) {
        const double more = y * std::log(y) - y + std::log(2 * std::acos(-1.0) * y) / 2;
        return x - y * std::log(x + 0.1) + (y > 1 ? more : 0);
      },
      {.low = 0.2, .high = 4, .kinks = {1}});
  for (const bool full : {false, true})
    rows.push_back({.name = "gaussian_nll_loss",
                    .call =
                        [=](const TensorList& x) {
                          return gaussian_nll_loss(x[0], x[1], x[2], full, 0.3, Reduction::None);
                        },
                    .shapes = {{3, 4}, {3, 4}, {3, 1}},
                    .reference =
                        [=](const Inputs& in) {
                          Line out;
                          for (size_t i = 0; i < 12; ++i)
                            out.push_back(
                                0.5 * (std::log(in[2].v[i / 4]) +
                                       std::pow(in[0].v[i] - in[1].v[i], 2) / in[2].v[i / 4]) +
                                (full ? 0.5 * std::log(2 * std::acos(-1.0)) : 0));
                          return out;
                        },
                    .low = 0.4,
                    .high = 3,
                    .cast = Cast::Float32});
  elements(
      rows, "soft_margin_loss",
      [](const Tensor& x, const Tensor& y, Reduction r) { return soft_margin_loss(x, y, r); },
      [](double x, double y) { return std::log1p(std::exp(-x * y)); });
}

/// ±1; whole numbers leave the loss its dtype.
const Line plus_minus = {1, -1, 1, -1, -1, 1, -1, 1, 1, -1, 1, -1};
Tensor signs(const Shape& shape) {
  const auto n = static_cast<std::ptrdiff_t>(numel(shape));
  return tensor(Line(plus_minus.begin(), plus_minus.begin() + n), kInt64).reshape(shape);
}

double row_dot(const Line& a, const Line& b, size_t row, size_t D) {
  double sum = 0;
  for (size_t i = row * D; i < (row + 1) * D; ++i) sum += a[i] * b[i];
  return sum;
}
double distance(const Line& a, const Line& b, size_t row, size_t D, double p, double eps) {
  double sum = 0;
  for (size_t i = row * D; i < (row + 1) * D; ++i) sum += std::pow(std::abs(a[i] - b[i] + eps), p);
  return std::pow(sum, 1 / p);
}

void margin_rows(Rows& rows) {
  for (const Reduction reduction : kinds) {
    rows.push_back({.name = "hinge_embedding_loss",
                    .call =
                        [=](const TensorList& x) {
                          return hinge_embedding_loss(x[0], signs({3, 4}), 0.8, reduction);
                        },
                    .shapes = {{3, 4}},
                    .reference =
                        [=](const Inputs& in) {
                          Line out;
                          for (size_t i = 0; i < 12; ++i)
                            out.push_back(plus_minus[i] == 1 ? in[0].v[i] : cut(0.8 - in[0].v[i]));
                          return as_reduced(out, reduction);
                        },
                    .kinks = {0.8},
                    .cast = Cast::Float32});
    rows.push_back({.name = "margin_ranking_loss",
                    .call =
                        [=](const TensorList& x) {
                          return margin_ranking_loss(x[0], x[1], signs({3, 4}), 0.3, reduction);
                        },
                    .shapes = {{3, 4}, {3, 4}},
                    .reference =
                        [=](const Inputs& in) {
                          Line out;
                          for (size_t i = 0; i < 12; ++i)
                            out.push_back(cut(0.3 - plus_minus[i] * (in[0].v[i] - in[1].v[i])));
                          return as_reduced(out, reduction);
                        },
                    .cast = Cast::Float32});
    rows.push_back({.name = "cosine_embedding_loss",
                    .call =
                        [=](const TensorList& x) {
                          return cosine_embedding_loss(x[0], x[1], signs({4}), 0.1, reduction);
                        },
                    .shapes = {{4, 3}, {4, 3}},
                    .reference =
                        [=](const Inputs& in) {
                          Line out;
                          for (size_t r = 0; r < 4; ++r) {
                            const Line &a = in[0].v, &b = in[1].v;
                            const double c =
                                row_dot(a, b, r, 3) / std::sqrt((row_dot(a, a, r, 3) + 1e-12) *
                                                                (row_dot(b, b, r, 3) + 1e-12));
                            out.push_back(plus_minus[r] == 1 ? 1 - c : cut(c - 0.1));
                          }
                          return as_reduced(out, reduction);
                        },
                    .cast = Cast::Float32,
                    .one_kernel = false,
                    .eps = 32});
    for (const bool swap : {false, true}) {
      for (const bool own : {false, true}) {
        rows.push_back({.name = own ? "triplet_margin_with_distance_loss" : "triplet_margin_loss",
                        .call =
                            [=](const TensorList& x) {
                              return own ? triplet_margin_with_distance_loss(x[0], x[1], x[2], {},
                                                                             0.9, swap, reduction)
                                         : triplet_margin_loss(x[0], x[1], x[2], 0.9, 2, 1e-6, swap,
                                                               reduction);
                            },
                        .shapes = {{4, 3}, {4, 3}, {4, 3}},
                        .reference =
                            [=](const Inputs& in) {
                              Line out;
                              for (size_t r = 0; r < 4; ++r) {
                                const auto d = [&](size_t i, size_t j) {
                                  return distance(in[i].v, in[j].v, r, 3, 2, 1e-6);
                                };
                                out.push_back(cut(0.9 + d(0, 1) -
                                                  (swap ? std::min(d(0, 2), d(1, 2)) : d(0, 2))));
                              }
                              return as_reduced(out, reduction);
                            },
                        .cast = Cast::Float32,
                        .one_kernel = false,
                        .eps = 32});
      }
    }
  }
}

const Line class_weights = {1, 2, 0.5, 1.5};  // of the classes

void class_margin_rows(Rows& rows) {
  const size_t classes[] = {2, 0, 3};
  for (const Reduction reduction : kinds) {
    for (const int p : {1, 2})
      rows.push_back({.name = "multi_margin_loss",
                      .call =
                          [=](const TensorList& x) {
                            return multi_margin_loss(x[0], tensor({2, 0, 3}, kInt64), p, 0.7,
                                                     tensor(class_weights), reduction);
                          },
                      .shapes = {{3, 4}},
                      .reference =
                          [=](const Inputs& in) {
                            Line out;
                            for (size_t r = 0; r < 3; ++r) {
                              const size_t t = classes[r];
                              double sum = 0;
                              for (size_t c = 0; c < 4; ++c)
                                if (c != t)
                                  sum += class_weights[t] *
                                         std::pow(
                                             cut(0.7 - in[0].v[4 * r + t] + in[0].v[4 * r + c]), p);
                              out.push_back(sum / 4);
                            }
                            return as_reduced(out, reduction);
                          },
                      .cast = Cast::Float32});
    rows.push_back(
        {.name = "multilabel_margin_loss",
         .call =
             [=](const TensorList& x) {
               return multilabel_margin_loss(
                   x[0], tensor({2, 0, -1, 1, -1, 3, 3, 3, 1, 3, 0, 2}, kInt64).reshape({3, 4}),
                   reduction);
             },
         .shapes = {{3, 4}},
         .reference =
             [=](const Inputs& in) {
               const Line& x = in[0].v;
               double sum = 0;
               for (const size_t own : {2, 0})
                 for (const size_t other : {1, 3}) sum += cut(1 - (x[own] - x[other]));
               return as_reduced({sum / 4, 0, 0}, reduction);
             },
         .cast = Cast::Float32});
  }
}

void class_probability_rows(Rows& rows) {
  for (const Reduction reduction : kinds) {
    rows.push_back(
        {.name = "multilabel_soft_margin_loss",
         .call =
             [=](const TensorList& x) {
               return multilabel_soft_margin_loss(x[0], x[1], tensor(class_weights), reduction);
             },
         .shapes = {{3, 4}, {3, 4}},
         .reference =
             [=](const Inputs& in) {
               Line out(3);
               for (size_t i = 0; i < 12; ++i) {
                 const double x = in[0].v[i], y = in[1].v[i];
                 out[i / 4] -= class_weights[i % 4] / 4 *
                               (y * std::log(logistic(x)) + (1 - y) * std::log(logistic(-x)));
               }
               return as_reduced(out, reduction);
             },
         .cast = Cast::Float32});
    // The probabilities of all classes, which get a gradient, too.
    for (const double smoothing : {0.0, 0.1})
      rows.push_back({.name = "cross_entropy of probabilities",
                      .call =
                          [=](const TensorList& x) {
                            return cross_entropy(x[0], x[1], tensor(class_weights), reduction, -100,
                                                 smoothing);
                          },
                      .shapes = {{3, 4}, {3, 4}},
                      .reference =
                          [=](const Inputs& in) {
                            const Line log_p = testing::softmax_rows(in[0].v, 4, true);
                            Line out(3);
                            for (size_t i = 0; i < 12; ++i)
                              out[i / 4] -= class_weights[i % 4] * log_p[i] *
                                            (in[1].v[i] * (1 - smoothing) + smoothing / 4);
                            return as_reduced(out, reduction);
                          },
                      .low = 0.1,
                      .high = 1,
                      .cast = Cast::Float32});
  }
}

void class_place_rows(Rows& rows) {
  for (const Reduction reduction : kinds) {
    // Two places of a sample, the second of which counts nothing in the first sample.
    rows.push_back({.name = "cross_entropy at places",
                    .call =
                        [=](const TensorList& x) {
                          return cross_entropy(x[0], tensor({2, -1, 1, 0}, kInt64).reshape({2, 2}),
                                               tensor(class_weights), reduction, -1, 0.1);
                        },
                    .shapes = {{2, 4, 2}},
                    .reference =
                        [=](const Inputs& in) {
                          Line out(4);
                          const int t[] = {2, -1, 1, 0};
                          double weights = 0;
                          for (size_t n = 0; n < 2; ++n) {
                            for (size_t d = 0; d < 2; ++d) {
                              const int own = t[2 * n + d];
                              if (own < 0) continue;
                              Line x;
                              for (size_t c = 0; c < 4; ++c)
                                x.push_back(in[0].v[8 * n + 2 * c + d]);
                              const Line log_p = testing::softmax_rows(x, 4, true);
                              for (size_t c = 0; c < 4; ++c)
                                out[2 * n + d] -=
                                    class_weights[c] * log_p[c] *
                                    ((static_cast<int>(c) == own ? 0.9 : 0) + 0.1 / 4);
                              weights += class_weights[static_cast<size_t>(own)];
                            }
                          }
                          if (reduction != Reduction::Mean) return as_reduced(out, reduction);
                          return Line{std::accumulate(out.begin(), out.end(), 0.0) / weights};
                        },
                    .cast = Cast::Float32});
    rows.push_back(
        {.name = "nll_loss at places",
         .call =
             [=](const TensorList& x) {
               return nll_loss(x[0], tensor({2, 3, 1, 0}, kInt64).reshape({2, 2}), {}, reduction);
             },
         .shapes = {{2, 4, 2}},
         .reference =
             [=](const Inputs& in) {
               const Line& x = in[0].v;
               return as_reduced({-x[4], -x[7], -x[10], -x[9]}, reduction);
             },
         .cast = Cast::Float32});
  }
}

}  // namespace

void further_loss_rows(Rows& rows) {
  element_rows(rows);
  margin_rows(rows);
  class_margin_rows(rows);
  class_probability_rows(rows);
  class_place_rows(rows);
}

}  // namespace halftape::testing
