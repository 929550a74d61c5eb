// The rows of the op table.
#include "halftape/tests/support/ops.h"

namespace halftape::testing {
namespace {

void number_rows(Rows& rows) {
  auto row = [&](const char* name, Tensor (*call)(const Tensor&), double (*f)(double),
                 Cast cast = Cast::Keep, double low = -2, double high = 2) {
    for (const Shape& shape : {Shape{3, 5}, Shape{}, Shape{2, 1, 3}, Shape{0}, Shape{2, 0, 3}})
      rows.push_back({.name = name,
                      .call = [call](const TensorList& x) { return call(x[0]); },
                      .shapes = {shape},
                      .reference = elementwise(f),
                      .low = low,
                      .high = high,
                      .cast = cast});
  };
  const Cast f32 = Cast::Float32;
  row(
      "softplus", [](const Tensor& x) { return softplus(x); },
      [](double x) { return std::log1p(std::exp(x)); }, f32, -4, 4);
  row(
      "pow_scalar", [](const Tensor& x) { return pow(x, 3); }, [](double x) { return x * x * x; },
      f32);
  row(
      "add 1.5", [](const Tensor& x) { return x + 1.5; }, [](double x) { return x + 1.5; });
  row(
      "rsub from 1.5", [](const Tensor& x) { return 1.5 - x; }, [](double x) { return 1.5 - x; });
  row(
      "mul 3", [](const Tensor& x) { return x * 3; }, [](double x) { return x * 3; });
}

void binary_rows(Rows& rows) {
  auto row = [&](const char* name, Tensor (*call)(const Tensor&, const Tensor&),
                 double (*f)(double, double), bool differentiable = true, double low = -2,
                 double high = 2) {
    const std::pair<Shape, Shape> pairs[] = {{{3, 4}, {3, 4}},    {{3, 1}, {4}}, {{}, {2, 3}},
                                             {{2, 1, 3}, {4, 1}}, {{0, 3}, {3}}, {{}, {}}};
    for (const auto& [a, b] : pairs)
      rows.push_back({.name = name,
                      .call = [call](const TensorList& x) { return call(x[0], x[1]); },
                      .shapes = {a, b},
                      .reference = elementwise2(f),
                      .low = low,
                      .high = high,
                      .differentiable = differentiable});
  };
  row("add", add, [](double a, double b) { return a + b; });
  row("sub", sub, [](double a, double b) { return a - b; });
  row("mul", mul, [](double a, double b) { return a * b; });
  row(
      "div", div, [](double a, double b) { return a / b; }, true, 0.3, 3);
  row("maximum", maximum, [](double a, double b) { return std::max(a, b); });
  row("minimum", minimum, [](double a, double b) { return std::min(a, b); });
  row(
      "eq", eq, [](double a, double b) { return double(a == b); }, false);
  row(
      "ne", ne, [](double a, double b) { return double(a != b); }, false);
  row(
      "lt", lt, [](double a, double b) { return double(a < b); }, false);
  row(
      "le", le, [](double a, double b) { return double(a <= b); }, false);
  row(
      "gt", gt, [](double a, double b) { return double(a > b); }, false);
  row(
      "ge", ge, [](double a, double b) { return double(a >= b); }, false);
  // The same tensor on both sides: both gradients arrive at one input.
  rows.push_back({.name = "mul with itself",
                  .call = [](const TensorList& x) { return x[0] * x[0]; },
                  .shapes = {{3, 4}},
                  .reference = elementwise([](double x) { return x * x; })});
  rows.push_back({.name = "where",
                  .call =
                      [](const TensorList& x) {
                        const Tensor c = tensor({1.0, 0.0, 0.0, 1.0}) > 0.5;
                        return where(c, x[0], x[1]);
                      },
                  .shapes = {{3, 4}, {3, 1}},
                  .reference =
                      [](const std::vector<Values>& in) {
                        std::vector<double> out;
                        each_index({3, 4}, [&](const Dims& i) {
                          const bool c = i[1] == 0 || i[1] == 3;
                          out.push_back(in[c ? 0 : 1].v[position(in[c ? 0 : 1].shape, i)]);
                        });
                        return out;
                      }});
}

/// Adds a row of one input.
auto of_one(Rows& rows) {
  return [&rows](const char* name, Shape shape, std::function<Tensor(const Tensor&)> call,
                 std::function<std::vector<double>(const std::vector<Values>&)> reference) {
    rows.push_back({.name = name,
                    .call = [call](const TensorList& x) { return call(x[0]); },
                    .shapes = {shape},
                    .reference = std::move(reference)});
  };
}

void view_rows(Rows& rows) {
  const auto row = of_one(rows);
  row(
      "reshape", {2, 6},
      [](const Tensor& x) {
        return reshape(x, {3, -1});
      },
      same);
  row(
      "flatten", {2, 3, 2}, [](const Tensor& x) { return flatten(x, 1); }, same);
  row(
      "squeeze", {2, 1, 3, 1}, [](const Tensor& x) { return squeeze(x); }, same);
  row(
      "squeeze(1)", {2, 1, 3}, [](const Tensor& x) { return squeeze(x, 1); }, same);
  row(
      "unsqueeze", {2, 3}, [](const Tensor& x) { return unsqueeze(x, -1); }, same);
  row(
      "clone", {2, 3}, [](const Tensor& x) { return clone(x); }, same);
  row(
      "contiguous", {2, 3}, [](const Tensor& x) { return contiguous(x); }, same);
  row(
      "transpose", {2, 3, 4}, [](const Tensor& x) { return transpose(x, 0, -1); },
      picked({4, 3, 2}, [](Dims i) {
        return Dims{i[2], i[1], i[0]};
      }));
  row(
      "permute", {2, 3, 4},
      [](const Tensor& x) {
        return permute(x, {1, 2, 0});
      },
      picked({3, 4, 2}, [](Dims i) {
        return Dims{i[2], i[0], i[1]};
      }));
}

void part_rows(Rows& rows) {
  const auto row = of_one(rows);
  row(
      "expand", {3, 1},
      [](const Tensor& x) {
        return expand(x, {2, -1, 4});
      },
      picked({2, 3, 4}, [](Dims i) {
        return Dims{i[1], 0};
      }));
  row(
      "slice", {5, 3}, [](const Tensor& x) { return slice(x, 0, 1, 5, 2); },
      picked({2, 3}, [](Dims i) {
        return Dims{1 + 2 * i[0], i[1]};
      }));
  row(
      "slice from the end", {4, 3}, [](const Tensor& x) { return slice(x, 1, -2, 100); },
      picked({4, 2}, [](Dims i) {
        return Dims{i[0], 1 + i[1]};
      }));
  row(
      "select", {3, 4}, [](const Tensor& x) { return select(x, 1, -1); }, picked({3}, [](Dims i) {
        return Dims{i[0], 3};
      }));
  row(
      "narrow", {3, 4}, [](const Tensor& x) { return x.narrow(1, 1, 2); },
      picked({3, 2}, [](Dims i) {
        return Dims{i[0], 1 + i[1]};
      }));
  row(
      "sum_to", {2, 3, 4},
      [](const Tensor& x) {
        return sum_to(x, {3, 1});
      },
      folded({0, 2}, 0, [](double a, double b) { return a + b; }));
}

void picking_rows(Rows& rows) {
  const auto row = of_one(rows);
  row(
      "gather", {3, 4},
      [](const Tensor& x) {
        return gather(x, 1, tensor({3, 3, 0, 1, 2, 2}, kInt64).reshape({3, 2}));
      },
      picked({3, 2}, [](Dims i) {
        return Dims{i[0],
                    std::vector<int64_t>{3, 3, 0, 1, 2, 2}[static_cast<size_t>(i[0] * 2 + i[1])]};
      }));
  row(
      "index_select", {3, 4},
      [](const Tensor& x) {
        return index_select(x, 0, tensor({2, 0, 2, 1}, kInt64));
      },
      picked({4, 4}, [](Dims i) {
        return Dims{std::vector<int64_t>{2, 0, 2, 1}[static_cast<size_t>(i[0])], i[1]};
      }));
  rows.push_back(
      {.name = "scatter_add",
       .call =
           [](const TensorList& x) {
             return scatter_add(x[0], 1, tensor({3, 3, 0, 1, 2, 2}, kInt64).reshape({3, 2}), x[1]);
           },
       .shapes = {{3, 4}, {3, 2}},
       .reference =
           [](const std::vector<Values>& in) {
             std::vector<double> out = in[0].v;
             const size_t at[] = {3, 3, 4, 5, 10, 10};
             for (size_t i = 0; i < 6; ++i) out[at[i]] += in[1].v[i];
             return out;
           },
       .cast = Cast::Widest,
       .one_kernel = false});
}

/// On a copy: the history goes through them.
void in_place_rows(Rows& rows) {
  auto in_place = [&](const char* name, Tensor& (*write)(Tensor&, const Tensor&),
                      double (*f)(double, double), double low) {
    rows.push_back({.name = name,
                    .call =
                        [write](const TensorList& x) {
                          Tensor y = made(x[0], clone);
                          return write(y, x[1]);
                        },
                    .shapes = {{3, 4}, {4}},
                    .reference = elementwise2(f),
                    .low = low,
                    .high = 2});
  };
  in_place(
      "add_", [](Tensor& a, const Tensor& b) -> Tensor& { return a.add_(b); },
      [](double a, double b) { return a + b; }, -2);
  in_place(
      "sub_", [](Tensor& a, const Tensor& b) -> Tensor& { return a.sub_(b); },
      [](double a, double b) { return a - b; }, -2);
  in_place(
      "mul_", [](Tensor& a, const Tensor& b) -> Tensor& { return a.mul_(b); },
      [](double a, double b) { return a * b; }, -2);
  in_place(
      "div_", [](Tensor& a, const Tensor& b) -> Tensor& { return a.div_(b); },
      [](double a, double b) { return a / b; }, 0.3);
  in_place(
      "copy_", [](Tensor& a, const Tensor& b) -> Tensor& { return a.copy_(b); },
      [](double, double b) { return b; }, -2);
}

void loss_rows(Rows& rows) {
  for (const Reduction reduction : {Reduction::None, Reduction::Mean, Reduction::Sum}) {
    rows.push_back({.name = "mse_loss",
                    .call = [=](const TensorList& x) { return mse_loss(x[0], x[1], reduction); },
                    .shapes = {{3, 4}, {3, 4}},
                    .reference =
                        [=](const std::vector<Values>& in) {
                          std::vector<double> out;
                          for (size_t i = 0; i < in[0].v.size(); ++i)
                            out.push_back(std::pow(in[0].v[i] - in[1].v[i], 2));
                          return as_reduced(out, reduction);
                        },
                    .cast = Cast::Float32});
    rows.push_back({.name = "binary_cross_entropy_with_logits",
                    .call =
                        [=](const TensorList& x) {
                          return binary_cross_entropy_with_logits(x[0], x[1], {}, {}, reduction);
                        },
                    .shapes = {{3, 4}, {3, 4}},
                    .reference =
                        [=](const std::vector<Values>& in) {
                          std::vector<double> out;
                          for (size_t i = 0; i < in[0].v.size(); ++i) {
                            const double x = in[0].v[i], y = in[1].v[i], p = logistic(x);
                            out.push_back(-(y * std::log(p) + (1 - y) * std::log(1 - p)));
                          }
                          return as_reduced(out, reduction);
                        },
                    .low = 0.05,
                    .high = 0.95,
                    .cast = Cast::Float32});
    rows.push_back(
        {.name = "binary_cross_entropy",
         .call =
             [=](const TensorList& x) { return binary_cross_entropy(x[0], x[1], {}, reduction); },
         .shapes = {{3, 4}, {3, 4}},
         .reference =
             [=](const std::vector<Values>& in) {
               std::vector<double> out;
               for (size_t i = 0; i < in[0].v.size(); ++i)
                 out.push_back(-(in[1].v[i] * std::log(in[0].v[i]) +
                                 (1 - in[1].v[i]) * std::log(1 - in[0].v[i])));
               return as_reduced(out, reduction);
             },
         .low = 0.05,
         .high = 0.95,
         .cast = Cast::Refuse});
    // Classes 2, 0, ignored; weights of the classes; smoothing towards 1/C.
    for (const double smoothing : {0.0, 0.1}) {
      rows.push_back({.name = "cross_entropy",
                      .call =
                          [=](const TensorList& x) {
                            return cross_entropy(x[0], tensor({2, 0, -100}, kInt64),
                                                 tensor({1.0, 2.0, 0.5, 1.5}), reduction, -100,
                                                 smoothing);
                          },
                      .shapes = {{3, 4}},
                      .reference =
                          [=](const std::vector<Values>& in) {
                            const std::vector<double> log_p = softmax_rows(in[0].v, 4, true);
                            const double w[] = {1, 2, 0.5, 1.5};
                            auto smooth = [&](size_t row) {
                              double sum = 0;
                              for (size_t c = 0; c < 4; ++c) sum -= w[c] * log_p[row * 4 + c];
                              return sum / 4;
                            };
                            std::vector<double> out{
                                (1 - smoothing) * -w[2] * log_p[2] + smoothing * smooth(0),
                                (1 - smoothing) * -w[0] * log_p[4] + smoothing * smooth(1), 0};
                            if (reduction == Reduction::Mean)
                              return std::vector<double>{(out[0] + out[1]) / (w[2] + w[0])};
                            return as_reduced(out, reduction);
                          },
                      .cast = Cast::Float32});
    }
    rows.push_back({.name = "nll_loss",
                    .call =
                        [=](const TensorList& x) {
                          return nll_loss(x[0], tensor({2, 0, 3}, kInt64), {}, reduction);
                        },
                    .shapes = {{3, 4}},
                    .reference =
                        [=](const std::vector<Values>& in) {
                          return as_reduced({-in[0].v[2], -in[0].v[4], -in[0].v[11]}, reduction);
                        },
                    .cast = Cast::Float32});
  }
}

}  // namespace

std::vector<OpRow> op_table() {
  Rows rows;
  formula_rows(rows);
  number_rows(rows);
  binary_rows(rows);
  reduce_rows(rows);
  matrix_rows(rows);
  linear_rows(rows);
  view_rows(rows);
  part_rows(rows);
  picking_rows(rows);
  in_place_rows(rows);
  loss_rows(rows);
  further_loss_rows(rows);
  elementwise_rows(rows);
  shape_rows(rows);
  index_rows(rows);
  found_rows(rows);
  norm_rows(rows);
  random_rows(rows);
  conv_rows(rows);
  pool_rows(rows);
  resample_rows(rows);
  attention_rows(rows);
  recurrent_rows(rows);
  return rows;
}

}  // namespace halftape::testing
