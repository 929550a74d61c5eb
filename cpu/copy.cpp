// Copies between any strides and dtypes, constants, and random numbers.
#include <cmath>
#include <cstring>

#include "halftape/core/formula/philox.h"
#include "halftape/cpu/kernels.h"
#include "halftape/cpu/loop.h"

namespace halftape::cpu {
namespace {

template <class To, class From>
void copy_run(const char* from, int64_t from_step, char* to, int64_t to_step, int64_t n) {
  const From* x = reinterpret_cast<const From*>(from);
  To* y = reinterpret_cast<To*>(to);
  if (from_step == 1 && to_step == 1) {
    for (int64_t i = 0; i < n; ++i) y[i] = convert<To>(x[i]);
  } else {
    for (int64_t i = 0; i < n; ++i) y[i * to_step] = convert<To>(x[i * from_step]);
  }
}

/// f(i, y[i]) for every element in row-major order, on a contiguous array or a contiguous copy of
/// it.
template <class F>
void generate(const Array& y, int64_t grain, const F& f) {
  const Array flat = y.contiguous() ? y : empty_like(y);
  visit(y.dtype(), [&](auto t) {
    using T = typename decltype(t)::type;
    T* out = flat.data<T>();
    parallel_ranges(flat.numel(), grain, [&](int64_t begin, int64_t end) { f(begin, end, out); });
  });
  if (!y.contiguous()) copy(y, flat);
}

}  // namespace

void copy(const Array& to, const Array& from) {
  visit(to.dtype(), [&](auto t) {
    visit(from.dtype(), [&](auto u) {
      using To = typename decltype(t)::type;
      using From = typename decltype(u)::type;
      const Walk<2> walk({&to, &from});
      walk.run([](const std::array<char*, 2>& at, const std::array<int64_t, 2>& steps, int64_t n) {
        copy_run<To, From>(at[1], steps[1], at[0], steps[0], n);
      });
    });
  });
}

void fill(const Array& to, Scalar value) {
  visit(to.dtype(), [&](auto t) {
    using T = typename decltype(t)::type;
    const T v = value.to<T>();
    const Walk<1> walk({&to});
    walk.run([&](const std::array<char*, 1>& at, const std::array<int64_t, 1>& steps, int64_t n) {
      T* y = reinterpret_cast<T*>(at[0]);
      for (int64_t i = 0; i < n; ++i) y[i * steps[0]] = v;
    });
  });
}

void random(const Array& y, Distribution kind, double a, double b, RandomKey key) {
  auto word = [&](int64_t i) {
    return random_bits(key.seed, key.offset, static_cast<uint64_t>(i));
  };
  generate(y, 8192, [&](int64_t begin, int64_t end, auto* out) {
    using T = std::remove_pointer_t<decltype(out)>;
    for (int64_t i = begin; i < end; ++i) {
      double v = 0;
      if (kind == Distribution::Uniform) {
        v = a + (b - a) * static_cast<double>(uniform01(word(i)));
      } else if (kind == Distribution::Bernoulli) {
        v = static_cast<double>(uniform01(word(i))) < a ? 1 : 0;
      } else if (kind == Distribution::Normal) {
        // Box–Muller on a pair of words: elements 2j and 2j + 1 are its cosine and sine.
        const int64_t pair = i & ~int64_t{1};
        const double u = (static_cast<double>(word(pair)) + 0.5) * 0x1p-32,
                     w = static_cast<double>(word(pair + 1)) * 0x1p-32;
        const double r = std::sqrt(-2 * std::log(u)), angle = 6.283185307179586477 * w;
        v = a + b * r * (i == pair ? std::cos(angle) : std::sin(angle));
      } else {
        const double u =
            (static_cast<double>(word(i)) +
             static_cast<double>(random_bits(key.seed, ~key.offset, static_cast<uint64_t>(i))) *
                 0x1p-32) *
            0x1p-32;
        v = std::min(std::floor(a + (b - a) * u), b - 1);
      }
      if constexpr (is_element<T> && std::is_floating_point_v<T>)
        out[i] = static_cast<T>(v);
      else
        out[i] = convert<T>(v);
      // Rounding to few digits may reach the excluded upper end.
      if (kind == Distribution::Uniform && convert<double>(out[i]) >= b && a < b)
        out[i] = convert<T>(a);
    }
  });
}

}  // namespace halftape::cpu
