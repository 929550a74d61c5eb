// The operands of a packed product: panels of lines, in the order in which a tile reads them.
#pragma once
#include "halftape/cpu/vector/simd.h"

#ifdef HALFTAPE_SIMD
#include <algorithm>
#include <type_traits>

#include "halftape/core/dtype.h"

namespace halftape::cpu {

using simd::Vec, simd::kWidth;

template <class T>
constexpr T ceil_div(T x, std::type_identity_t<T> by) {
  return (x + by - 1) / by;
}
constexpr int64_t round_up(int64_t x, int64_t to) { return ceil_div(x, to) * to; }

/// a's rows or b's columns: lines along the depth.
struct Factor {
  const char* data;
  Dtype dtype;
  int64_t line, depth;  // steps in elements, from one line to the next and along one
  Factor at(int64_t l, int64_t k) const {
    Factor f = *this;
    f.data += (l * line + k * depth) * static_cast<int64_t>(element_size(dtype));
    return f;
  }
};

// Packing: panels of R lines, of so many words each. A word is one element of a line in float, or,
// for dot products of bfloat16, two neighbours as they are (P = 2); the R words of one depth are
// neighbours. What is missing is 0: lines of the last panel, the second of an odd last pair, and
// words beyond the depth.

/// Words of one line, from n of its elements.
template <int P, class T>
Vec along(const T* x, int n) {
  if constexpr (P == 2)
    return n == 2 * kWidth ? simd::load_pairs(x) : simd::load_first_pairs(x, n);
  else
    return n == kWidth ? simd::load(x) : simd::load_first(x, n);
}
/// One word of each of n neighbouring lines.
template <int P, class T>
Vec beside(const T* x, int64_t depth_step, int n, bool last_is_odd) {
  auto at = [&](const T* y) { return n == kWidth ? simd::load(y) : simd::load_first(y, n); };
  if constexpr (P == 2) return simd::pair(at(x), last_is_odd ? simd::zero() : at(x + depth_step));
  return at(x);
}

template <int R, int P, class T>
void pack_strided(const T* from, int64_t line, int64_t depth_step, int64_t lines, int64_t depth,
                  int64_t words, float* panels) {
  for (int64_t l = 0; l < round_up(lines, R); ++l) {
    float* panel = panels + l / R * R * words + l % R;
    for (int64_t w = 0; w < ceil_div(depth, P); ++w) {
      T elements[kWidth] = {};
      for (int64_t i = 0; i < P; ++i)
        if (l < lines && w * P + i < depth) elements[i] = from[l * line + (w * P + i) * depth_step];
      simd::store_first(panel + w * R, along<P>(elements, P), 1);
    }
  }
}

/// Lines are neighbours.
template <int R, int P, class T>
void pack_beside(const T* from, int64_t depth_step, int64_t lines, int64_t depth, int64_t words,
                 float* panels) {
  const int64_t whole = ceil_div(depth, P);
  // A few depths of all panels at a time: steps of 4 KiB would all fall into one set of the cache.
  for (int64_t begin = 0; begin < whole; begin += 8) {
    const int64_t end = std::min(begin + 8, whole);
    for (int64_t l = 0; l < lines; l += R) {
      const int n = static_cast<int>(std::min<int64_t>(R, lines - l));
      float* panel = panels + l * words + begin * R;
      for (int64_t w = begin; w < end; ++w, panel += R) {
        const T* x = from + w * P * depth_step + l;
        for (int i = 0; i < R; i += kWidth) {
          const int wanted = std::min(kWidth, R - i), here = std::clamp(n - i, 0, wanted);
          const Vec v = beside<P>(x + i, depth_step, here, w * P + 1 == depth);
          if (wanted == kWidth)
            simd::store(panel + i, v);
          else
            simd::store_first(panel + i, v, wanted);
        }
      }
    }
  }
}

/// The elements of a line are neighbours: squares of words are transposed in registers.
template <int R, int P, class T>
void pack_along(const T* from, int64_t line, int64_t lines, int64_t depth, int64_t words,
                float* panel) {
  const int64_t whole = ceil_div(depth, P);
  for (int64_t l = 0; l < lines; l += R, panel += R * words) {
    for (int64_t w = 0; w < whole; w += kWidth) {
      const int high = static_cast<int>(std::min<int64_t>(kWidth, whole - w)),
                deep = static_cast<int>(std::min<int64_t>(P * kWidth, depth - w * P));
      for (int i = 0; i < R; i += kWidth) {
        Vec square[kWidth];
        for (int j = 0; j < kWidth; ++j)
          square[j] = l + i + j < lines && i + j < R
                          ? along<P>(from + (l + i + j) * line + w * P, deep)
                          : simd::zero();
        simd::transpose(square);
        for (int j = 0; j < high; ++j) {
          float* to = panel + (w + j) * R + i;
          if (R - i >= kWidth)
            simd::store(to, square[j]);
          else
            simd::store_first(to, square[j], R - i);
        }
      }
    }
  }
}

/// f(from) with a factor's elements.
template <int P, class F>
void with_elements(const Factor& x, const F& f) {
  if constexpr (P == 1) {
    if (x.dtype == kFloat32) return f(reinterpret_cast<const float*>(x.data));
    if (x.dtype == kFloat16) return f(reinterpret_cast<const Half*>(x.data));
  }
  f(reinterpret_cast<const BFloat16*>(x.data));
}

template <int R, int P>
void pack(const Factor& f, int64_t lines, int64_t depth, int64_t words, float* panels) {
  with_elements<P>(f, [&](const auto* from) {
    if (f.line == 1)
      pack_beside<R, P>(from, f.depth, lines, depth, words, panels);
    else if (f.depth == 1)
      pack_along<R, P>(from, f.line, lines, depth, words, panels);
    else
      pack_strided<R, P>(from, f.line, f.depth, lines, depth, words, panels);
  });
  const int64_t here = ceil_div(depth, P) * R;
  for (int64_t l = 0; l < lines && here < words * R; l += R)
    std::fill(panels + l * words + here, panels + (l + R) * words, 0.f);
}

/// Where a tile reads a.
struct LinesOfA {
  const float* data;
  bool along;    // the words of a row are neighbours; else those of a depth
  int64_t step;  // from one row to the next, or from one depth
};

/// Lines as they are, in float, `pitch` apart, which leaves room for a last register.
inline void copy_lines(const Factor& f, int64_t lines, int64_t depth, float* to, int64_t pitch) {
  with_elements<1>(f, [&](const auto* from) {
    for (int64_t l = 0; l < lines; ++l, from += f.line, to += pitch) {
      int64_t k = 0;
      for (; k + kWidth <= depth; k += kWidth) simd::store(to + k, simd::load(from + k));
      if (k < depth) simd::store(to + k, simd::load_first(from + k, static_cast<int>(depth - k)));
    }
  });
}

}  // namespace halftape::cpu

#endif
