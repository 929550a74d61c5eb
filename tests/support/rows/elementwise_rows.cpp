// Rows of the op table: element-wise functions that are not one formula of one argument.
#include "halftape/tests/support/ops.h"

namespace halftape::testing {
namespace {

const double kPi = std::acos(-1.0);
Tensor sixteenths(const Tensor& x) { return (16 * x).to(kInt32); }

struct DrawnFrom {
  double low = -2, high = 2;
  std::vector<double> kinks = {};
  Cast cast = Cast::Keep;
  bool differentiable = true;
};

void functions_of_one(Rows& rows) {
  auto row = [&](const char* name, Tensor (*call)(const Tensor&), double (*f)(double),
                 DrawnFrom use = {}) {
    for (const Shape& shape : {Shape{3, 5}, Shape{}, Shape{2, 0, 3}})
      rows.push_back({.name = name,
                      .call = [call](const TensorList& x) { return call(x[0]); },
                      .shapes = {shape},
                      .reference = elementwise(f),
                      .low = use.low,
                      .high = use.high,
                      .kinks = use.kinks,
                      .cast = use.cast});
  };
  const Cast f32 = Cast::Float32;
  row(
      "logit with eps", [](const Tensor& x) { return logit(x, 0.2); },
      [](double x) {
        const double c = std::min(std::max(x, 0.2), 0.8);
        return std::log(c / (1 - c));
      },
      {.low = 0.05, .high = 0.95, .kinks = {0.2, 0.8}});
  row("sgn", sgn, [](double x) { return x > 0 ? 1.0 : -1.0; }, {.kinks = {0}});
  row("positive", positive, [](double x) { return x; });
  row("deg2rad", deg2rad, [](double x) { return x * (kPi / 180); }, {.low = -180, .high = 180});
  row("rad2deg", rad2deg, [](double x) { return x * (180 / kPi); });
  row(
      "scalar_pow", [](const Tensor& x) { return pow(0.0, x); }, [](double) { return 0.0; },
      {.low = 0.5, .cast = f32});
  row(
      "clamp_min", [](const Tensor& x) { return clamp_min(x, -0.5); },
      [](double x) { return std::max(x, -0.5); }, {.kinks = {-0.5}});
  row(
      "clamp_max", [](const Tensor& x) { return clamp_max(x, 1); },
      [](double x) { return std::min(x, 1.0); }, {.kinks = {1}});
  row(
      "rsub", [](const Tensor& x) { return rsub(x, 2.5, 3); },
      [](double x) { return 2.5 - 3 * x; });
  row(
      "add with alpha", [](const Tensor& x) { return add(x, 2.5, 3); },
      [](double x) { return x + 7.5; });
  // Activations
  row("relu6", relu6, [](double x) { return std::min(std::max(x, 0.0), 6.0); },
      {.low = -2, .high = 8, .kinks = {0, 6}});
  row("selu", selu,
      [](double x) {
        return 1.0507009873554804934 * (x > 0 ? x : 1.6732632423543772848 * std::expm1(x));
      },
      {.kinks = {0}});
  row(
      "hardtanh", [](const Tensor& x) { return hardtanh(x); },
      [](double x) { return std::min(std::max(x, -1.0), 1.0); }, {.kinks = {-1, 1}});
  row(
      "nan_to_num", [](const Tensor& x) { return nan_to_num(x); }, [](double x) { return x; });
}

/// Adds rows of two inputs in several shapes.
auto of_two(Rows& rows) {
  return [&rows](const char* name, Tensor (*call)(const Tensor&, const Tensor&),
                 double (*f)(double, double), DrawnFrom use = {}) {
    const std::pair<Shape, Shape> pairs[] = {
        {{3, 4}, {3, 4}}, {{3, 1}, {4}}, {{}, {2, 3}}, {{0, 3}, {3}}, {{}, {}}};
    for (const auto& [a, b] : pairs)
      rows.push_back({.name = name,
                      .call = [call](const TensorList& x) { return call(x[0], x[1]); },
                      .shapes = {a, b},
                      .reference = elementwise2(f),
                      .low = use.low,
                      .high = use.high,
                      .kinks = use.kinks,
                      .cast = use.cast,
                      .differentiable = use.differentiable});
  };
}

void arithmetic_rows(Rows& rows) {
  const auto row = of_two(rows);
  const DrawnFrom positive{.low = 0.3, .high = 3};
  row("pow", pow, [](double a, double b) { return std::pow(a, b); },
      {.low = 0.3, .high = 3, .cast = Cast::Float32});
  row("atan2", atan2, [](double a, double b) { return std::atan2(a, b); },
      {.kinks = {0}, .cast = Cast::Widest});
  row("hypot", hypot, [](double a, double b) { return std::hypot(a, b); }, {.kinks = {0}});
  row(
      "xlogy", xlogy, [](double a, double b) { return a * std::log(b); }, positive);
  row("copysign", copysign, [](double a, double b) { return std::copysign(a, b); }, {.kinks = {0}});
  row(
      "fmod", fmod, [](double a, double b) { return std::fmod(a, b); }, positive);
  row(
      "remainder", remainder, [](double a, double b) { return a - b * std::floor(a / b); },
      positive);
  row("remainder of either sign", remainder,
      [](double a, double b) { return a - b * std::floor(a / b); },
      {.low = -0.9, .high = 4, .kinks = {0}});
  row(
      "floor_divide", floor_divide, [](double a, double b) { return std::floor(a / b); }, positive);
  row(
      "trunc_divide", [](const Tensor& a, const Tensor& b) { return div(a, b, "trunc"); },
      [](double a, double b) { return std::trunc(a / b); }, positive);
  row(
      "div to the floor", [](const Tensor& a, const Tensor& b) { return div(a, b, "floor"); },
      [](double a, double b) { return std::floor(a / b); }, positive);
  row("fmax", fmax, [](double a, double b) { return std::max(a, b); });
  row("fmin", fmin, [](double a, double b) { return std::min(a, b); });
  row("clamp_min", clamp_min, [](double a, double b) { return std::max(a, b); });
  row("clamp_max", clamp_max, [](double a, double b) { return std::min(a, b); });
  row(
      "add with alpha", [](const Tensor& a, const Tensor& b) { return add(a, b, 2.5); },
      [](double a, double b) { return a + 2.5 * b; });
  row(
      "sub with alpha", [](const Tensor& a, const Tensor& b) { return sub(a, b, 2.5); },
      [](double a, double b) { return a - 2.5 * b; });
  row(
      "rsub", [](const Tensor& a, const Tensor& b) { return rsub(a, b); },
      [](double a, double b) { return b - a; });
  row(
      "lerp", [](const Tensor& a, const Tensor& b) { return lerp(a, b, 0.3); },
      [](double a, double b) { return a + 0.3 * (b - a); });
  row(
      "lerp", [](const Tensor& a, const Tensor& b) { return lerp(a, b, 0.8); },
      [](double a, double b) { return a + 0.8 * (b - a); });
}

/// Logic of whole parts, some of which are 0; bits of sixteenths.
void logic_rows(Rows& rows) {
  const auto row = of_two(rows);
  const DrawnFrom no_gradient{.differentiable = false};
  row(
      "logical_and",
      [](const Tensor& a, const Tensor& b) { return logical_and(made(a, trunc), made(b, trunc)); },
      [](double a, double b) { return double(std::trunc(a) != 0 && std::trunc(b) != 0); },
      no_gradient);
  row(
      "logical_or",
      [](const Tensor& a, const Tensor& b) { return logical_or(made(a, trunc), made(b, trunc)); },
      [](double a, double b) { return double(std::trunc(a) != 0 || std::trunc(b) != 0); },
      no_gradient);
  row(
      "logical_xor",
      [](const Tensor& a, const Tensor& b) { return logical_xor(made(a, trunc), made(b, trunc)); },
      [](double a, double b) { return double((std::trunc(a) != 0) != (std::trunc(b) != 0)); },
      no_gradient);
  row(
      "bitwise_and",
      [](const Tensor& a, const Tensor& b) { return made(a, sixteenths) & made(b, sixteenths); },
      [](double a, double b) { return double(int(16 * a) & int(16 * b)); }, no_gradient);
  row(
      "bitwise_or",
      [](const Tensor& a, const Tensor& b) { return made(a, sixteenths) | made(b, sixteenths); },
      [](double a, double b) { return double(int(16 * a) | int(16 * b)); }, no_gradient);
  row(
      "bitwise_xor",
      [](const Tensor& a, const Tensor& b) { return made(a, sixteenths) ^ made(b, sixteenths); },
      [](double a, double b) { return double(int(16 * a) ^ int(16 * b)); }, no_gradient);
}

void prelu_rows(Rows& rows) {
  for (const auto& [x, weight] : {std::pair<Shape, Shape>{{2, 3, 4}, {3}},
                                  {{2, 3}, {3}},
                                  {{5}, {1}},
                                  {{}, {}},
                                  {{0, 3}, {3}}})
    rows.push_back({.name = "prelu",
                    .call = [](const TensorList& in) { return prelu(in[0], in[1]); },
                    .shapes = {x, weight},
                    .reference =
                        [](const std::vector<Values>& in) {
                          std::vector<double> out;
                          each_index(in[0].shape, [&](const Dims& i) {
                            const double v = in[0].v[position(in[0].shape, i)];
                            const size_t c = in[1].v.size() == 1 ? 0 : static_cast<size_t>(i[1]);
                            out.push_back(v > 0 ? v : in[1].v[c] * v);
                          });
                          return out;
                        },
                    .kinks = {0},
                    .cast = Cast::Lower});
}

void of_three(Rows& rows) {
  auto row = [&](const char* name, Tensor (*call)(const Tensor&, const Tensor&, const Tensor&),
                 double (*f)(double, double, double), DrawnFrom use = {}) {
    const std::array<Shape, 3> triples[] = {{Shape{3, 4}, Shape{3, 4}, Shape{3, 4}},
                                            {Shape{3, 1}, Shape{4}, Shape{2, 1, 1}},
                                            {Shape{}, Shape{}, Shape{}},
                                            {Shape{0, 3}, Shape{3}, Shape{}}};
    for (const auto& [a, b, c] : triples)
      rows.push_back({.name = name,
                      .call = [call](const TensorList& x) { return call(x[0], x[1], x[2]); },
                      .shapes = {a, b, c},
                      .reference =
                          [f](const std::vector<Values>& in) {
                            std::vector<double> out;
                            const Shape both = broadcast("reference", in[0].shape, in[1].shape);
                            each_index(broadcast("reference", both, in[2].shape),
                                       [&](const Dims& i) {
                                         out.push_back(f(in[0].v[position(in[0].shape, i)],
                                                         in[1].v[position(in[1].shape, i)],
                                                         in[2].v[position(in[2].shape, i)]));
                                       });
                            return out;
                          },
                      .low = use.low,
                      .high = use.high,
                      .kinks = use.kinks,
                      .cast = use.cast});
  };
  row(
      "lerp by tensor",
      [](const Tensor& a, const Tensor& b, const Tensor& w) { return lerp(a, b, w); },
      [](double a, double b, double w) { return a + w * (b - a); }, {.kinks = {-0.5, 0.5}});
  row(
      "addcmul",
      [](const Tensor& x, const Tensor& a, const Tensor& b) { return addcmul(x, a, b, -1.5); },
      [](double x, double a, double b) { return x - 1.5 * a * b; }, {.cast = Cast::Widest});
  row(
      "addcdiv", [](const Tensor& x, const Tensor& a, const Tensor& b) { return addcdiv(x, a, b); },
      [](double x, double a, double b) { return x + a / b; },
      {.low = 0.3, .high = 3, .cast = Cast::Widest});
  row(
      "clamp by tensors",
      [](const Tensor& x, const Tensor& low, const Tensor& high) { return clamp(x, low, high); },
      [](double x, double low, double high) { return std::min(std::max(x, low), high); });
}

void of_parts(Rows& rows) {
  for (const int dim : {-1, 0})
    rows.push_back({.name = "glu",
                    .call = [dim](const TensorList& x) { return glu(x[0], dim); },
                    .shapes = {{4, 6}},
                    .reference =
                        [dim](const std::vector<Values>& in) {
                          std::vector<double> out;
                          const size_t rows_kept = dim == 0 ? 2 : 4, kept = dim == 0 ? 6 : 3,
                                       other = dim == 0 ? 12 : 3;
                          for (size_t i = 0; i < rows_kept; ++i)
                            for (size_t j = 0; j < kept; ++j)
                              out.push_back(in[0].v[i * 6 + j] *
                                            logistic(in[0].v[i * 6 + j + other]));
                          return out;
                        }});
  rows.push_back({.name = "heaviside",
                  .call = [](const TensorList& x) { return heaviside(made(x[0], trunc), x[1]); },
                  .shapes = {{3, 4}, {4}},
                  .reference = elementwise2([](double x, double v) {
                    return std::trunc(x) == 0 ? v : x > 0 ? 1.0 : 0.0;
                  }),
                  .kinks = {-1, 1}});
}

}  // namespace

void elementwise_rows(Rows& rows) {
  functions_of_one(rows);
  arithmetic_rows(rows);
  logic_rows(rows);
  prelu_rows(rows);
  of_three(rows);
  of_parts(rows);
}

}  // namespace halftape::testing
