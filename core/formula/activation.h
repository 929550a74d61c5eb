// Activations as formulas of one argument; at a kink each says which side its derivative takes, as
// PyTorch's does. core/formula/unary.h says how a formula is read.
#pragma once
#include "halftape/core/formula/words.h"

namespace halftape::formula {

struct Sigmoid : UnaryFormula {  // y = 1/(1 + e⁻ˣ),  y' = y(1 − y)
  static constexpr auto name = "sigmoid";
  static constexpr Saves saves = Saves::Output;
  HALFTAPE_HD static auto f(const auto& x) { return sigmoid(x); }
  HALFTAPE_HD static auto df(const auto& g, const auto& y) { return g * (y * (1 - y)); }
};
struct Relu : UnaryFormula {  // y = max(x, 0); NaN passes, y'(0) = 0
  static constexpr auto name = "relu";
  static constexpr Saves saves = Saves::Output;
  static constexpr bool integers = true;
  HALFTAPE_HD static auto f(const auto& x) { return where(x <= 0, 0, x); }
  HALFTAPE_HD static auto df(const auto& g, const auto& y) { return where(y <= 0, 0, g); }
};
struct LeakyRelu : UnaryFormula {  // y = x, a·x where x ≤ 0;  y'(0) = a
  static constexpr auto name = "leaky_relu";
  HALFTAPE_HD static auto f(const auto& x, const auto& p) { return where(x > 0, x, p.a * x); }
  HALFTAPE_HD static auto df(const auto& g, const auto& x, const auto& p) {
    return where(x > 0, g, p.a * g);
  }
};
struct Elu
    : UnaryFormula {  // y = b·x, b·a·(eˣ − 1) where x ≤ 0.  Clevert et al. 2015, arXiv:1511.07289
  static constexpr auto name = "elu";
  HALFTAPE_HD static auto f(const auto& x, const auto& p) {
    const auto m = where(x > 0, 0, x);  // finite also where it is not taken
    return p.b * where(x > 0, x, p.a * expm1(m));
  }
  HALFTAPE_HD static auto df(const auto& g, const auto& x, const auto& p) {
    const auto m = where(x > 0, 0, x);
    return p.b * where(x > 0, g, p.a * (g * exp(m)));
  }
};
struct Celu : UnaryFormula {  // y = x, a·(e^(x/a) − 1) where x ≤ 0.  Barron 2017, arXiv:1704.07483
  static constexpr auto name = "celu";
  HALFTAPE_HD static auto f(const auto& x, const auto& p) {
    const auto m = where(x > 0, 0, x / p.a);
    return where(x > 0, x, p.a * expm1(m));
  }
  HALFTAPE_HD static auto df(const auto& g, const auto& x, const auto& p) {
    const auto m = where(x > 0, 0, x / p.a);
    return where(x > 0, g, g * exp(m));
  }
};
struct Gelu : UnaryFormula {  // y = x·Φ(x), Φ the normal distribution.  Hendrycks & Gimpel 2016,
                              // arXiv:1606.08415
  static constexpr auto name = "gelu";
  // The clamp keeps −inf·0 from being NaN.
  HALFTAPE_HD static auto f(const auto& x) {
    const auto m = where(x < -1000, -1000, x);
    return m * normal(m).below;
  }
  template <class T>
  HALFTAPE_HD static T df(const T& g, const T& x) {
    const T m = where(x < -1000, -1000, where(x > 1000, 1000, x));
    const Normal<T> n = normal(m);
    return g * (n.below + m * n.density);
  }
};
struct GeluTanh
    : UnaryFormula {  // y = x/2·(1 + tanh(√(2/π)(x + 0.044715x³))) = x·σ(2u); the same source
  static constexpr auto name = "gelu_tanh", called = "gelu";
  static constexpr double k = 0.79788456080286535588, c = 0.044715;
  template <class T>
  HALFTAPE_HD static T f(const T& x) {
    const T m = where(x < -1000, -1000, x);
    return m * sigmoid(K<T>(2 * k) * (m * (1 + K<T>(c) * (m * m))));
  }
  template <class T>
  HALFTAPE_HD static T df(const T& g, const T& x) {
    const T m = where(x < -1000, -1000, where(x > 1000, 1000, x));
    const T v = K<T>(2 * k) * (m * (1 + K<T>(c) * (m * m)));
    const T minus_v = where(v == v, -v, v);  // NaN keeps its sign, as in minus_abs()
    const T s = sigmoid(v),
            rest = sigmoid(minus_v);  // 1 − s, of which subtraction leaves no digits
    return g * (s + K<T>(2 * k) * (m * (s * rest) * (1 + K<T>(3 * c) * (m * m))));
  }
};
struct Silu : UnaryFormula {  // y = x·σ(x),  y' = σ(1 + x(1 − σ))
  static constexpr auto name = "silu";
  HALFTAPE_HD static auto f(const auto& x) {
    const auto m = where(x < -10000, -10000, x);
    return m * sigmoid(m);
  }
  HALFTAPE_HD static auto df(const auto& g, const auto& x) {
    const auto m = where(x < -10000, -10000, where(x > 10000, 10000, x));
    const auto s = sigmoid(m);
    return g * (s * (1 + m * (1 - s)));
  }
};
/// x·tanh(ln(1 + eˣ)).  Misra 2019, arXiv:1908.08681
/// With u = e^−|x| the tangent is n/d, both polynomials in u, so that neither tail cancels or
/// overflows: n = 1 + 2u, d = n + 2u² on the right, n = u(u + 2), d = n + 2 on the left.
struct Mish : UnaryFormula {
  static constexpr auto name = "mish";
  HALFTAPE_HD static auto f(const auto& x) {
    const auto m = where(x < -1000, -1000, x), u = exp(minus_abs(m));
    const auto n = where(m > 0, 1 + 2 * u, u * (u + 2)), d = n + where(m > 0, 2 * (u * u), 2);
    return m * (n / d);
  }
  HALFTAPE_HD static auto df(const auto& g, const auto& x) {
    const auto m = where(x < -1000, -1000, where(x > 1000, 1000, x)), u = exp(minus_abs(m));
    const auto n = where(m > 0, 1 + 2 * u, u * (u + 2)), d = n + where(m > 0, 2 * (u * u), 2);
    const auto slope = 4 * (u * (1 + u)) * where(m > 0, u, 1) / (d * d);
    return g * (n / d + m * slope);
  }
};
/// y = ln(1 + e^(a·x))/a,  y' = σ(a·x);  y = x where a·x > b: beyond 20 no float32 tells them
/// apart. ln(1 + eᵗ) = max(t, 0) + ln(1 + e^−|t|).
struct Softplus : UnaryFormula {
  static constexpr auto name = "softplus";
  static constexpr Cast cast = Cast::Float32;
  template <class T, class S>
  HALFTAPE_HD static T f(const T& x, const Params<S>& p) {
    const T t = p.a * x;
    return where(t > p.b, x, (where(t <= 0, T(0), t) + log1p(exp(minus_abs(t)))) / p.a);
  }
  HALFTAPE_HD static auto df(const auto& g, const auto& x, const auto& p) {
    const auto t = p.a * x;
    return where(t > p.b, g, g * sigmoid(t));
  }
};
struct LogSigmoid : UnaryFormula {  // y = ln σ(x) = min(x, 0) − ln(1 + e^−|x|),  y' = σ(−x)
  static constexpr auto name = "log_sigmoid";
  template <class T>
  HALFTAPE_HD static T f(const T& x) {
    return where(x < 0, x, where(x >= 0, K<T>(-0.0), x)) - log1p(exp(minus_abs(x)));
  }
  HALFTAPE_HD static auto df(const auto& g, const auto& x) { return g * sigmoid(-x); }
};
struct Softsign : UnaryFormula {  // y = x/(1 + |x|),  y' = 1/(1 + |x|)²; ±1 at ±∞
  static constexpr auto name = "softsign";
  template <class T>
  HALFTAPE_HD static T f(const T& x) {
    const T m = where(x < -1e30, -1e30, where(x > 1e30, 1e30, x));
    return m / (1 + abs(m));
  }
  HALFTAPE_HD static auto df(const auto& g, const auto& x) {
    const auto d = 1 + abs(x);
    return (g / d) / d;
  }
};
struct Hardsigmoid : UnaryFormula {  // y = (x + 3)/6 between 0 and 1;  y'(±3) = 0
  static constexpr auto name = "hardsigmoid";
  HALFTAPE_HD static auto f(const auto& x) {
    return where(x <= -3, 0, where(x >= 3, 1, (x + 3) / 6));
  }
  HALFTAPE_HD static auto df(const auto& g, const auto& x) {
    return where(x <= -3, 0, where(x >= 3, 0, g / 6));
  }
};
struct Hardswish : UnaryFormula {  // y = x·hardsigmoid(x);  y'(−3) = 0, y'(3) = 1.  Howard et al.
                                   // 2019, arXiv:1905.02244
  static constexpr auto name = "hardswish";
  HALFTAPE_HD static auto f(const auto& x) {
    return where(x <= -3, 0, where(x >= 3, x, x * (x + 3) / 6));
  }
  HALFTAPE_HD static auto df(const auto& g, const auto& x) {
    return where(x <= -3, 0, where(x >= 3, g, g * (2 * x + 3) / 6));
  }
};
struct Tanhshrink : UnaryFormula {  // y = x − tanh x,  y' = tanh² x
  static constexpr auto name = "tanhshrink";
  template <class T>
  HALFTAPE_HD static T f(const T& x) {
    // Near 0 the two cancel: x³ times the rest of tanh's series.
    const T small_x = where(abs(x) < K<T>(0.3), x, 0), t = small_x * small_x;
    const T series =
        (small_x * t) *
        (K<T>(1.0 / 3) +
         t * (K<T>(-2.0 / 15) +
              t * (K<T>(17.0 / 315) + t * (K<T>(-62.0 / 2835) +
                                           t * (K<T>(1382.0 / 155925) +
                                                t * (K<T>(-21844.0 / 6081075) +
                                                     t * (K<T>(929569.0 / 638512875) +
                                                          t * K<T>(-6404582.0 / 10854718875))))))));
    return where(abs(x) < K<T>(0.3), series, x - tanh(x));
  }
  HALFTAPE_HD static auto df(const auto& g, const auto& x) {
    const auto t = tanh(x);
    return g * (t * t);
  }
};
struct Softshrink : UnaryFormula {  // x moved towards 0 by a, 0 where |x| ≤ a; NaN passes
  static constexpr auto name = "softshrink";
  HALFTAPE_HD static auto f(const auto& x, const auto& p) {
    return where(x > p.a, x - p.a, where(x < -p.a, x + p.a, where(x == x, 0, x)));
  }
  HALFTAPE_HD static auto df(const auto& g, const auto& x, const auto& p) {
    return where(abs(x) <= p.a, 0, g);
  }
};
struct Hardshrink : UnaryFormula {  // x, but 0 where |x| ≤ a
  static constexpr auto name = "hardshrink";
  HALFTAPE_HD static auto f(const auto& x, const auto& p) { return where(abs(x) <= p.a, 0, x); }
  HALFTAPE_HD static auto df(const auto& g, const auto& x, const auto& p) {
    return where(abs(x) <= p.a, 0, g);
  }
};
struct Threshold : UnaryFormula {  // x, but b where x ≤ a
  static constexpr auto name = "threshold";
  static constexpr bool integers = true;
  HALFTAPE_HD static auto f(const auto& x, const auto& p) { return where(x <= p.a, p.b, x); }
  HALFTAPE_HD static auto df(const auto& g, const auto& x, const auto& p) {
    return where(x <= p.a, 0, g);
  }
};

using Activations =
    Ops<Sigmoid, Relu, LeakyRelu, Elu, Celu, Gelu, GeluTanh, Silu, Mish, Softplus, LogSigmoid,
        Softsign, Hardsigmoid, Hardswish, Tanhshrink, Softshrink, Hardshrink, Threshold>;

}  // namespace halftape::formula
