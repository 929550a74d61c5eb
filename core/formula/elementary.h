// Elementary functions as formulas of one argument: exponentials, logarithms, trigonometry and what
// lies near them. core/formula/unary.h says how a formula is read.
#pragma once
#include "halftape/core/formula/words.h"

namespace halftape::formula {

struct Exp : UnaryFormula {  // y = eˣ,  y' = y
  static constexpr auto name = "exp";
  static constexpr Cast cast = Cast::Float32;
  static constexpr Saves saves = Saves::Output;
  HALFTAPE_HD static auto f(const auto& x) { return exp(x); }
  HALFTAPE_HD static auto df(const auto& g, const auto& y) { return g * y; }
};
struct Exp2 : UnaryFormula {  // y = 2ˣ,  y' = y·ln 2
  static constexpr auto name = "exp2";
  static constexpr Saves saves = Saves::Output;
  HALFTAPE_HD static auto f(const auto& x) { return exp2(x); }
  template <class T>
  HALFTAPE_HD static T df(const T& g, const T& y) {
    return K<T>(0.69314718055994530942) * (g * y);
  }
};
struct Expm1 : UnaryFormula {  // y = eˣ − 1,  y' = y + 1
  static constexpr auto name = "expm1";
  static constexpr Cast cast = Cast::Float32;
  static constexpr Saves saves = Saves::Output;
  HALFTAPE_HD static auto f(const auto& x) { return expm1(x); }
  HALFTAPE_HD static auto df(const auto& g, const auto& y) { return g * (y + 1); }
};
struct Log : UnaryFormula {  // y = ln x,  y' = 1/x
  static constexpr auto name = "log";
  static constexpr Cast cast = Cast::Float32;
  HALFTAPE_HD static auto f(const auto& x) { return log(x); }
  HALFTAPE_HD static auto df(const auto& g, const auto& x) { return g / x; }
};
struct Log1p : UnaryFormula {  // y = ln(1 + x),  y' = 1/(1 + x)
  static constexpr auto name = "log1p";
  static constexpr Cast cast = Cast::Float32;
  HALFTAPE_HD static auto f(const auto& x) { return log1p(x); }
  HALFTAPE_HD static auto df(const auto& g, const auto& x) { return g / (1 + x); }
};
struct Log2 : UnaryFormula {  // y' = 1/(x·ln 2)
  static constexpr auto name = "log2";
  static constexpr Cast cast = Cast::Float32;
  HALFTAPE_HD static auto f(const auto& x) { return log2(x); }
  template <class T>
  HALFTAPE_HD static T df(const T& g, const T& x) {
    return (K<T>(1.44269504088896340736) * g) / x;
  }
};
struct Log10 : UnaryFormula {  // y' = 1/(x·ln 10)
  static constexpr auto name = "log10";
  static constexpr Cast cast = Cast::Float32;
  HALFTAPE_HD static auto f(const auto& x) { return log10(x); }
  template <class T>
  HALFTAPE_HD static T df(const T& g, const T& x) {
    return (K<T>(0.43429448190325182765) * g) / x;
  }
};
struct Sin : UnaryFormula {  // y' = cos x
  static constexpr auto name = "sin";
  HALFTAPE_HD static auto f(const auto& x) { return sin(x); }
  HALFTAPE_HD static auto df(const auto& g, const auto& x) { return g * cos(x); }
};
struct Cos : UnaryFormula {  // y' = −sin x
  static constexpr auto name = "cos";
  HALFTAPE_HD static auto f(const auto& x) { return cos(x); }
  HALFTAPE_HD static auto df(const auto& g, const auto& x) { return -(g * sin(x)); }
};
struct Tan : UnaryFormula {  // y' = 1 + y²
  static constexpr auto name = "tan";
  static constexpr Cast cast = Cast::Float32;
  static constexpr Saves saves = Saves::Output;
  HALFTAPE_HD static auto f(const auto& x) { return tan(x); }
  HALFTAPE_HD static auto df(const auto& g, const auto& y) { return g * (1 + y * y); }
};
struct Asin : UnaryFormula {  // y' = 1/√(1 − x²); NaN beyond ±1
  static constexpr auto name = "asin";
  static constexpr Cast cast = Cast::Float32;
  HALFTAPE_HD static auto f(const auto& x) { return asin(x); }
  HALFTAPE_HD static auto df(const auto& g, const auto& x) { return g / sqrt((1 - x) * (1 + x)); }
};
struct Acos : UnaryFormula {  // y' = −1/√(1 − x²); NaN beyond ±1
  static constexpr auto name = "acos";
  static constexpr Cast cast = Cast::Float32;
  HALFTAPE_HD static auto f(const auto& x) { return acos(x); }
  HALFTAPE_HD static auto df(const auto& g, const auto& x) { return -g / sqrt((1 - x) * (1 + x)); }
};
struct Atan : UnaryFormula {  // y' = 1/(1 + x²)
  static constexpr auto name = "atan";
  HALFTAPE_HD static auto f(const auto& x) { return atan(x); }
  HALFTAPE_HD static auto df(const auto& g, const auto& x) { return g / (1 + x * x); }
};
struct Sinh : UnaryFormula {  // y' = cosh x
  static constexpr auto name = "sinh";
  static constexpr Cast cast = Cast::Float32;
  HALFTAPE_HD static auto f(const auto& x) { return sinh(x); }
  HALFTAPE_HD static auto df(const auto& g, const auto& x) { return g * cosh(x); }
};
struct Cosh : UnaryFormula {  // y' = sinh x
  static constexpr auto name = "cosh";
  static constexpr Cast cast = Cast::Float32;
  HALFTAPE_HD static auto f(const auto& x) { return cosh(x); }
  HALFTAPE_HD static auto df(const auto& g, const auto& x) { return g * sinh(x); }
};
struct Tanh : UnaryFormula {  // y = tanh(x),  y' = 1 − y²
  static constexpr auto name = "tanh";
  static constexpr Saves saves = Saves::Output;
  HALFTAPE_HD static auto f(const auto& x) { return tanh(x); }
  HALFTAPE_HD static auto df(const auto& g, const auto& y) { return g * (1 - y * y); }
};
struct Asinh : UnaryFormula {  // y' = 1/√(1 + x²), which is 1/|x| long before x² overflows
  static constexpr auto name = "asinh";
  HALFTAPE_HD static auto f(const auto& x) { return asinh(x); }
  template <class T>
  HALFTAPE_HD static T df(const T& g, const T& x) {
    const T size = abs(x), m = where(size > 1e9, 1, x);
    return g / where(size > 1e9, size, sqrt(1 + m * m));
  }
};
struct Acosh : UnaryFormula {  // y' = 1/√(x² − 1); NaN below 1
  static constexpr auto name = "acosh";
  HALFTAPE_HD static auto f(const auto& x) { return acosh(x); }
  HALFTAPE_HD static auto df(const auto& g, const auto& x) {
    return g / (sqrt(x - 1) * sqrt(x + 1));
  }
};
struct Atanh : UnaryFormula {  // y' = 1/(1 − x²)
  static constexpr auto name = "atanh";
  HALFTAPE_HD static auto f(const auto& x) { return atanh(x); }
  HALFTAPE_HD static auto df(const auto& g, const auto& x) { return g / ((1 - x) * (1 + x)); }
};
struct Erf : UnaryFormula {  // y' = 2/√π·e^−x²
  static constexpr auto name = "erf";
  HALFTAPE_HD static auto f(const auto& x) { return erf(x); }
  template <class T>
  HALFTAPE_HD static T df(const T& g, const T& x) {
    return K<T>(1.12837916709551257390) * (g * exp(-(x * x)));
  }
};
struct Erfc : UnaryFormula {  // 1 − erf(x), accurate in the right tail
  static constexpr auto name = "erfc";
  HALFTAPE_HD static auto f(const auto& x) { return erfc(x); }
  template <class T>
  HALFTAPE_HD static T df(const T& g, const T& x) {
    return K<T>(-1.12837916709551257390) * (g * exp(-(x * x)));
  }
};
struct Erfinv : UnaryFormula {  // erf(y) = x,  y' = √π/2·e^y²; ±∞ at ±1, NaN beyond
  static constexpr auto name = "erfinv";
  static constexpr Cast cast = Cast::Float32;
  static constexpr Saves saves = Saves::Output;
  HALFTAPE_HD static auto f(const auto& x) { return erfinv(x); }
  template <class T>
  HALFTAPE_HD static T df(const T& g, const T& y) {
    return K<T>(0.88622692545275801365) * (g * exp(y * y));
  }
};
struct Sinpi : UnaryFormula {  // y = sin πx,  y' = π·cos πx
  static constexpr auto name = "sinpi";
  HALFTAPE_HD static auto f(const auto& x) { return sinpi(x); }
  template <class T>
  HALFTAPE_HD static T df(const T& g, const T& x) {
    return K<T>(3.14159265358979323846) * (g * cospi(x));
  }
};
struct Cospi : UnaryFormula {  // y = cos πx,  y' = −π·sin πx
  static constexpr auto name = "cospi";
  HALFTAPE_HD static auto f(const auto& x) { return cospi(x); }
  template <class T>
  HALFTAPE_HD static T df(const T& g, const T& x) {
    return K<T>(-3.14159265358979323846) * (g * sinpi(x));
  }
};
struct Sinc : UnaryFormula {  // y = sin(πx)/(πx), 1 at 0,  y' = (cos πx − y)/x
  static constexpr auto name = "sinc";
  template <class T>
  HALFTAPE_HD static T f(const T& x) {
    const T m = where(x == 0, 1, x);
    return where(x == 0, 1, sinpi(m) / (K<T>(3.14159265358979323846) * m));
  }
  template <class T>
  HALFTAPE_HD static T df(const T& g, const T& x) {
    // Near 0 the two terms cancel: x·Σ (−1)ᵏ·2k/(2k + 1)!·π²ᵏ·x²ᵏ⁻², k from 1.
    const T small_x = where(abs(x) < K<T>(0.3), x, 0), t = small_x * small_x;
    const T series =
        small_x * (K<T>(-3.2898681336964524) +
                   t * (K<T>(3.246969701133414) +
                        t * (K<T>(-1.1445109447325053) +
                             t * (K<T>(0.20918278254123834) +
                                  t * (K<T>(-0.023460810354558225) +
                                       t * (K<T>(0.001781145516372851) +
                                            t * (K<T>(-9.766223126318928e-05) +
                                                 t * K<T>(4.049947846619241e-06))))))));
    const T large_x = where(abs(x) < K<T>(0.3), 1, x);
    const T slope =
        (cospi(large_x) - sinpi(large_x) / (K<T>(3.14159265358979323846) * large_x)) / large_x;
    return g * where(abs(x) < K<T>(0.3), series, slope);
  }
};
struct Logit : UnaryFormula {  // y = ln(x/(1 − x)),  y' = 1/(x(1 − x)); NaN beyond 0 and 1
  static constexpr auto name = "logit";
  template <class T>
  HALFTAPE_HD static T f(const T& x) {
    // 2x − 1 is exact from 1/4 on, which keeps the digits around 1/2 and near 1.
    const T low = where(x < K<T>(0.25), x, K<T>(0.25)), high = where(x < K<T>(0.25), 0, 2 * x - 1);
    return where(x < K<T>(0.25), log(low) - log1p(-low), 2 * atanh(high));
  }
  HALFTAPE_HD static auto df(const auto& g, const auto& x) { return g / (x * (1 - x)); }
};

using Elementary =
    Ops<Exp, Exp2, Expm1, Log, Log1p, Log2, Log10, Sin, Cos, Tan, Asin, Acos, Atan, Sinh, Cosh,
        Tanh, Asinh, Acosh, Atanh, Erf, Erfc, Erfinv, Sinpi, Cospi, Sinc, Logit>;

}  // namespace halftape::formula
