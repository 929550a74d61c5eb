// Rows of the op table: running reductions, differences, order.
#include <numeric>

#include "halftape/tests/support/rows/reduce_rows.h"

namespace halftape::testing {
namespace {

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

/// Each element f(the result before it, the element).
auto folding(double (*f)(double, double)) {
  return [f](Line x) {
    for (size_t i = 1; i < x.size(); ++i) x[i] = f(x[i - 1], x[i]);
    return x;
  };
}

/// Adds rows of f along several dimensions of several shapes.
auto scan_adder(Rows& rows) {
  return [&rows](std::string name, std::function<Tensor(const Tensor&, int64_t)> call,
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
}

void scan_rows(Rows& rows) {
  const auto row = scan_adder(rows);
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
      "logcumsumexp", [](const Tensor& x, int64_t d) { return logcumsumexp(x, d); },
      folding([](double a, double b) { return std::log(std::exp(a) + std::exp(b)); }));
  rows.push_back({.name = "cumsum of a number",
                  .call = [](const TensorList& x) { return cumsum(x[0], 0); },
                  .shapes = {{}},
                  .reference = same,
                  .cast = Cast::Float32});
}

void order_rows(Rows& rows) {
  const auto row = scan_adder(rows);
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
  rows.push_back({.name = "msort",
                  .call = [](const TensorList& x) { return msort(x[0]); },
                  .shapes = {{5, 2}},
                  .reference = along(0, [](const Line& x) { return sorted(x); })});
}

void difference_rows(Rows& rows) {
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
}

void scan_in_place_rows(Rows& rows) {
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

void running_rows(Rows& rows) {
  scan_rows(rows);
  order_rows(rows);
  difference_rows(rows);
  scan_in_place_rows(rows);
}

}  // namespace halftape::testing
