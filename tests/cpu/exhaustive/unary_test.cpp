// Every unary op on all 65,536 values of float16 and bfloat16, against MPFR rounded correctly.
#include <doctest/doctest.h>

#if HALFTAPE_HAVE_MPFR
#include <halftape/halftape.h>

#include <map>
#include <numeric>

#include "halftape/tests/support/real.h"

using namespace halftape;
using namespace halftape::testing;

namespace {

struct Reference {
  Real (*f)(const Real&, Params<double>);
  std::vector<Params<double>> parameters = {{}};
};

const std::map<std::string, Reference>& references() {
  using P = Params<double>;
  static const std::map<std::string, Reference> all{
      {"neg", {[](const Real& x, P) { return -x; }}},
      {"abs", {[](const Real& x, P) { return abs(x); }}},
      {"sign", {[](const Real& x, P) { return x > 0   ? Real(1)
                                              : x < 0 ? Real(-1)
                                                      : x; }}},
      {"square", {[](const Real& x, P) { return x * x; }}},
      {"sqrt", {[](const Real& x, P) { return sqrt(x); }}},
      {"rsqrt", {[](const Real& x, P) { return 1.0 / sqrt(x); }}},
      {"reciprocal", {[](const Real& x, P) { return 1.0 / x; }}},
      {"floor", {[](const Real& x, P) { return whole(mpfr_floor, x); }}},
      {"ceil", {[](const Real& x, P) { return whole(mpfr_ceil, x); }}},
      {"trunc", {[](const Real& x, P) { return whole(mpfr_trunc, x); }}},
      {"round", {[](const Real& x, P) { return half_to_even(x); }}},
      {"frac", {[](const Real& x, P) { return x - whole(mpfr_trunc, x); }}},
      {"affine",
       {[](const Real& x, P p) { return p.a * x + p.b; }, {{1.5, 0}, {1, -0.25}, {-1, 0}}}},
      {"div_scalar", {[](const Real& x, P p) { return x / p.a; }, {{3, 0}, {0, 0}}}},
      {"scalar_div", {[](const Real& x, P p) { return p.a / x; }, {{3, 0}}}},
      {"pow_scalar",
       {[](const Real& x, P p) { return power(x, p.a); },
        {{2.5, 0}, {3, 0}, {0, 0}, {-1, 0}, {0.5, 0}, {-2.25, 0}}}},
      {"scalar_pow",
       {[](const Real& x, P p) { return power(p.a, x); },
        {{2.5, 0}, {0.25, 0}, {4, 0}, {0, 0}, {-1.5, 0}}}},
      {"clamp",
       {[](const Real& x, P p) { return x < p.a   ? Real(p.a)
                                        : x > p.b ? Real(p.b)
                                                  : x; },
        {{-0.5, 1}}}},
      {"exp", {[](const Real& x, P) { return exp(x); }}},
      {"exp2", {[](const Real& x, P) { return exp2(x); }}},
      {"expm1", {[](const Real& x, P) { return expm1(x); }}},
      {"log", {[](const Real& x, P) { return log(x); }}},
      {"log1p", {[](const Real& x, P) { return log1p(x); }}},
      {"log2", {[](const Real& x, P) { return log2(x); }}},
      {"log10", {[](const Real& x, P) { return log10(x); }}},
      {"sin", {[](const Real& x, P) { return sin(x); }}},
      {"cos", {[](const Real& x, P) { return cos(x); }}},
      {"tan", {[](const Real& x, P) { return tan(x); }}},
      {"asin", {[](const Real& x, P) { return asin(x); }}},
      {"acos", {[](const Real& x, P) { return acos(x); }}},
      {"atan", {[](const Real& x, P) { return atan(x); }}},
      {"sinh", {[](const Real& x, P) { return sinh(x); }}},
      {"cosh", {[](const Real& x, P) { return cosh(x); }}},
      {"tanh", {[](const Real& x, P) { return tanh(x); }}},
      {"asinh", {[](const Real& x, P) { return asinh(x); }}},
      {"acosh", {[](const Real& x, P) { return acosh(x); }}},
      {"atanh", {[](const Real& x, P) { return atanh(x); }}},
      {"erf", {[](const Real& x, P) { return erf(x); }}},
      {"erfc", {[](const Real& x, P) { return erfc(x); }}},
      {"sinpi", {[](const Real& x, P) { return sinpi(x); }}},
      {"cospi", {[](const Real& x, P) { return cospi(x); }}},
      {"sinc", {[](const Real& x, P) { return x == 0.0 ? Real(1) : sinpi(x) / (pi() * x); }}},
      {"logit", {[](const Real& x, P) { return log(x / (1.0 - x)); }}},
      {"sigmoid", {[](const Real& x, P) { return logistic(x); }}},
      {"relu", {[](const Real& x, P) { return x.is_nan() || x > 0 ? x : Real(0); }}},
      {"leaky_relu", {[](const Real& x, P p) { return x > 0 ? x : p.a * x; }, {{0.01f, 0}}}},
      {"elu",
       {[](const Real& x, P p) { return p.b * (x > 0 ? x : p.a * expm1(x)); },
        {{1.6732632, 1.0507009}, {0.5, 1}}}},
      {"celu",
       {[](const Real& x, P p) { return x > 0 ? x : p.a * expm1(x / p.a); }, {{1, 0}, {0.7f, 0}}}},
      // At −∞ these four tend to −0.
      {"gelu", {[](const Real& x, P) {
         return is_minus_infinity(x) ? Real(-0.0) : x / 2.0 * erfc(-x / sqrt(Real(2)));
       }}},
      {"gelu_tanh", {[](const Real& x, P) {
         if (is_minus_infinity(x)) return Real(-0.0);
         return x * logistic(2.0 * sqrt(2.0 / pi()) * (x + Real(0.044715) * x * x * x));
       }}},
      {"silu",
       {[](const Real& x, P) { return is_minus_infinity(x) ? Real(-0.0) : x * logistic(x); }}},
      {"mish", {[](const Real& x, P) {
         return is_minus_infinity(x) ? Real(-0.0) : x * tanh(log1p(exp(x)));
       }}},
      {"softplus",
       {[](const Real& x, P p) {
          const Real t = p.a * x;
          if (t > p.b) return x;
          const Real tail = log1p(exp(t > 0 ? -t : t));
          return (t > 0 ? t + tail : tail) / p.a;
        },
        {{1, 20}, {2.5, 5}}}},
      {"log_sigmoid",
       {[](const Real& x, P) { return x < 0 ? x - log1p(exp(x)) : -log1p(exp(-x)); }}},
      {"softsign", {[](const Real& x, P) {
         return is_infinity(x) ? Real(x > 0 ? 1 : -1) : x / (1.0 + abs(x));
       }}},
      {"hardsigmoid", {[](const Real& x, P) {
         return x.is_nan() ? x : x < -3.0 ? Real(0) : x > 3.0 ? Real(1) : (x + 3.0) / 6.0;
       }}},
      {"hardswish", {[](const Real& x, P) {
         return x.is_nan()              ? x
                : x == -3.0 || x < -3.0 ? Real(0)
                : x > 3.0               ? x
                                        : x * (x + 3.0) / 6.0;
       }}},
      {"tanhshrink", {[](const Real& x, P) { return tanhshrink(x); }}},
      {"softshrink",
       {[](const Real& x, P p) {
          return x.is_nan() ? x : x > p.a ? x - p.a : x < -p.a ? x + p.a : Real(0);
        },
        {{0.5, 0}, {0, 0}}}},
      {"hardshrink",
       {[](const Real& x, P p) { return x.is_nan() || abs(x) > p.a ? x : Real(0); }, {{0.5, 0}}}},
      {"threshold",
       {[](const Real& x, P p) { return x.is_nan() || x > p.a ? x : Real(p.b); }, {{0.5, -3}}}},
  };
  return all;
}

template <class T>
void check_all() {
  Tensor x = empty({65536}, TensorOptions(dtype_of<T>).device(kCPU));
  for (uint32_t bits = 0; bits < 65536; ++bits)
    x.data_ptr<T>()[bits] = T::from_bits(static_cast<uint16_t>(bits));
  const Tensor given = x.to(get_default_device());
  for (const UnaryEntry& op : unary_ops()) {
    REQUIRE_MESSAGE(references().count(op.name), op.name);
    const Reference& reference = references().at(op.name);
    for (const Params<double> p : reference.parameters) {
      INFO(std::string(op.name) << " with parameter " << p.a << " in "
                                << std::string(std::is_same_v<T, Half> ? "float16" : "bfloat16"));
      const Tensor y = op.call(given, {p.a, p.b}).cpu();
      REQUIRE(y.dtype() == dtype_of<T>);
      int wrong_class = 0, off_by_one = 0, beyond = 0;
      std::ostringstream first;
      for (uint32_t i = 0; i < 65536; ++i) {
        const double in = static_cast<double>(x.const_data_ptr<T>()[i]);
        const T got = y.const_data_ptr<T>()[i], exact(reference.f(in, p).rounded_to_odd());
        const double g = static_cast<double>(got), e = static_cast<double>(exact);
        const int apart = std::abs(ordered(got.bits) - ordered(exact.bits));
        const bool classes_differ = std::isnan(g) != std::isnan(e) ||
                                    (!std::isnan(e) && (std::isinf(g) != std::isinf(e) ||
                                                        std::signbit(g) != std::signbit(e)));
        if (!std::isnan(e) && apart == 1) ++off_by_one;
        if (classes_differ || (!std::isnan(e) && apart > 1)) {
          if (wrong_class + beyond == 0)
            first << "first at x = " << in << ": got " << g << ", exactly " << e;
          ++(classes_differ ? wrong_class : beyond);
        }
      }
      INFO(first.str());
      CHECK(wrong_class == 0);
      CHECK(beyond == 0);
      // Computed in float32, a result is the correctly rounded one but for values very near a tie.
      CHECK(off_by_one < 32);
    }
  }
}

}  // namespace

TEST_CASE("every unary op is right for all 65,536 float16 inputs") { check_all<Half>(); }
TEST_CASE("every unary op is right for all 65,536 bfloat16 inputs") { check_all<BFloat16>(); }

#endif
