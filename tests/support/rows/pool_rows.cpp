// Rows of the op table: pooling.
#include <algorithm>
#include <numeric>

#include "halftape/tests/support/windows_reference.h"

namespace halftape::testing {
namespace {

double largest_of(const std::vector<double>& v) { return *std::max_element(v.begin(), v.end()); }
double sum_of(const std::vector<double>& v) { return std::accumulate(v.begin(), v.end(), 0.0); }

struct PoolUse {
  const char* name;
  Shape x;
  Windows w;  // padding and all
  Shape count;
  std::function<Tensor(const Tensor&)> call;
  std::function<double(const std::vector<double>&)> f;
  Cast cast = Cast::Keep;
  double low = -2;
};
void pool_row(Rows& rows, const PoolUse& u) {
  with_square(rows, {.name = u.name,
                     .call = [=](const TensorList& x) { return u.call(x[0]); },
                     .shapes = {u.x},
                     .reference =
                         [=](const std::vector<Values>& in) {
                           return pool_reference(in[0], u.w, u.count, u.f);
                         },
                     .low = u.low,
                     .cast = u.cast});
}

void max_pool_rows(Rows& rows) {
  const Windows line{3, 2, 1, 1}, square{{2, 3}, {1, 2}, {2, 1}, {0, 1}},
      even{{2, 2}, {2, 2}, {1, 1}, {0, 0}}, cube{{2, 2, 2}, {2, 2, 2}, {1, 1, 1}, {0, 0, 0}};
  pool_row(rows, {"max_pool1d",
                  {2, 2, 8},
                  line,
                  4,
                  [](const Tensor& x) { return max_pool1d(x, 3, 2, 1); },
                  largest_of});
  pool_row(rows, {"max_pool1d_with_indices",
                  {2, 2, 8},
                  line,
                  4,
                  [](const Tensor& x) { return std::get<0>(max_pool1d_with_indices(x, 3, 2, 1)); },
                  largest_of});
  pool_row(rows, {"max_pool2d",
                  {2, 1, 4, 4},
                  even,
                  {2, 2},
                  [](const Tensor& x) { return max_pool2d(x, 2); },
                  largest_of});
  pool_row(rows, {"max_pool2d, overlapping, padded, dilated",
                  {2, 4, 5},
                  square,
                  {2, 3},
                  [](const Tensor& x) {
                    return max_pool2d(x, {2, 3}, {1, 2}, {0, 1}, {2, 1});
                  },
                  largest_of});
  pool_row(rows, {"max_pool2d_with_indices, a last window beyond the end",
                  {1, 2, 5, 5},
                  even,
                  {3, 3},
                  [](const Tensor& x) {
                    return std::get<0>(max_pool2d_with_indices(x, 2, 2, 0, 1, true));
                  },
                  largest_of});
  pool_row(rows, {"max_pool3d",
                  {1, 2, 4, 2, 3},
                  cube,
                  {2, 1, 1},
                  [](const Tensor& x) { return max_pool3d(x, 2); },
                  largest_of});
  pool_row(rows, {"max_pool3d_with_indices",
                  {1, 2, 4, 2, 3},
                  cube,
                  {2, 1, 1},
                  [](const Tensor& x) { return std::get<0>(max_pool3d_with_indices(x, 2)); },
                  largest_of});
  // Back to where the indices say.
  const auto unpool = [&](const char* name, Shape x, Shape to, std::vector<int64_t> at, auto call) {
    const int64_t block = numel(to), picked = static_cast<int64_t>(at.size());
    with_square(rows, {.name = name,
                       .call =
                           [=](const TensorList& in) {
                             Shape as = in[0].defined() ? in[0].sizes() : x;
                             if (numel(as) != numel(x)) as = x;
                             Tensor index = tensor(at, kInt64);
                             index = index.repeat({numel(x) / picked}).reshape(as);
                             return call(in[0], index, to);
                           },
                       .shapes = {x},
                       .reference =
                           [=](const std::vector<Values>& in) {
                             const auto n = static_cast<int64_t>(in[0].v.size()) / picked;
                             std::vector<double> y(static_cast<size_t>(n * block), 0);
                             for (int64_t i = 0; i < n * picked; ++i)
                               y[size_t(i / picked * block + at[size_t(i % picked)])] =
                                   in[0].v[size_t(i)];
                             return y;
                           }});
  };
  unpool("max_unpool1d", {2, 2, 2}, {5}, {3, 0}, max_unpool1d);
  unpool("max_unpool2d", {2, 2, 2, 1}, {3, 2}, {5, 1}, max_unpool2d);
  unpool("max_unpool3d", {2, 1, 2, 1, 1}, {2, 2, 2}, {7, 2}, max_unpool3d);
}

void avg_pool_rows(Rows& rows) {
  const auto mean_by = [](double n) {
    return [n](const std::vector<double>& v) { return sum_of(v) / n; };
  };
  const auto mean = [](const std::vector<double>& v) {
    return sum_of(v) / static_cast<double>(v.size());
  };
  const Windows line{3, 2, 1, 1}, square{{2, 3}, {1, 2}, {1, 1}, {1, 1}},
      cube{{2, 2, 2}, {2, 1, 1}, {1, 1, 1}, {0, 0, 0}};
  pool_row(rows, {"avg_pool1d",
                  {2, 2, 8},
                  line,
                  4,
                  [](const Tensor& x) { return avg_pool1d(x, 3, 2, 1); },
                  mean_by(3)});
  pool_row(rows, {"avg_pool2d",
                  {2, 3, 5},
                  square,
                  {4, 3},
                  [](const Tensor& x) {
                    return avg_pool2d(x, {2, 3}, {1, 2}, 1);
                  },
                  mean_by(6)});
  pool_row(rows, {"avg_pool2d, padding not counted",
                  {1, 2, 3, 5},
                  square,
                  {4, 3},
                  [](const Tensor& x) {
                    return avg_pool2d(x, {2, 3}, {1, 2}, 1, false, false);
                  },
                  mean});
  pool_row(rows, {"avg_pool2d by a number",
                  {1, 2, 3, 5},
                  square,
                  {4, 3},
                  [](const Tensor& x) {
                    return avg_pool2d(x, {2, 3}, {1, 2}, 1, false, true, 4);
                  },
                  mean_by(4)});
  pool_row(rows, {"avg_pool2d, a last window beyond the end",
                  {1, 2, 5, 4},
                  Windows{{2, 2}, {2, 2}, {1, 1}, {0, 0}},
                  {3, 2},
                  [](const Tensor& x) { return avg_pool2d(x, 2, 2, 0, true); },
                  mean});
  pool_row(rows, {"avg_pool2d of many",
                  {1, 1, 9, 9},
                  Windows{{9, 8}, {1, 1}, {1, 1}, {0, 0}},
                  {1, 2},
                  [](const Tensor& x) {
                    return avg_pool2d(x, {9, 8}, 1);
                  },
                  mean});
  pool_row(rows, {"avg_pool3d",
                  {1, 2, 4, 3, 2},
                  cube,
                  {2, 2, 1},
                  [](const Tensor& x) {
                    return avg_pool3d(x, 2, {2, 1, 1});
                  },
                  mean});
  const auto root = [](const std::vector<double>& v) {
    double sum = 0;
    for (double x : v) sum += x * x * x;
    return std::cbrt(sum);
  };
  pool_row(rows, {"lp_pool1d",
                  {2, 1, 6},
                  Windows{2, 2, 1, 0},
                  3,
                  [](const Tensor& x) { return lp_pool1d(x, 3, 2); },
                  root,
                  Cast::Float32,
                  0.3});
  pool_row(rows, {"lp_pool2d",
                  {1, 2, 4, 3},
                  Windows{{2, 2}, {2, 1}, {1, 1}, {0, 0}},
                  {2, 2},
                  [](const Tensor& x) {
                    return lp_pool2d(x, 3, 2, {2, 1});
                  },
                  root,
                  Cast::Float32,
                  0.3});
  pool_row(rows, {"lp_pool3d",
                  {1, 1, 2, 2, 4},
                  Windows{{2, 2, 2}, {2, 2, 2}, {1, 1, 1}, {0, 0, 0}},
                  {1, 1, 2},
                  [](const Tensor& x) { return lp_pool3d(x, 3, 2); },
                  root,
                  Cast::Float32,
                  0.3});
}

/// Adaptive windows by their definition.
void adaptive_rows(Rows& rows) {
  const auto row = [&](const char* name, const Shape& x, const Shape& count, auto call, auto f) {
    with_square(
        rows, {.name = name,
               .call = [=](const TensorList& in) { return call(in[0], count); },
               .shapes = {x},
               .reference =
                   [=](const std::vector<Values>& in) {
                     const int n = count.size(), lead = x.size() - n;
                     std::vector<double> y;
                     each_index(shape_of(first_of(in[0].shape, lead), count), [&](const Dims& at) {
                       std::vector<double> seen;
                       each_index(in[0].shape, [&](const Dims& s) {
                         bool inside = true;
                         for (int i = 0; i < lead; ++i) inside = inside && s[i] == at[i];
                         for (int i = lead; i < x.size(); ++i) {
                           const double part = double(in[0].shape[i]) / double(count[i - lead]);
                           inside = inside && s[i] >= std::floor(double(at[i]) * part + 1e-9) &&
                                    s[i] < std::ceil(double(at[i] + 1) * part - 1e-9);
                         }
                         if (inside) seen.push_back(in[0].v[position(in[0].shape, s)]);
                       });
                       y.push_back(f(seen));
                     });
                     return y;
                   }});
  };
  const auto mean = [](const std::vector<double>& v) {
    return sum_of(v) / static_cast<double>(v.size());
  };
  const auto first = [](auto f) {
    return [f](const Tensor& x, const Shape& count) { return std::get<0>(f(x, count)); };
  };
  row("adaptive_avg_pool1d", {2, 2, 7}, {3}, adaptive_avg_pool1d, mean);
  row("adaptive_avg_pool1d of even parts", {2, 2, 6}, {3}, adaptive_avg_pool1d, mean);
  row("adaptive_avg_pool2d", {2, 4, 5}, {3, 2}, adaptive_avg_pool2d, mean);
  row("adaptive_avg_pool2d to one", {2, 2, 3, 4}, {1, 1}, adaptive_avg_pool2d, mean);
  row("adaptive_avg_pool3d", {1, 1, 3, 2, 4}, {2, 3, 2}, adaptive_avg_pool3d, mean);
  row("adaptive_max_pool1d", {2, 2, 7}, {3}, first(adaptive_max_pool1d), largest_of);
  row("adaptive_max_pool2d", {1, 2, 4, 5}, {3, 2}, first(adaptive_max_pool2d), largest_of);
  row("adaptive_max_pool2d of even parts", {2, 4, 6}, {2, 2}, first(adaptive_max_pool2d),
      largest_of);
  row("adaptive_max_pool3d", {1, 1, 3, 2, 4}, {2, 1, 3}, first(adaptive_max_pool3d), largest_of);
}

/// Windows that begin where the samples say: begins[channel][dimension], worked out by hand.
void fractional_row(Rows& rows, const char* name, const Shape& x, const Shape& size,
                    const std::vector<std::vector<std::vector<int64_t>>>& begins, auto call) {
  with_square(
      rows, {.name = name,
             .call = [=](const TensorList& in) { return call(in[0]); },
             .shapes = {x},
             .reference =
                 [=](const std::vector<Values>& in) {
                   Shape count;
                   for (const auto& along : begins[0])
                     count.push_back(static_cast<int64_t>(along.size()));
                   std::vector<double> y;
                   each_index(shape_of(first_of(x, 2), count), [&](const Dims& at) {
                     std::vector<double> seen;
                     each_index(size, [&](const Dims& inside) {
                       Dims place{at[0], at[1]};
                       for (int i = 0; i < size.size(); ++i)
                         place.push_back(begins[static_cast<size_t>(at[1])][static_cast<size_t>(i)]
                                               [static_cast<size_t>(at[2 + i])] +
                                         inside[i]);
                       seen.push_back(in[0].v[position(x, place)]);
                     });
                     y.push_back(largest_of(seen));
                   });
                   return y;
                 }});
}

void fractional_rows(Rows& rows) {
  // Width before height: α is 3 of the widths and 1.5 of the heights.
  fractional_row(rows, "fractional_max_pool2d", {1, 2, 5, 6}, {2, 3},
                 {{{0, 2, 3}, {0, 3}}, {{0, 1, 3}, {0, 3}}}, [](const Tensor& x) {
                   return std::get<0>(fractional_max_pool2d(x, {2, 3}, {3, 2},
                                                            tensor({{{0.1, 0.5}, {0.3, 0.9}}})));
                 });
  // Depth, height, width: α is 1.5 of the depths.
  fractional_row(rows, "fractional_max_pool3d", {1, 1, 5, 2, 3}, {2, 1, 3},
                 {{{0, 1, 3}, {0, 1}, {0}}}, [](const Tensor& x) {
                   return std::get<0>(
                       fractional_max_pool3d(x, {2, 1, 3}, {3, 2, 1}, tensor({{{0.9, 0.2, 0.4}}})));
                 });
}

}  // namespace

void pool_rows(Rows& rows) {
  fractional_rows(rows);
  max_pool_rows(rows);
  avg_pool_rows(rows);
  adaptive_rows(rows);
}

}  // namespace halftape::testing
