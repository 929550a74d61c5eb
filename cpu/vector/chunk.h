// The CPU's reading of a formula: 32 lanes that live in registers. Operators and words are
// fixed-trip loops, which the compiler vectorises. Not Eigen's array maths: in Eigen 3.4 exp(−inf)
// is not 0, log and logistic lose digits in their tails, select() is not vectorised, and packet and
// tail give different bits for the same x.
#pragma once
#include <cmath>

#include "halftape/core/bit_cast.h"
#include "halftape/core/formula/words.h"
#include "halftape/cpu/vector/math.h"
#include "halftape/cpu/vector/simd.h"

namespace halftape::cpu {

inline constexpr int kLanes = 32;
/// n, a multiple of kLanes, so that the compiler sees it is one and makes no loop for a rest.
constexpr int64_t in_chunks(int64_t n) { return n & -int64_t{kLanes}; }

template <class S>
struct Chunk {  // aligned as one element, so that any 32 neighbours in memory are one
  S v[kLanes];
  Chunk() = default;
  Chunk(const Chunk&) = default;
  /// Lane by lane, and unrolled: g++ writes what a formula gives to the stack as well otherwise.
  Chunk& operator=(const Chunk& o) {  // NOLINT: a lane may be copied to itself
#pragma GCC unroll 32
    for (int k = 0; k < kLanes; ++k) v[k] = o.v[k];
    return *this;
  }
  template <class A>
  requires std::is_arithmetic_v<A> Chunk(A a) {  // NOLINT: a number is a chunk of it
    for (S& x : v) x = static_cast<S>(a);
  }
};

/// The outcome of a comparison, as wide as the lanes it will select.
template <class S>
struct Mask {
  using Word = std::conditional_t<sizeof(S) == 4, int32_t, int64_t>;
  Word v[kLanes];
};

template <class F, class S>
Chunk<S> each(const Chunk<S>& a, F f) {
  Chunk<S> r;
  for (int k = 0; k < kLanes; ++k) r.v[k] = f(a.v[k]);
  return r;
}

#define HALFTAPE_CHUNK_OPERATOR(op)                                \
  template <class S>                                               \
  Chunk<S> operator op(const Chunk<S>& a, const Chunk<S>& b) {     \
    Chunk<S> r;                                                    \
    for (int k = 0; k < kLanes; ++k) r.v[k] = a.v[k] op b.v[k];    \
    return r;                                                      \
  }                                                                \
  template <class S, class A>                                      \
  requires std::is_arithmetic_v<A> Chunk<S>                        \
  operator op(const Chunk<S>& a, A b) { return a op Chunk<S>(b); } \
  template <class S, class A>                                      \
  requires std::is_arithmetic_v<A> Chunk<S>                        \
  operator op(A a, const Chunk<S>& b) { return Chunk<S>(a) op b; }
HALFTAPE_CHUNK_OPERATOR(+)
HALFTAPE_CHUNK_OPERATOR(-)
HALFTAPE_CHUNK_OPERATOR(*)
HALFTAPE_CHUNK_OPERATOR(/)
#undef HALFTAPE_CHUNK_OPERATOR

template <class S>
Chunk<S> operator-(const Chunk<S>& a) {
  return each(a, [](S x) { return -x; });
}

#define HALFTAPE_CHUNK_COMPARISON(op)                                    \
  template <class S>                                                     \
  Mask<S> operator op(const Chunk<S>& a, const Chunk<S>& b) {            \
    Mask<S> r;                                                           \
    for (int k = 0; k < kLanes; ++k) r.v[k] = a.v[k] op b.v[k] ? -1 : 0; \
    return r;                                                            \
  }                                                                      \
  template <class S, class A>                                            \
  requires std::is_arithmetic_v<A> Mask<S>                               \
  operator op(const Chunk<S>& a, A b) { return a op Chunk<S>(b); }
HALFTAPE_CHUNK_COMPARISON(==)
HALFTAPE_CHUNK_COMPARISON(!=)
HALFTAPE_CHUNK_COMPARISON(<)
HALFTAPE_CHUNK_COMPARISON(<=)
HALFTAPE_CHUNK_COMPARISON(>)
HALFTAPE_CHUNK_COMPARISON(>=)
#undef HALFTAPE_CHUNK_COMPARISON

/// By bits, since a conditional per lane is left branchy by the compiler.
template <class S>
Chunk<S> where(const Mask<S>& c, const Chunk<S>& a, const Chunk<S>& b) {
  using Word = typename Mask<S>::Word;
  Chunk<S> r;
  for (int k = 0; k < kLanes; ++k)
    r.v[k] = bit_cast<S>((bit_cast<Word>(a.v[k]) & c.v[k]) | (bit_cast<Word>(b.v[k]) & ~c.v[k]));
  return r;
}
template <class S, class A>
requires std::is_arithmetic_v<A> Chunk<S> where(const Mask<S>& c, A a, const Chunk<S>& b) {
  return where(c, Chunk<S>(a), b);
}
template <class S, class A>
requires std::is_arithmetic_v<A> Chunk<S> where(const Mask<S>& c, const Chunk<S>& a, A b) {
  return where(c, a, Chunk<S>(b));
}

#define HALFTAPE_CHUNK_WORD(word)                      \
  template <class S>                                   \
  Chunk<S> word(const Chunk<S>& a) {                   \
    return each(a, [](S x) { return math::word(x); }); \
  }
HALFTAPE_CHUNK_WORD(exp)
HALFTAPE_CHUNK_WORD(exp2)
HALFTAPE_CHUNK_WORD(expm1)
HALFTAPE_CHUNK_WORD(log)
HALFTAPE_CHUNK_WORD(log1p)
HALFTAPE_CHUNK_WORD(log2)
HALFTAPE_CHUNK_WORD(log10)
HALFTAPE_CHUNK_WORD(asin)
HALFTAPE_CHUNK_WORD(acos)
HALFTAPE_CHUNK_WORD(atan)
HALFTAPE_CHUNK_WORD(sinh)
HALFTAPE_CHUNK_WORD(cosh)
HALFTAPE_CHUNK_WORD(tanh)
HALFTAPE_CHUNK_WORD(asinh)
HALFTAPE_CHUNK_WORD(acosh)
HALFTAPE_CHUNK_WORD(atanh)
HALFTAPE_CHUNK_WORD(sinpi)
HALFTAPE_CHUNK_WORD(cospi)
HALFTAPE_CHUNK_WORD(sigmoid)
HALFTAPE_CHUNK_WORD(erf)
HALFTAPE_CHUNK_WORD(erfc)
HALFTAPE_CHUNK_WORD(erfinv)
#undef HALFTAPE_CHUNK_WORD
/// table[i mod 16], in registers where there are any.
inline Chunk<float> look_up(const float (&table)[16], const Chunk<int32_t>& i) {
  Chunk<float> r;
#ifdef HALFTAPE_SIMD
  for (int k = 0; k < kLanes; k += simd::kWidth)
    simd::store(r.v + k, simd::look_up(table, i.v + k));
#else
  for (int k = 0; k < kLanes; ++k) r.v[k] = table[i.v[k] & 15];
#endif
  return r;
}
/// look_up() in every row.
template <size_t Rows>
struct LanesOfRows {
  Chunk<float> row[Rows];
  LanesOfRows(const float (&table)[Rows][16], const Chunk<int32_t>& place) {
#pragma GCC unroll 9
    for (size_t i = 0; i < Rows; ++i) row[i] = look_up(table[i], place);
  }
  auto at(int k) const {
    return [this, k](int i) { return row[i].v[k]; };
  }
};
/// Whether a lane has a bit. A loop would be made a sum across registers, which takes longer than
/// an exponential function.
inline bool any(const Mask<float>& m) {
#ifdef HALFTAPE_SIMD
  return simd::any(m.v);
#else
  int32_t all = 0;
  for (const int32_t word : m.v) all |= word;
  return all != 0;
#endif
}
/// near(k) of every lane; if any is not near, which is rare, far of those: of x, or of a chunk.
template <class Near, class IsNear, class Far>
Chunk<float> each_near(const Chunk<float>& a, Near near, IsNear is_near, Far far) {
  Chunk<float> r;
  Mask<float> beyond;
  for (int k = 0; k < kLanes; ++k) {
    r.v[k] = near(k);
    beyond.v[k] = is_near(a.v[k]) ? 0 : -1;
  }
  if (any(beyond)) {
    Chunk<float> y;
    if constexpr (std::is_invocable_v<Far, Chunk<float>>)
      y = far(a);
    else
      y = each(a, far);
    for (int k = 0; k < kLanes; ++k) r.v[k] = is_near(a.v[k]) ? r.v[k] : y.v[k];
  }
  return r;
}
/// math::sixteenths() of every lane, and what the table has of them.
struct LanesOfSixteenths {
  Chunk<int32_t> whole;
  Chunk<float> power, rest;
  explicit LanesOfSixteenths(const Chunk<float>& x) {
    for (int k = 0; k < kLanes; ++k) whole.v[k] = math::sixteenths(x.v[k]);
    power = look_up(math::detail::kSixteenths.power, whole);
    rest = look_up(math::detail::kSixteenths.rest, whole);
  }
  math::Sixteenth at(int k) const { return {power.v[k], rest.v[k]}; }
};
inline Chunk<float> exp(const Chunk<float>& a) {
  const LanesOfSixteenths s(-a);
  return each_near(
      a, [&](int k) { return math::near_exp(a.v[k], s.whole.v[k], s.at(k)); },
      [](float x) { return math::is_near_exp(x); }, [](float x) { return math::far_exp(x); });
}
inline Chunk<float> sigmoid(const Chunk<float>& a) {
  const LanesOfSixteenths s(a);
  return each_near(
      a, [&](int k) { return math::near_sigmoid(a.v[k], s.whole.v[k], s.at(k)); },
      [](float x) { return math::is_near_sigmoid(x); },
      [](float x) { return math::far_sigmoid(x); });
}
inline Chunk<float> tanh(const Chunk<float>& a) {
  const Chunk<float> distance = each(a, [](float x) { return math::tanh_distance(x); });
  Chunk<int32_t> place;
  for (int k = 0; k < kLanes; ++k) place.v[k] = math::tanh_place(distance.v[k]);
  const LanesOfRows s(math::detail::kPartsOfTanh.row, place);
  Chunk<float> r;
  for (int k = 0; k < kLanes; ++k) r.v[k] = math::tanh(a.v[k], distance.v[k], s.at(k));
  return r;
}
inline Chunk<float> log(const Chunk<float>& a) {
  Chunk<int32_t> place, part;
  for (int k = 0; k < kLanes; ++k) {
    place.v[k] = math::log_place(a.v[k]);
    part.v[k] = place.v[k] >> 19;
  }
  const LanesOfRows s(math::detail::kPartsOfLog.row, part);
  return each_near(
      a, [&](int k) { return math::near_log(a.v[k], place.v[k], s.at(k)); },
      [](float x) { return math::is_near_log(x); }, [](float x) { return math::far_log(x); });
}
inline Normal<Chunk<float>> normal(const Chunk<float>& a) {
  const Chunk<float> distance = each(a, [](float x) { return math::normal_distance(x); });
  Chunk<int32_t> place;
  for (int k = 0; k < kLanes; ++k) place.v[k] = math::mills_place(distance.v[k]);
  const LanesOfRows s(math::detail::kPartsOfMills.row, place);
  Normal<Chunk<float>> r;
  for (int k = 0; k < kLanes; ++k) {
    const Normal<float> n = math::normal(a.v[k], distance.v[k], s.at(k));
    r.below.v[k] = n.below, r.density.v[k] = n.density;
  }
  return r;
}
inline Chunk<float> erf(const Chunk<float>& a) {
  const Chunk<float> distance = each(a, [](float x) { return math::erf_distance(x); });
  Chunk<int32_t> place;
  for (int k = 0; k < kLanes; ++k) place.v[k] = math::erf_place(distance.v[k]);
  const LanesOfRows s(math::detail::kPartsOfErf.row, place);
  return each_near(
      a, [&](int k) { return math::near_erf(a.v[k], distance.v[k], place.v[k], s.at(k)); },
      [](float x) { return math::is_near_erf(x); }, [](float x) { return math::far_erf(x); });
}
// Above what a table takes, in double; the largest by the standard library.
#define HALFTAPE_CHUNK_CIRCULAR(word, name)                                                      \
  inline Chunk<float> name(const Chunk<float>& a) {                                              \
    return each_near(                                                                            \
        a, [&](int k) { return math::angle_##word(a.v[k]); },                                    \
        [](float x) { return !math::is_far(x); },                                                \
        [](float x) { return math::is_far(x) ? static_cast<float>(std::word(double{x})) : x; }); \
  }                                                                                              \
  inline Chunk<double> word(const Chunk<double>& a) {                                            \
    return each(a, [](double x) { return std::word(x); });                                       \
  }
HALFTAPE_CHUNK_CIRCULAR(sin, far_sin)
HALFTAPE_CHUNK_CIRCULAR(cos, far_cos)
HALFTAPE_CHUNK_CIRCULAR(tan, tan)
#undef HALFTAPE_CHUNK_CIRCULAR
template <class Far>
Chunk<float> sine(const Chunk<float>& a, float start, Far far) {
  Chunk<int32_t> place;
  for (int k = 0; k < kLanes; ++k) place.v[k] = math::turn_place(a.v[k], start);
  const LanesOfRows s(math::detail::kPartsOfTurn.row, place);
  return each_near(
      a, [&](int k) { return math::near_sine(a.v[k], start, place.v[k], s.at(k)); },
      [](float x) { return math::is_near_sine(x); }, far);
}
inline Chunk<float> sin(const Chunk<float>& a) {
  return sine(a, math::kSineStart, [](const Chunk<float>& x) { return far_sin(x); });
}
inline Chunk<float> cos(const Chunk<float>& a) {
  return sine(a, math::kCosineStart, [](const Chunk<float>& x) { return far_cos(x); });
}
// Exact, or right in float already.
#define HALFTAPE_CHUNK_EXACT(word, function)         \
  template <class S>                                 \
  Chunk<S> word(const Chunk<S>& a) {                 \
    return each(a, [](S x) { return function(x); }); \
  }
HALFTAPE_CHUNK_EXACT(sqrt, std::sqrt)
HALFTAPE_CHUNK_EXACT(abs, std::fabs)
HALFTAPE_CHUNK_EXACT(floor, std::floor)
HALFTAPE_CHUNK_EXACT(ceil, std::ceil)
HALFTAPE_CHUNK_EXACT(trunc, std::trunc)
HALFTAPE_CHUNK_EXACT(round, std::nearbyint)
#undef HALFTAPE_CHUNK_EXACT

template <class S>
Chunk<S> pow(const Chunk<S>& a, S p) {
  return each(a, [p](S x) { return std::pow(x, p); });
}
template <class S>
Chunk<S> pow(S a, const Chunk<S>& p) {
  return each(p, [a](S x) { return std::pow(a, x); });
}
#define HALFTAPE_CHUNK_WORD2(word)                                       \
  template <class S>                                                     \
  Chunk<S> word(const Chunk<S>& a, const Chunk<S>& b) {                  \
    Chunk<S> r;                                                          \
    for (int k = 0; k < kLanes; ++k) r.v[k] = std::word(a.v[k], b.v[k]); \
    return r;                                                            \
  }
HALFTAPE_CHUNK_WORD2(pow)
HALFTAPE_CHUNK_WORD2(atan2)
HALFTAPE_CHUNK_WORD2(fmod)
HALFTAPE_CHUNK_WORD2(hypot)
HALFTAPE_CHUNK_WORD2(copysign)
#undef HALFTAPE_CHUNK_WORD2

}  // namespace halftape::cpu

namespace halftape {
template <class S>
struct scalar_of<cpu::Chunk<S>> {
  using type = S;
};
}  // namespace halftape
