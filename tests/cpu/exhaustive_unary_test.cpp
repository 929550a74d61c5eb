// Every unary op on all 65,536 values of float16 and bfloat16, against MPFR rounded correctly.
#include <doctest/doctest.h>

#if HALFTAPE_HAVE_MPFR
#include <mpfr.h>

#include <halftape/halftape.h>

#include <bit>
#include <map>
#include <numeric>

using namespace halftape;

namespace {

/// A 96-bit number: more than enough to round to 11 bits correctly.
class Real {
 public:
  Real() { mpfr_init2(value_, 96); }
  Real(double v) : Real() { mpfr_set_d(value_, v, MPFR_RNDN); }  // NOLINT: numbers mix with doubles
  Real(const Real& o) : Real() { mpfr_set(value_, o.value_, MPFR_RNDN); }
  Real& operator=(const Real& o) { return mpfr_set(value_, o.value_, MPFR_RNDN), *this; }
  ~Real() { mpfr_clear(value_); }

  template <class F>
  static Real of(F f, const Real& x) {
    Real y;
    f(y.value_, x.value_, MPFR_RNDN);
    return y;
  }
  template <class F>
  static Real of(F f, const Real& a, const Real& b) {
    Real y;
    f(y.value_, a.value_, b.value_, MPFR_RNDN);
    return y;
  }
  friend Real operator+(const Real& a, const Real& b) { return of(mpfr_add, a, b); }
  friend Real operator-(const Real& a) { return of(mpfr_neg, a); }
  friend Real operator*(const Real& a, const Real& b) { return of(mpfr_mul, a, b); }
  friend Real operator/(const Real& a, const Real& b) { return of(mpfr_div, a, b); }
  friend bool operator<(const Real& a, const Real& b) { return mpfr_less_p(a.value_, b.value_); }
  friend bool operator>(const Real& a, const Real& b) { return b < a; }

  bool is_nan() const { return mpfr_nan_p(value_); }
  /// Rounded to odd: a later rounding to fewer bits is then as if from the exact value.
  double rounded_to_odd() const {
    if (mpfr_nan_p(value_)) return std::nan("");
    const double d = mpfr_get_d(value_, MPFR_RNDZ);
    const bool exact = mpfr_cmp_d(value_, d) == 0;
    return exact ? d : std::bit_cast<double>(std::bit_cast<uint64_t>(d) | 1);
  }

 private:
  mpfr_t value_;
};

Real exp(const Real& x) { return Real::of(mpfr_exp, x); }
Real sqrt(const Real& x) { return Real::of(mpfr_sqrt, x); }
Real erfc(const Real& x) { return Real::of(mpfr_erfc, x); }
Real power(const Real& x, double p) { return Real::of(mpfr_pow, x, p); }
Real logistic(const Real& x) { return 1.0 / (1.0 + exp(-x)); }
bool is_minus_infinity(const Real& x) { return x < -1e300; }

struct Reference {
  Real (*f)(const Real&, Params<double>);
  std::vector<Params<double>> parameters = {{}};
};

const std::map<std::string, Reference>& references() {
  using P = Params<double>;
  static const std::map<std::string, Reference> all{
      {"neg", {[](const Real& x, P) { return -x; }}},
      {"abs", {[](const Real& x, P) { return Real::of(mpfr_abs, x); }}},
      {"sign", {[](const Real& x, P) { return x > 0   ? Real(1)
                                              : x < 0 ? Real(-1)
                                                      : x; }}},
      {"square", {[](const Real& x, P) { return x * x; }}},
      {"exp", {[](const Real& x, P) { return exp(x); }}},
      {"log", {[](const Real& x, P) { return Real::of(mpfr_log, x); }}},
      {"log1p", {[](const Real& x, P) { return Real::of(mpfr_log1p, x); }}},
      {"sqrt", {[](const Real& x, P) { return sqrt(x); }}},
      {"rsqrt", {[](const Real& x, P) { return 1.0 / sqrt(x); }}},
      {"reciprocal", {[](const Real& x, P) { return 1.0 / x; }}},
      {"tanh", {[](const Real& x, P) { return Real::of(mpfr_tanh, x); }}},
      {"sigmoid", {[](const Real& x, P) { return logistic(x); }}},
      {"relu", {[](const Real& x, P) { return x.is_nan() || x > 0 ? x : Real(0); }}},
      // At −∞ these three tend to −0.
      {"gelu", {[](const Real& x, P) {
         return is_minus_infinity(x) ? Real(-0.0) : x / 2.0 * erfc(-x / sqrt(2.0));
       }}},
      {"gelu_tanh", {[](const Real& x, P) {
         if (is_minus_infinity(x)) return Real(-0.0);
         const Real pi = Real::of(mpfr_acos, -1.0);
         return x * logistic(2.0 * sqrt(2.0 / pi) * (x + Real(0.044715) * x * x * x));
       }}},
      {"silu",
       {[](const Real& x, P) { return is_minus_infinity(x) ? Real(-0.0) : x * logistic(x); }}},
      {"softplus", {[](const Real& x, P) {
         const Real tail = Real::of(mpfr_log1p, exp(x > 0 ? -x : x));
         return x > 0 ? x + tail : tail;
       }}},
      {"erf", {[](const Real& x, P) { return Real::of(mpfr_erf, x); }}},
      {"erfc", {[](const Real& x, P) { return erfc(x); }}},
      {"affine",
       {[](const Real& x, P p) { return p.a * x + p.b; }, {{1.5, 0}, {1, -0.25}, {-1, 0}}}},
      {"div_scalar", {[](const Real& x, P p) { return x / p.a; }, {{3, 0}, {0, 0}}}},
      {"scalar_div", {[](const Real& x, P p) { return p.a / x; }, {{3, 0}}}},
      {"pow_scalar",
       {[](const Real& x, P p) { return power(x, p.a); },
        {{2.5, 0}, {3, 0}, {0, 0}, {-1, 0}, {0.5, 0}, {-2.25, 0}}}},
      {"clamp",
       {[](const Real& x, P p) { return x < p.a   ? Real(p.a)
                                        : x > p.b ? Real(p.b)
                                                  : x; },
        {{-0.5, 1}}}},
  };
  return all;
}

/// Neighbours are one apart, −0 and 0 the same.
template <class T>
int ordered(uint16_t bits) {
  return bits & 0x8000 ? -(bits & 0x7fff) : bits;
}

template <class T>
void check_all() {
  Tensor x = empty({65536}, dtype_of<T>);
  for (uint32_t bits = 0; bits < 65536; ++bits)
    x.data_ptr<T>()[bits] = T::from_bits(static_cast<uint16_t>(bits));
  for (const UnaryEntry& op : unary_ops()) {
    REQUIRE_MESSAGE(references().count(op.name), op.name);
    const Reference& reference = references().at(op.name);
    for (const Params<double> p : reference.parameters) {
      INFO(std::string(op.name) << " with parameter " << p.a << " in "
                                << std::string(std::is_same_v<T, Half> ? "float16" : "bfloat16"));
      const Tensor y = op.call(x, p);
      REQUIRE(y.dtype() == dtype_of<T>);
      int wrong_class = 0, off_by_one = 0, beyond = 0;
      std::ostringstream first;
      for (uint32_t i = 0; i < 65536; ++i) {
        const double in = static_cast<double>(x.const_data_ptr<T>()[i]);
        const T got = y.const_data_ptr<T>()[i], exact(reference.f(in, p).rounded_to_odd());
        const double g = static_cast<double>(got), e = static_cast<double>(exact);
        const int apart = std::abs(ordered<T>(got.bits) - ordered<T>(exact.bits));
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
      CHECK(off_by_one < 16);
    }
  }
}

}  // namespace

TEST_CASE("every unary op is right for all 65,536 float16 inputs") { check_all<Half>(); }
TEST_CASE("every unary op is right for all 65,536 bfloat16 inputs") { check_all<BFloat16>(); }

#endif
