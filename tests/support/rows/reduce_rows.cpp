// Rows of the op table: sums, products, softmax, extrema and conditions. The other reductions stand
// in statistics_rows.cpp and running_rows.cpp.
#include "halftape/tests/support/rows/reduce_rows.h"

#include <numeric>

#include "halftape/tests/support/nonfinite.h"

namespace halftape::testing {
namespace {

Tensor turned(const Tensor& x) { return transpose(x, 0, -1); }

double largest(const Line& x) { return *std::max_element(x.begin(), x.end()); }
double smallest(const Line& x) { return *std::min_element(x.begin(), x.end()); }
double product(const Line& x) {
  return std::accumulate(x.begin(), x.end(), 1.0, std::multiplies<>());
}

void fold_rows(Rows& rows) {
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
}

void probability_rows(Rows& rows) {
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

/// Adds a row with one input.
auto reduction_adder(Rows& rows) {
  return [&rows](const char* name, Shape shape, std::function<Tensor(const Tensor&)> call,
                 Reference reference, bool differentiable = true) {
    rows.push_back({.name = name,
                    .call = [call](const TensorList& x) { return call(x[0]); },
                    .shapes = {shape},
                    .reference = std::move(reference),
                    .differentiable = differentiable});
  };
}

void extremum_rows(Rows& rows) {
  const auto row = reduction_adder(rows);
  for (const Shape& shape : {Shape{3, 4}, Shape{}, Shape{7}}) {
    row(
        "max", shape, [](const Tensor& x) { return max(x); }, grouped({}, largest));
    row(
        "min", shape, [](const Tensor& x) { return min(x); }, grouped({}, smallest));
    row(
        "median", shape, [](const Tensor& x) { return median(x); },
        grouped({}, [](const Line& x) { return sorted(x)[(x.size() - 1) / 2]; }));
  }
}

/// The quantile of a line, from its definition.
double quantile_of(Line x, double q, std::string_view way) {
  x = sorted(std::move(x));
  const double place = q * static_cast<double>(x.size() - 1), low = std::floor(place);
  const auto at = [&](double p) { return x[static_cast<size_t>(p)]; };
  if (way == "lower") return at(low);
  if (way == "higher") return at(std::ceil(place));
  if (way == "nearest") return at(std::nearbyint(place));
  const double w = way == "linear" ? place - low : place == low ? 0 : 0.5;
  return at(low) * (1 - w) + at(std::ceil(place)) * w;
}

void quantile_rows(Rows& rows) {
  const auto row = reduction_adder(rows);
  const size_t first = rows.size();
  for (const char* way : {"linear", "lower", "higher", "nearest", "midpoint"}) {
    for (const double q : {0.0, 0.25, 0.4, 1.0}) {
      const auto of = [=](const Line& x) { return quantile_of(x, q, way); };
      row(
          "quantile", {3, 4}, [=](const Tensor& x) { return quantile(x, q, {}, true, way); },
          grouped({}, of));
      row(
          "quantile along a dimension", {3, 6, 2},
          [=](const Tensor& x) { return quantile(x, q, 1, false, way); }, grouped({1}, of));
      row(
          "nanquantile along a dimension", {3, 6},
          [=](const Tensor& x) { return nanquantile(x, q, -1, true, way); }, grouped({-1}, of));
    }
  }
  row(
      "quantile of a list", {7},
      [](const Tensor& x) {
        return x.quantile(tensor({0.5, 0.1}, kFloat64), 0);
      },
      [](const std::vector<Values>& in) {
        return Line{quantile_of(in[0].v, 0.5, "linear"), quantile_of(in[0].v, 0.1, "linear")};
      });
  // Between values of both signs little may be left of either.
  for (size_t i = first; i < rows.size(); ++i) rows[i].eps = 512;
}

void extremum_along_rows(Rows& rows) {
  const auto row = reduction_adder(rows);
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
}

void extremum_of_two_rows(Rows& rows) {
  rows.push_back({.name = "max of two",
                  .call = [](const TensorList& x) { return max(x[0], x[1]); },
                  .shapes = {{3, 4}, {4}},
                  .reference = elementwise2([](double a, double b) { return std::max(a, b); })});
  rows.push_back({.name = "min of two",
                  .call = [](const TensorList& x) { return min(x[0], x[1]); },
                  .shapes = {{3, 4}, {4}},
                  .reference = elementwise2([](double a, double b) { return std::min(a, b); })});
}

void condition_rows(Rows& rows) {
  const auto row = reduction_adder(rows);
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

}  // namespace

void reduce_rows(Rows& rows) {
  fold_rows(rows);
  probability_rows(rows);
  product_rows(rows);
  extremum_rows(rows);
  extremum_along_rows(rows);
  quantile_rows(rows);
  extremum_of_two_rows(rows);
  condition_rows(rows);
  statistics_rows(rows);
  running_rows(rows);
}

}  // namespace halftape::testing
