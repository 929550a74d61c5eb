// The rows of the formulas of one argument. An expression is written once, and read with double and
// with Real (tests/support/real.h).
#include "halftape/tests/support/rows/unary_rows.h"

#include "halftape/tests/support/ops.h"

namespace halftape::testing {
namespace {

using P = Params<double>;

// The words for double; argument-dependent lookup finds those for Real.
using std::abs, std::acos, std::acosh, std::asin, std::asinh, std::atan, std::atanh, std::ceil,
    std::cos, std::cosh, std::erf, std::erfc, std::exp, std::exp2, std::expm1, std::floor, std::log,
    std::log10, std::log1p, std::log2, std::sin, std::sinh, std::sqrt, std::tan, std::tanh,
    std::trunc;

double power(double x, double a) { return std::pow(x, a); }
double half_to_even(double x) { return std::nearbyint(x); }
double sinpi(double x) { return std::sin(std::acos(-1.0) * x); }
double cospi(double x) { return std::cos(std::acos(-1.0) * x); }
/// Newton's steps from below, which never go beyond the root.
double erfinv(double x) {
  const double a = std::abs(x), z = 1 - a;
  if (!(a < 1)) return a == 1 ? x / 0.0 : std::nan("");
  double y = 0;
  for (int i = 0; i < 100; ++i)
    y += (a < 0.5 ? a - std::erf(y) : std::erfc(y) - z) * std::sqrt(std::acos(-1.0)) / 2 *
         std::exp(y * y);
  return std::copysign(y, x);
}
double tanhshrink(double x) { return x - std::tanh(x); }

template <class T>
T pi() {
  return acos(T(-1));
}
template <class T>
bool is_nan(const T& x) {
  return !(x == x);
}
template <class T>
bool is_infinity(const T& x) {
  return x > 1e300 || x < -1e300;
}
template <class T>
bool is_minus_infinity(const T& x) {
  return x < -1e300;
}
template <class T>
T logistic_of(const T& x) {
  return 1 / (1 + exp(-x));
}
/// ln(1 + eˣ).
template <class T>
T log1p_exp(const T& x) {
  return x > 0 ? x + log1p(exp(-x)) : log1p(exp(x));
}
template <class T>
T normal_density(const T& x) {
  return exp(-(x * x) / 2) / sqrt(2 * pi<T>());
}
template <class T>
T gelu_tanh_slope(const T& x) {
  const T k = 2 * sqrt(2 / pi<T>()), c = 0.044715;
  const T v = k * (x + c * x * x * x), s = logistic_of(v), rest = logistic_of(T(-v));
  return s + x * (s * rest) * k * (1 + 3 * c * x * x);
}
template <class T>
T mish_slope(const T& x) {
  const T t = tanh(log1p(exp(x)));
  return t + x * logistic_of(x) * (1 - t * t);
}
template <class T>
T sinc_slope(const T& x) {
  if (abs(x) < 1e-6) return -(pi<T>() * pi<T>() * x) / 3;  // the next term is 10⁻¹² of it
  return (cospi(x) - sinpi(x) / (pi<T>() * x)) / x;
}

#define OP(name) #name, halftape::name
// An expression of x, or of y, and of the parameters p.
#define OF(x, ...) \
  []<class T>([[maybe_unused]] const T& x, [[maybe_unused]] const P& p) -> T { return __VA_ARGS__; }
#define X(...) OF(x, __VA_ARGS__)
#define Y(...) OF(y, __VA_ARGS__)

// clang-format off
std::vector<UnaryRow> arithmetic() {
  const Cast f32 = Cast::Float32;
  const std::vector<double> whole{-2, -1, 0, 1, 2}, middle{-1.5, -0.5, 0.5, 1.5};
  return {
      {"neg", [](const Tensor& x) { return -x; }, X(-x), X(-1)},
      {OP(abs), X(abs(x)), X(x > 0 ? 1 : x < 0 ? -1 : 0), {.kinks = {0}}},
      {OP(sign), X(x > 0 ? 1 : x < 0 ? -1 : x), X(0), {.kinks = {0}}},
      {OP(square), X(x * x), X(2 * x), {.cast = f32}},
      {OP(sqrt), X(sqrt(x)), Y(1 / (2 * y)), {.low = 0.1, .high = 4}},
      {OP(rsqrt), X(1 / sqrt(x)), Y(-(y * y * y) / 2), {.low = 0.1, .high = 4, .cast = f32}},
      {OP(reciprocal), X(1 / x), Y(-(y * y)), {.low = 0.3, .high = 3, .cast = f32}},
      {OP(floor), X(floor(x)), X(0), {.kinks = whole}},
      {OP(ceil), X(ceil(x)), X(0), {.kinks = whole}},
      {OP(trunc), X(trunc(x)), X(0), {.kinks = whole}},
      {OP(round), X(half_to_even(x)), X(0), {.kinks = middle}},
      {OP(frac), X(x - trunc(x)), X(1), {.kinks = whole}},
      {"affine", [](const Tensor& x) { return affine(x, 1.5, -0.25); }, X(p.a * x + p.b), X(p.a),
       {.parameters = {1.5, -0.25}, .values_at = {{1.5, 0}, {1, -0.25}, {-1, 0}}}},
      {"div_scalar", [](const Tensor& x) { return x / 3.0; }, X(x / p.a), X(1 / T(p.a)),
       {.parameters = {3, 0}, .values_at = {{3, 0}, {0, 0}}}},
      {"scalar_div", [](const Tensor& x) { return 3.0 / x; }, X(p.a / x), X(-p.a / (x * x)),
       {.low = 0.3, .high = 3, .cast = f32, .parameters = {3, 0}}},
      {"pow_scalar", [](const Tensor& x) { return pow(x, 2.5); }, X(power(x, p.a)),
       X(p.a * power(x, p.a - 1)),
       {.low = 0.1, .high = 3, .cast = f32, .parameters = {2.5, 0},
        .values_at = {{2.5, 0}, {3, 0}, {0, 0}, {-1, 0}, {0.5, 0}, {-2.25, 0}}}},
      {"scalar_pow", [](const Tensor& x) { return pow(2.5, x); }, X(power(p.a, x)),
       Y(y * log(T(p.a))),
       {.cast = f32, .parameters = {2.5, 0},
        .values_at = {{2.5, 0}, {0.25, 0}, {4, 0}, {0, 0}, {-1.5, 0}}}},
      {"clamp", [](const Tensor& x) { return clamp(x, -0.5, 1.0); },
       X(x < p.a ? p.a : x > p.b ? p.b : x), X(is_nan(x) || (x > p.a && x < p.b)),
       {.kinks = {-0.5, 1}, .parameters = {-0.5, 1}}},
  };
}

std::vector<UnaryRow> elementary() {
  const Cast f32 = Cast::Float32;
  return {
      {OP(exp), X(exp(x)), Y(y), {.cast = f32}},
      {OP(exp2), X(exp2(x)), Y(y * log(T(2))), {.misrounded_derivatives = 60}},
      {OP(expm1), X(expm1(x)), Y(y + 1), {.cast = f32}},
      {OP(log), X(log(x)), X(1 / x), {.low = 0.1, .high = 4, .cast = f32}},
      {OP(log1p), X(log1p(x)), X(1 / (1 + x)), {.low = -0.8, .high = 4, .cast = f32}},
      {OP(log2), X(log2(x)), X(1 / (x * log(T(2)))), {.low = 0.1, .high = 4, .cast = f32}},
      {OP(log10), X(log10(x)), X(1 / (x * log(T(10)))), {.low = 0.1, .high = 4, .cast = f32}},
      {OP(sin), X(sin(x)), X(cos(x))},
      {OP(cos), X(cos(x)), X(-sin(x))},
      {OP(tan), X(tan(x)), Y(1 + y * y),
       {.low = -1.2, .high = 1.2, .cast = f32, .misrounded_derivatives = 216}},
      {OP(asin), X(asin(x)), X(1 / sqrt(1 - x * x)), {.low = -0.9, .high = 0.9, .cast = f32}},
      {OP(acos), X(acos(x)), X(-1 / sqrt(1 - x * x)), {.low = -0.9, .high = 0.9, .cast = f32}},
      {OP(atan), X(atan(x)), X(1 / (1 + x * x))},
      {OP(sinh), X(sinh(x)), X(cosh(x)), {.cast = f32}},
      {OP(cosh), X(cosh(x)), X(sinh(x)), {.cast = f32}},
      {OP(tanh), X(tanh(x)), Y(1 - y * y)},
      {OP(asinh), X(asinh(x)), X(1 / sqrt(1 + x * x))},
      {OP(acosh), X(acosh(x)), X(1 / (sqrt(x - 1) * sqrt(x + 1))), {.low = 1.2, .high = 4}},
      {OP(atanh), X(atanh(x)), X(1 / (1 - x * x)), {.low = -0.9, .high = 0.9}},
      {OP(erf), X(erf(x)), X(2 / sqrt(pi<T>()) * exp(-(x * x)))},
      {OP(erfc), X(erfc(x)), X(-2 / sqrt(pi<T>()) * exp(-(x * x)))},
      {OP(erfinv), X(erfinv(x)), Y(sqrt(pi<T>()) / 2 * exp(y * y)),
       {.low = -0.9, .high = 0.9, .cast = f32}},
      {OP(sinpi), X(sinpi(x)), X(pi<T>() * cospi(x))},
      {OP(cospi), X(cospi(x)), X(-pi<T>() * sinpi(x))},
      {OP(sinc), X(x == 0 ? 1 : sinpi(x) / (pi<T>() * x)), X(sinc_slope(x))},
      {"logit", [](const Tensor& x) { return logit(x); }, X(log(x / (1 - x))),
       X(1 / (x * (1 - x))), {.low = 0.05, .high = 0.95}},
  };
}

std::vector<UnaryRow> activations() {
  return {
      {OP(sigmoid), X(logistic_of(x)), Y(y * (1 - y)),
       {.low = -6, .high = 6, .misrounded_derivatives = 120}},
      {OP(relu), X(is_nan(x) || x > 0 ? x : 0), Y(is_nan(y) || y > 0), {.kinks = {0}}},
      {"leaky_relu", [](const Tensor& x) { return leaky_relu(x, 0.25); }, X(x > 0 ? x : p.a * x),
       X(x > 0 ? 1 : p.a),
       {.kinks = {0}, .parameters = {0.25, 0}, .values_at = {{0.01f, 0}}, .misrounded = 20}},
      {"elu", [](const Tensor& x) { return elu(x, 1.5, 0.75); },
       X(p.b * (x > 0 ? x : p.a * expm1(x))), X(p.b * (x > 0 ? 1 : p.a * exp(x))),
       {.kinks = {0}, .parameters = {1.5, 0.75}, .values_at = {{1.6732632, 1.0507009}, {0.5, 1}}}},
      {"celu", [](const Tensor& x) { return celu(x, 0.75); }, X(x > 0 ? x : p.a * expm1(x / p.a)),
       X(x > 0 ? 1 : exp(x / p.a)),
       {.kinks = {0}, .parameters = {0.75, 0}, .values_at = {{1, 0}, {0.7f, 0}}}},
      // At −∞ the values of these four tend to −0.
      {"gelu", [](const Tensor& x) { return gelu(x); },
       X(is_minus_infinity(x) ? -0.0 : x / 2 * erfc(-x / sqrt(T(2)))),
       X(is_infinity(x) ? x > 0 : erfc(-x / sqrt(T(2))) / 2 + x * normal_density(x)),
       {.low = -4, .high = 4, .ulps = 2}},
      {"gelu_tanh", [](const Tensor& x) { return gelu(x, "tanh"); },
       X(is_minus_infinity(x)
             ? -0.0
             : x * logistic_of(T(2 * sqrt(2 / pi<T>()) * (x + T(0.044715) * x * x * x)))),
       X(is_infinity(x) ? x > 0 : gelu_tanh_slope(x)), {.low = -2, .high = 4, .ulps = 2}},
      {OP(silu), X(is_minus_infinity(x) ? -0.0 : x * logistic_of(x)),
       X(is_infinity(x) ? x > 0 : logistic_of(x) * (1 + x * logistic_of(T(-x)))),
       {.low = -4, .high = 4, .ulps = 2, .misrounded_derivatives = 12}},
      {OP(mish), X(is_minus_infinity(x) ? -0.0 : x * tanh(log1p(exp(x)))),
       X(is_infinity(x) ? x > 0 : mish_slope(x)), {.low = -5, .high = 4, .ulps = 2}},
      {"softplus", [](const Tensor& x) { return softplus(x, 2.5, 5); },
       X(p.a * x > p.b ? x : log1p_exp(T(p.a * x)) / p.a),
       X(p.a * x > p.b ? 1 : logistic_of(T(p.a * x))),
       {.low = -4, .high = 4, .kinks = {2}, .cast = Cast::Float32,
        .parameters = {2.5, 5}, .values_at = {{1, 20}, {2.5, 5}}}},
      {OP(log_sigmoid), X(x < 0 ? x - log1p(exp(x)) : -log1p(exp(-x))),
       X(logistic_of(T(-x))), {.low = -6, .high = 6}},
      {OP(softsign), X(is_infinity(x) ? (x > 0 ? 1 : -1) : x / (1 + abs(x))),
       X(1 / ((1 + abs(x)) * (1 + abs(x)))), {.kinks = {0}}},
      {OP(hardsigmoid), X(is_nan(x) ? x : x < -3 ? 0 : x > 3 ? 1 : (x + 3) / 6),
       X(is_nan(x) || (x > -3 && x < 3) ? T(1) / 6 : 0),
       {.low = -5, .high = 5, .kinks = {-3, 3}}},
      {OP(hardswish),
       X(is_nan(x) ? x : x < -3 || x == -3 ? 0 : x > 3 ? x : x * (x + 3) / 6),
       X(x < -3 || x == -3 ? 0 : x > 3 || x == 3 ? 1 : (2 * x + 3) / 6),
       {.low = -5, .high = 5, .kinks = {-3, 3}}},
      {OP(tanhshrink), X(tanhshrink(x)), X(tanh(x) * tanh(x)), {.kinks = {-0.3, 0.3}}},
      {"softshrink", [](const Tensor& x) { return softshrink(x); },
       X(is_nan(x) ? x : x > p.a ? x - p.a : x < -p.a ? x + p.a : 0),
       X(is_nan(x) || abs(x) > p.a),
       {.kinks = {-0.5, 0.5}, .parameters = {0.5, 0}, .values_at = {{0.5, 0}, {0, 0}}}},
      {"hardshrink", [](const Tensor& x) { return hardshrink(x); },
       X(is_nan(x) || abs(x) > p.a ? x : 0), X(is_nan(x) || abs(x) > p.a),
       {.kinks = {-0.5, 0.5}, .parameters = {0.5, 0}}},
      {"threshold", [](const Tensor& x) { return threshold(x, 0.5, -3); },
       X(is_nan(x) || x > p.a ? x : p.b), X(is_nan(x) || x > p.a),
       {.kinks = {0.5}, .parameters = {0.5, -3}}},
  };
}
// clang-format on
#undef OP
#undef OF
#undef X
#undef Y

}  // namespace

std::span<const UnaryRow> unary_rows() {
  static const std::vector<UnaryRow> all = [] {
    std::vector<UnaryRow> rows = arithmetic();
    for (const auto& more : {elementary(), activations()})
      rows.insert(rows.end(), more.begin(), more.end());
    return rows;
  }();
  return all;
}

const UnaryRow* find_unary_row(std::string_view name) {
  for (const UnaryRow& row : unary_rows())
    if (row.name == name) return &row;
  return nullptr;
}

void formula_rows(std::vector<OpRow>& rows) {
  for (const UnaryRow& row : unary_rows())
    for (const Shape& shape : {Shape{3, 5}, Shape{}, Shape{2, 1, 3}, Shape{0}, Shape{2, 0, 3}})
      rows.push_back({.name = row.name,
                      .call = [call = row.call](const TensorList& x) { return call(x[0]); },
                      .shapes = {shape},
                      .reference =
                          [&row](const std::vector<Values>& in) {
                            std::vector<double> out;
                            for (const double x : in[0].v)
                              out.push_back(row.value.plain(x, row.use.parameters));
                            return out;
                          },
                      .low = row.use.low,
                      .high = row.use.high,
                      .kinks = row.use.kinks,
                      .cast = row.use.cast});
}

}  // namespace halftape::testing
