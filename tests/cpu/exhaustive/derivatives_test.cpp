// Every unary op's derivative on all 65,536 float16 and bfloat16 values of what it saves, against
// the same expression in MPFR: what the backward kernel makes of tails, kinks and special values.
// Right to 1 ulp (2 for few), or to the smallest normal float32 where the square of a bfloat16
// overflows.
#include <doctest/doctest.h>

#if HALFTAPE_HAVE_MPFR
#include <map>
#include <sstream>
#include <string>

#include "halftape/core/contract/backend.h"
#include "halftape/core/formula/unary.h"
#include "halftape/tests/support/real.h"

using namespace halftape;
using testing::ordered;
using testing::Real;

namespace {

using P = Params<double>;

/// The derivative as a function of x, or of y where the op saves its output.
struct Derivative {
  Real (*f)(const Real&, P);
  P p = {};
  int ulps = 1;  // 2 where the exact value passes through 0 or a root is taken of a difference
};

const Real& zero() {
  static const Real z(0);
  return z;
}
/// c ? 1 : 0, and NaN does not count as true.
Real step(bool c) { return c ? Real(1) : Real(0); }
Real ln2() { return testing::log(Real(2)); }
Real normal_density(const Real& x) {
  return testing::exp(-(x * x) / 2.0) / testing::sqrt(2.0 * testing::pi());
}

const std::map<std::string, Derivative>& derivatives() {
  using namespace halftape::testing;
  static const std::map<std::string, Derivative> all{
      {"neg", {[](const Real&, P) { return Real(-1); }}},
      {"abs", {[](const Real& x, P) { return x > 0   ? Real(1)
                                             : x < 0 ? Real(-1)
                                                     : zero(); }}},
      {"sign", {[](const Real&, P) { return zero(); }}},
      {"square", {[](const Real& x, P) { return 2.0 * x; }}},
      {"sqrt", {[](const Real& y, P) { return 1.0 / (2.0 * y); }}},
      {"rsqrt", {[](const Real& y, P) { return -(y * y * y) / 2.0; }}},
      {"reciprocal", {[](const Real& y, P) { return -(y * y); }}},
      {"floor", {[](const Real&, P) { return zero(); }}},
      {"ceil", {[](const Real&, P) { return zero(); }}},
      {"trunc", {[](const Real&, P) { return zero(); }}},
      {"round", {[](const Real&, P) { return zero(); }}},
      {"frac", {[](const Real&, P) { return Real(1); }}},
      {"affine", {[](const Real&, P p) { return Real(p.a); }, {1.5, -0.25}}},
      {"div_scalar", {[](const Real&, P p) { return 1.0 / Real(p.a); }, {3, 0}}},
      {"scalar_div", {[](const Real& x, P p) { return -p.a / (x * x); }, {3, 0}}},
      {"pow_scalar", {[](const Real& x, P p) { return p.a * power(x, p.a - 1); }, {2.5, 0}}},
      {"scalar_pow", {[](const Real& y, P p) { return y * log(Real(p.a)); }, {2.5, 0}}},
      {"clamp",
       {[](const Real& x, P p) { return step(x.is_nan() || (x > p.a && x < p.b)); }, {-0.5, 1}}},
      {"exp", {[](const Real& y, P) { return y; }}},
      {"exp2", {[](const Real& y, P) { return y * ln2(); }}},
      {"expm1", {[](const Real& y, P) { return y + 1.0; }}},
      {"log", {[](const Real& x, P) { return 1.0 / x; }}},
      {"log1p", {[](const Real& x, P) { return 1.0 / (1.0 + x); }}},
      {"log2", {[](const Real& x, P) { return 1.0 / (x * ln2()); }}},
      {"log10", {[](const Real& x, P) { return 1.0 / (x * log(Real(10))); }}},
      {"sin", {[](const Real& x, P) { return cos(x); }}},
      {"cos", {[](const Real& x, P) { return -sin(x); }}},
      {"tan", {[](const Real& y, P) { return 1.0 + y * y; }}},
      {"asin", {[](const Real& x, P) { return 1.0 / sqrt(1.0 - x * x); }}},
      {"acos", {[](const Real& x, P) { return -1.0 / sqrt(1.0 - x * x); }}},
      {"atan", {[](const Real& x, P) { return 1.0 / (1.0 + x * x); }}},
      {"sinh", {[](const Real& x, P) { return cosh(x); }}},
      {"cosh", {[](const Real& x, P) { return sinh(x); }}},
      {"tanh", {[](const Real& y, P) { return 1.0 - y * y; }}},
      {"asinh", {[](const Real& x, P) { return 1.0 / sqrt(1.0 + x * x); }}},
      {"acosh", {[](const Real& x, P) { return 1.0 / (sqrt(x - 1.0) * sqrt(x + 1.0)); }}},
      {"atanh", {[](const Real& x, P) { return 1.0 / (1.0 - x * x); }}},
      {"erf", {[](const Real& x, P) { return 2.0 / sqrt(pi()) * exp(-(x * x)); }}},
      {"erfc", {[](const Real& x, P) { return -2.0 / sqrt(pi()) * exp(-(x * x)); }}},
      {"sinpi", {[](const Real& x, P) { return pi() * cospi(x); }}},
      {"cospi", {[](const Real& x, P) { return -pi() * sinpi(x); }}},
      {"sinc", {[](const Real& x, P) {
         if (abs(x) < 1e-6) return -(pi() * pi() * x) / 3.0;  // the next term is 10⁻¹² of it
         return (cospi(x) - sinpi(x) / (pi() * x)) / x;
       }}},
      {"logit", {[](const Real& x, P) { return 1.0 / (x * (1.0 - x)); }}},
      {"sigmoid", {[](const Real& y, P) { return y * (1.0 - y); }}},
      {"relu", {[](const Real& y, P) { return step(y.is_nan() || y > 0); }}},
      {"leaky_relu", {[](const Real& x, P p) { return x > 0 ? Real(1) : Real(p.a); }, {0.25, 0}}},
      {"elu",
       {[](const Real& x, P p) { return p.b * (x > 0 ? Real(1) : p.a * exp(x)); }, {1.5, 0.75}}},
      {"celu", {[](const Real& x, P p) { return x > 0 ? Real(1) : exp(x / p.a); }, {0.75, 0}}},
      {"gelu",
       {[](const Real& x, P) {
          if (is_infinity(x)) return step(x > 0);
          return erfc(-x / sqrt(Real(2))) / 2.0 + x * normal_density(x);
        },
        {},
        2}},
      {"gelu_tanh",
       {[](const Real& x, P) {
          if (is_infinity(x)) return step(x > 0);
          const Real k = 2.0 * sqrt(2.0 / pi()), c = 0.044715;
          const Real v = k * (x + c * x * x * x), s = logistic(v), rest = logistic(-v);
          return s + x * (s * rest) * k * (1.0 + 3.0 * c * x * x);
        },
        {},
        2}},
      {"silu",
       {[](const Real& x, P) {
          if (is_infinity(x)) return step(x > 0);
          return logistic(x) * (1.0 + x * logistic(-x));
        },
        {},
        2}},
      {"mish",
       {[](const Real& x, P) {
          if (is_infinity(x)) return step(x > 0);
          const Real t = tanh(log1p(exp(x)));
          return t + x * logistic(x) * (1.0 - t * t);
        },
        {},
        2}},
      {"softplus",
       {[](const Real& x, P p) { return p.a * x > p.b ? Real(1) : logistic(p.a * x); }, {2.5, 5}}},
      {"log_sigmoid", {[](const Real& x, P) { return logistic(-x); }}},
      {"softsign", {[](const Real& x, P) { return 1.0 / ((1.0 + abs(x)) * (1.0 + abs(x))); }}},
      {"hardsigmoid", {[](const Real& x, P) {
         return x.is_nan() || (x > -3.0 && x < 3.0) ? Real(1) / 6.0 : zero();
       }}},
      {"hardswish", {[](const Real& x, P) {
         if (x < -3.0 || x == -3.0) return zero();
         return x > 3.0 || x == 3.0 ? Real(1) : (2.0 * x + 3.0) / 6.0;
       }}},
      {"tanhshrink", {[](const Real& x, P) { return tanh(x) * tanh(x); }}},
      {"softshrink",
       {[](const Real& x, P p) { return step(x.is_nan() || abs(x) > p.a); }, {0.5, 0}}},
      {"hardshrink",
       {[](const Real& x, P p) { return step(x.is_nan() || abs(x) > p.a); }, {0.5, 0}}},
      {"threshold", {[](const Real& x, P p) { return step(x.is_nan() || x > p.a); }, {0.5, -3}}},
  };
  return all;
}

template <class T>
void check_all() {
  const Array saved({65536}, dtype_of<T>, kCPU), g = full({65536}, 1, dtype_of<T>, kCPU),
                                                 dx({65536}, dtype_of<T>, kCPU);
  for (uint32_t bits = 0; bits < 65536; ++bits)
    saved.data<T>()[bits] = T::from_bits(static_cast<uint16_t>(bits));
  UnaryOps::each([&](auto tag) {
    using Op = typename decltype(tag)::type;
    REQUIRE_MESSAGE(derivatives().count(Op::name), Op::name);
    const Derivative& reference = derivatives().at(Op::name);
    INFO(std::string(Op::name) << " in "
                               << std::string(std::is_same_v<T, Half> ? "float16" : "bfloat16"));
    cpu_backend().unary_grad(UnaryOps::index<Op>(), dx, g, saved, reference.p);
    int wrong_class = 0, off_by_one = 0, beyond = 0;
    std::ostringstream first;
    for (uint32_t i = 0; i < 65536; ++i) {
      const double in = static_cast<double>(saved.data<T>()[i]);
      const T got = dx.data<T>()[i], exact(reference.f(in, reference.p).rounded_to_odd());
      const double d = static_cast<double>(got), e = static_cast<double>(exact);
      const int apart = std::abs(ordered(got.bits) - ordered(exact.bits));
      const bool classes_differ = std::isnan(d) != std::isnan(e) ||
                                  (!std::isnan(e) && (std::isinf(d) != std::isinf(e) || d * e < 0));
      if (!std::isnan(e) && apart > 0) ++off_by_one;
      if (classes_differ ||
          (!std::isnan(e) && apart > reference.ulps && std::abs(d - e) >= 0x1p-126)) {
        if (wrong_class + beyond == 0)
          first << "first at " << in << ": got " << d << ", exactly " << e;
        ++(classes_differ ? wrong_class : beyond);
      }
    }
    INFO(first.str());
    CHECK(wrong_class == 0);
    CHECK(beyond == 0);
    // A few roundings in float32 before the one to 16 bits, and ties that they hide.
    CHECK(off_by_one < 1024);
  });
}

}  // namespace

TEST_CASE("every unary derivative is right for all 65,536 float16 values") { check_all<Half>(); }
TEST_CASE("every unary derivative is right for all 65,536 bfloat16 values") {
  check_all<BFloat16>();
}

#endif
