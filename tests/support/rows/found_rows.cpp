// Rows of the op table: what is counted, found and said of numbers, mostly without a gradient; and
// the bytes of a tensor under another layout.
#include <algorithm>

#include "halftape/tests/support/ops.h"

namespace halftape::testing {
namespace {

/// Which are positive, as bools and as classes; every tensor can be asked.
Tensor positive_ones(const Tensor& x) { return x > 0; }
Tensor classes(const Tensor& x) { return (x > 0).to(kInt64); }
Tensor row_major(const Tensor& x) { return contiguous(x); }
/// Positive elements stay finite, the others are NaN, ∞ or −∞.
Tensor or_nan(const Tensor& x) { return x * 0 / (x > 0); }
Tensor or_infinite(const Tensor& x) { return x * x / (x > 0); }
Tensor or_below(const Tensor& x) { return x / (x > 0); }

/// Of runs of signs in row-major order: the sign, the length, and for each element its run.
struct Runs {
  std::vector<double> values, counts, inverse;
  explicit Runs(const std::vector<double>& x) {
    for (double v : x) {
      const double sign = v > 0 ? 1 : 0;
      if (values.empty() || values.back() != sign) values.push_back(sign), counts.push_back(0);
      ++counts.back();
      inverse.push_back(static_cast<double>(values.size() - 1));
    }
  }
};

std::vector<double> lower_median(std::vector<double> x) {
  std::sort(x.begin(), x.end());
  return {x[(x.size() - 1) / 2]};
}

/// How many of a are below b, or not above it.
std::vector<double> places(const Values& sorted, const Values& of, bool right) {
  std::vector<double> out;
  for (double v : of.v)
    out.push_back(static_cast<double>(std::count_if(
        sorted.v.begin(), sorted.v.end(), [&](double b) { return right ? b <= v : b < v; })));
  return out;
}

using In = const std::vector<Values>&;
using Out = std::vector<double>;

void said_rows(std::vector<OpRow>& rows) {
  auto row = [&](const char* name, std::function<Tensor(const TensorList&)> call, double positive,
                 double negative) {
    rows.push_back({.name = name,
                    .call = std::move(call),
                    .shapes = {{3, 5}},
                    .reference =
                        [=](In in) {
                          Out out;
                          for (double x : in[0].v) out.push_back(x > 0 ? positive : negative);
                          return out;
                        },
                    .differentiable = false});
  };
  using List = const TensorList&;
  row(
      "isnan", [](List x) { return isnan(made(x[0], or_nan)); }, 0, 1);
  row(
      "isnan of infinities", [](List x) { return isnan(made(x[0], or_infinite)); }, 0, 0);
  row(
      "isinf", [](List x) { return isinf(made(x[0], or_below)); }, 0, 1);
  row(
      "isposinf", [](List x) { return isposinf(made(x[0], or_infinite)); }, 0, 1);
  row(
      "isposinf below", [](List x) { return isposinf(made(x[0], or_below)); }, 0, 0);
  row(
      "isneginf", [](List x) { return isneginf(made(x[0], or_below)); }, 0, 1);
  row(
      "isneginf above", [](List x) { return isneginf(made(x[0], or_infinite)); }, 0, 0);
  row(
      "isfinite", [](List x) { return isfinite(made(x[0], or_nan)); }, 1, 0);
  row(
      "logical_not", [](List x) { return logical_not(made(x[0], positive_ones)); }, 0, 1);
  row(
      "bitwise_not", [](List x) { return bitwise_not(made(x[0], positive_ones)); }, 0, 1);
  row(
      "isfinite of infinities", [](List x) { return isfinite(made(x[0], or_below)); }, 1, 0);
}

void counted_rows(std::vector<OpRow>& rows) {
  auto row = [&](const char* name, const std::vector<Shape>& shapes,
                 std::function<Tensor(const TensorList&)> call, std::function<Out(In)> reference) {
    rows.push_back({.name = name,
                    .call = std::move(call),
                    .shapes = shapes,
                    .reference = std::move(reference),
                    .differentiable = false});
  };
  using List = const TensorList&;
  row(
      "histc", {{4, 5}}, [](List x) { return histc(x[0], 5, -1.5, 1); },
      [](In in) {
        Out out(5);
        for (double x : in[0].v)
          if (x >= -1.5 && x <= 1) ++out[std::min<size_t>(4, static_cast<size_t>((x + 1.5) / 0.5))];
        return out;
      });
  row(
      "unique_consecutive", {{3, 4}},
      [](List x) { return std::get<0>(unique_consecutive(made(x[0], positive_ones))); },
      [](In in) { return Runs(in[0].v).values; });
  row(
      "unique_consecutive, inverse", {{3, 4}},
      [](List x) { return std::get<1>(unique_consecutive(made(x[0], positive_ones), true)); },
      [](In in) { return Runs(in[0].v).inverse; });
  row(
      "unique_consecutive, counts", {{3, 4}},
      [](List x) {
        return std::get<2>(unique_consecutive(made(x[0], positive_ones), false, true));
      },
      [](In in) { return Runs(in[0].v).counts; });
  row(
      "_unique2", {{3, 4}}, [](List x) { return std::get<0>(_unique2(x[0])); },
      [](In in) {
        Out out = in[0].v;
        std::sort(out.begin(), out.end());
        return out;
      });
  row(
      "_unique2, inverse", {{3, 4}},
      [](List x) { return std::get<1>(_unique2(made(x[0], positive_ones), true, true)); },
      [](In in) {
        Out out;
        for (double x : in[0].v) out.push_back(x > 0);
        return out;
      });
  row(
      "bincount", {{5}},
      [](List x) {
        return bincount(tensor({1, 3, 3, 0, 5}), x[0], 7);
      },
      [](In in) {
        const Out& w = in[0].v;
        return Out{w[3], w[0], 0, w[1] + w[2], 0, w[4], 0};
      });
  rows.back().one_kernel = false;  // in float64 for all but float32
  rows.back().needed = 0;
  row(
      "searchsorted", {{6}, {2, 3}}, [](List x) { return searchsorted(made(x[0], msort), x[1]); },
      [](In in) { return places(in[0], in[1], false); });
  row(
      "bucketize", {{2, 3}, {6}},
      [](List x) { return bucketize(x[0], made(x[1], msort), false, true); },
      [](In in) { return places(in[1], in[0], true); });
  row(
      "one_hot", {{2, 3}}, [](List x) { return one_hot(made(x[0], classes), 3); },
      [](In in) {
        Out out;
        for (double x : in[0].v)
          for (int c : {0, 1, 2}) out.push_back((x > 0 ? 1 : 0) == c);
        return out;
      });
  const std::pair<const char*, Tensor (*)(const Tensor&)> positions[] = {{"nonzero", nonzero},
                                                                         {"argwhere", argwhere}};
  for (const auto& [name, of] : positions)
    row(
        name, {{3, 4}}, [f = of](List x) { return f(made(x[0], positive_ones)); },
        [](In in) {
          Out out;
          for (size_t i = 0; i < in[0].v.size(); ++i)
            if (in[0].v[i] > 0)
              for (size_t at : {i / 4, i % 4}) out.push_back(static_cast<double>(at));
          return out;
        });
  row(
      "isclose", {{3, 4}, {4}}, [](List x) { return isclose(x[0], x[1], 0.5, 0.3); },
      elementwise2(
          [](double a, double b) { return double(std::abs(a - b) <= 0.3 + 0.5 * std::abs(b)); }));
}

void found_layout_rows(std::vector<OpRow>& rows) {
  auto row = [&](const char* name, const std::vector<Shape>& shapes,
                 std::function<Tensor(const TensorList&)> call, std::function<Out(In)> reference) {
    with_square(rows, {.name = name,
                       .call = std::move(call),
                       .shapes = shapes,
                       .reference = std::move(reference)});
  };
  using List = const TensorList&;
  const auto at = [](int64_t i) { return Dims{i / 4, i % 4}; };
  row(
      "view", {{3, 4}},
      [](List x) {
        return view(made(x[0], row_major), {2, 6});
      },
      same);
  row(
      "as_strided", {{3, 4}},
      [](List x) {
        return as_strided(made(x[0], row_major), {2, 3}, {5, 1});
      },
      picked({2, 3}, [at](Dims i) { return at(5 * i[0] + i[1]); }));
  row(
      "as_strided, overlapping", {{3, 4}},
      [](List x) {
        return as_strided(made(x[0], row_major), {5, 3}, {2, 1});
      },
      picked({5, 3}, [at](Dims i) { return at(2 * i[0] + i[1]); }));
  row(
      "as_strided_scatter", {{3, 4}, {2, 3}},
      [](List x) {
        return as_strided_scatter(made(x[0], row_major), x[1], {2, 3}, {5, 1});
      },
      [](In in) {
        Out out = in[0].v;
        for (size_t i = 0; i < 6; ++i) out[i / 3 * 5 + i % 3] = in[1].v[i];
        return out;
      });
  row(
      "nanmedian", {{3, 4}}, [](List x) { return nanmedian(x[0]); },
      [](In in) { return lower_median(in[0].v); });
  row(
      "nanmedian of rows", {{3, 4}}, [](List x) { return std::get<0>(nanmedian(x[0], 1)); },
      [](In in) {
        Out out;
        for (auto r = in[0].v.begin(); r != in[0].v.end(); r += 4)
          out.push_back(lower_median({r, r + 4})[0]);
        return out;
      });
}

}  // namespace

void found_rows(std::vector<OpRow>& rows) {
  said_rows(rows);
  counted_rows(rows);
  found_layout_rows(rows);
}

}  // namespace halftape::testing
