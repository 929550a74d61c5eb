// PyTorch's way on the CPU: elements are drawn one after the other in memory order, each from the
// next words, in the precision and with the polynomials of PyTorch's code for AVX2. So a number
// depends only on the seed and on what was drawn before.
#include "halftape/core/random/draw.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <numeric>
#include <type_traits>
#include <vector>

#include "halftape/core/check.h"
#include "halftape/core/machine/fma.h"

namespace halftape {
namespace {

/// The view of y whose row-major order is the order in memory.
Array in_memory_order(const Array& y) {
  std::vector<int> order(static_cast<size_t>(y.dim()));
  std::iota(order.begin(), order.end(), 0);
  const auto stride = [&](int d) { return y.size(d) > 1 ? y.strides()[d] : 0; };
  std::stable_sort(order.begin(), order.end(), [&](int i, int j) { return stride(i) > stride(j); });
  Dims dims = Dims::filled(y.dim(), 0);
  for (int d = 0; d < y.dim(); ++d) dims[d] = order[static_cast<size_t>(d)];
  return y.permute(dims);
}

/// y ← next(), element by element in y's dtype.
void draw_each(const Array& y, const auto& next) {
  const Array places = y.contiguous() ? y : in_memory_order(y);
  const Array drawn(places.shape(), y.dtype(), kCPU);
  visit(y.dtype(), [&](auto t) {
    using T = typename decltype(t)::type;
    T* const out = drawn.data<T>();
    for (int64_t i = 0; i < drawn.numel(); ++i) out[i] = next(t);
  });
  backend(kCPU).copy(places, drawn);
}

// Cephes' polynomials (Moshier 1989) for float32, each step one fused multiply-add: the C library's
// functions differ from them in the last bit once in a hundred numbers.

float polynomial(float x, std::initializer_list<float> coefficients) {
  float y = *coefficients.begin();
  for (const float* c = coefficients.begin() + 1; c != coefficients.end(); ++c) y = fma(y, x, *c);
  return y;
}

/// For 0 < x ≤ 1, a multiple of 2^-24.
float natural_log(float x) {
  int exponent = 0;
  float m = std::frexp(x, &exponent);
  if (m < 0.707106781186547524f) {
    --exponent;
    m = m - 1 + m;
  } else {
    m -= 1;
  }
  const auto e = static_cast<float>(exponent);
  const float z = m * m;
  const float p = polynomial(m, {7.0376836292e-2f, -1.1514610310e-1f, 1.1676998740e-1f,
                                 -1.2420140846e-1f, 1.4249322787e-1f, -1.6668057665e-1f,
                                 2.0000714765e-1f, -2.4999993993e-1f, 3.3333331174e-1f}) *
                  m;
  const float tail = fma(-z, 0.5f, fma(p, z, e * -2.12194440e-4f));
  return fma(e, 0.693359375f, m + tail);  // e·ln 2 in two parts
}

struct SinCos {
  float sin, cos;
};

/// For 0 ≤ x < 2π.
SinCos sin_cos(float x) {
  const int octant = (static_cast<int>(x * 1.27323954473516f) + 1) & ~1;
  const auto turns = static_cast<float>(octant);
  x = fma(turns, -0.78515625f, x);  // x − octant·π/4 in three parts
  x = fma(turns, -2.4187564849853515625e-4f, x);
  x = fma(turns, -3.77489497744594108e-8f, x);
  const float z = x * x;
  const float c =
      polynomial(z, {2.443315711809948e-5f, -1.388731625493765e-3f, 4.166664568298827e-2f}) * z;
  const float cosine = fma(c, z, -0.5f * z) + 1;
  const float s = polynomial(z, {-1.9515295891e-4f, 8.3321608736e-3f, -1.6666654611e-1f}) * z;
  const float sine = fma(s, x, x);
  const bool swapped = (octant & 2) != 0;
  const SinCos first = swapped ? SinCos{cosine, sine} : SinCos{sine, cosine};
  return {octant & 4 ? -first.sin : first.sin, (octant - 2) & 4 ? first.cos : -first.cos};
}

float log_of(float x) { return natural_log(x); }
double log_of(double x) { return std::log(x); }
void circle(float angle, float& sin, float& cos) {
  const SinCos both = sin_cos(angle);
  sin = both.sin;
  cos = both.cos;
}
void circle(double angle, double& sin, double& cos) {
  sin = std::sin(angle);
  cos = std::cos(angle);
}

/// Box & Muller for 16 uniform numbers: u[j] and u[j + 8] are a pair.
template <class T>
void to_normal(T* u, T mean, T std) {
  constexpr T kTwoPi = static_cast<T>(6.283185307179586477);
  for (int j = 0; j < 8; ++j) {
    const T r = std::sqrt(-2 * log_of(1 - u[j]));
    T sin = 0, cos = 0;
    circle(kTwoPi * u[j + 8], sin, cos);
    u[j] = fma(r * cos, std, mean);
    u[j + 8] = fma(r * sin, std, mean);
  }
}

template <class T>
T uniform01_of(Mt19937& mt) {
  if constexpr (std::is_same_v<T, double>)
    return mt.uniform();
  else
    return mt.uniform_float();
}

/// 16 or more contiguous elements, sixteen at a time. If a rest is left, the last sixteen are drawn
/// again.
void draw_normals(const Array& y, double mean, double std, Mt19937& mt) {
  const Array drawn(y.shape(), y.dtype(), kCPU);
  visit(y.dtype(), [&](auto t) {
    using T = typename decltype(t)::type;
    using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;
    T* const out = drawn.data<T>();
    const int64_t n = drawn.numel();
    const auto sixteen = [&](int64_t at) {
      Wide u[16];
      for (Wide& x : u) x = uniform01_of<Wide>(mt);
      to_normal(u, static_cast<Wide>(mean), static_cast<Wide>(std));
      for (int64_t i = 0; i < 16; ++i) out[at + i] = convert<T>(u[i]);
    };
    for (int64_t at = 0; at + 16 <= n; at += 16) sixteen(at);
    if (n % 16 == 0) return;
    // PyTorch first draws the rest as well, except in 16-bit formats.
    if (std::is_same_v<T, Wide>)
      for (int64_t i = 0; i < n % 16; ++i) uniform01_of<Wide>(mt);
    sixteen(n - 16);
  });
  backend(kCPU).copy(y, drawn);
}

void draw_uniform(const Array& y, double from, double to, Mt19937& mt) {
  draw_each(y, [&](auto t) {
    using T = typename decltype(t)::type;
    using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;
    const auto low = static_cast<Wide>(from), high = static_cast<Wide>(to);
    const T x = convert<T>(fma(uniform01_of<Wide>(mt), high - low, low));
    // Rounding may reach the excluded upper end.
    return convert<double>(x) == convert<double>(convert<T>(to)) ? convert<T>(from) : x;
  });
}

}  // namespace

void draw(const Array& y, Distribution kind, double a, double b) {
  const LockedMt19937 mt(y.device());
  if (!mt) return backend(y.device()).random(y, kind, a, b, random_reserve(y.device(), y.numel()));
  if (kind == Distribution::Uniform) return draw_uniform(y, a, b, *mt);
  if (kind == Distribution::Normal && y.numel() >= 16 && y.contiguous())
    return draw_normals(y, a, b, *mt);
  draw_each(y, [&](auto t) {
    using T = typename decltype(t)::type;
    if (kind == Distribution::Bernoulli) return convert<T>(mt->uniform() < a);
    return convert<T>(fma(mt->normal(), b, a));
  });
}

void draw_integers(const Array& y, int64_t low, int64_t high, bool any) {
  const LockedMt19937 mt(y.device());
  if (!mt)
    return backend(y.device())
        .random(y, Distribution::Bits, static_cast<double>(low), static_cast<double>(high - 1),
                random_reserve(y.device(), y.numel()));
  const Dtype dtype = y.dtype();
  const bool all64 = any && dtype == kInt64;
  const uint64_t range =
      all64 ? uint64_t{1} << 63 : static_cast<uint64_t>(high) - static_cast<uint64_t>(low);
  // Two words if one word would favour some remainders.
  const bool two = any ? dtype == kInt64 || dtype == kFloat64 : range >= uint64_t{1} << 28;
  draw_each(y, [&](auto t) {
    using T = typename decltype(t)::type;
    const uint64_t x = (two ? mt->random64() : mt->random()) % range;
    return convert<T>(static_cast<int64_t>(x + static_cast<uint64_t>(low)));
  });
}

}  // namespace halftape
