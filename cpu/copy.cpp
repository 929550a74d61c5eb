// Copies between any strides and dtypes, constants, and random numbers.
#include <cmath>
#include <cstring>

#include "halftape/core/formula/philox.h"
#include "halftape/cpu/cpu_backend.h"
#include "halftape/cpu/vector/convert.h"
#include "halftape/cpu/vector/loop.h"

namespace halftape::cpu {
namespace {

/// n elements from one place to another; steps in elements.
template <class Word>
void move_run(const void* from, int64_t from_step, void* to, int64_t to_step, int64_t n) {
  const Word* x = static_cast<const Word*>(from);
  Word* y = static_cast<Word*>(to);
  if (from_step == 1 && to_step == 1) {
    std::copy_n(x, n, y);
  } else if (from_step == 2 && to_step == 1) {  // every second: a step that is known vectorises
    for (int64_t i = 0; i < n; ++i) y[i] = x[2 * i];
  } else {
    for (int64_t i = 0; i < n; ++i) y[i * to_step] = x[i * from_step];
  }
}

/// n elements, side by side, of one dtype to another.
using Convert = void (*)(Dtype from, const char* x, Dtype to, char* y, int64_t n);

template <class To, class From>
void convert_run(Dtype, const char* x, Dtype, char* y, int64_t n) {
  convert_all(reinterpret_cast<const From*>(x), n, reinterpret_cast<To*>(y));
}
/// Through lanes of S, which hold each element of `from` as it is.
template <class S>
void convert_through(Dtype from, const char* x, Dtype to, char* y, int64_t n) {
  const Load<S> load = loader<S>(from);
  const Store<S> store = storer<S>(to);
  if (from == dtype_of<S>) return store(reinterpret_cast<const S*>(x), n, y, 1);
  const auto item_from = static_cast<int64_t>(element_size(from)),
             item_to = static_cast<int64_t>(element_size(to));
  alignas(64) S lanes[Lanes<S>::kMost];
  for (int64_t m; n > 0; n -= m, x += m * item_from, y += m * item_to) {
    m = std::min(Lanes<S>::kMost, n);
    load(x, 1, m, lanes);
    store(lanes, m, y, 1);
  }
}
/// Most of what programs convert has a loop of its own: to float32, and integers to integers.
Convert converter(Dtype to, Dtype from) {
  Convert loop = from == kFloat64          ? &convert_through<double>
                 : is_floating_point(from) ? &convert_through<float>
                                           : &convert_through<int64_t>;
  visit(to, [&](auto t) {
    visit(from, [&](auto u) {
      using To = typename decltype(t)::type;
      using From = typename decltype(u)::type;
      if constexpr (std::is_same_v<To, float> ||
                    (std::is_integral_v<To> && std::is_integral_v<From>))
        loop = &convert_run<To, From>;
    });
  });
  return loop;
}

/// Copies runs of elements of one dtype to another. What converts takes neighbours: elements that
/// are apart come together first.
class CopyRun {
 public:
  CopyRun(Dtype to, Dtype from) : to_(to), from_(from), place_(mover(to)) {
    if (to == from) return;
    gather_ = mover(from);
    convert_ = converter(to, from);
  }
  /// Steps in elements.
  void operator()(const char* from, int64_t from_step, char* to, int64_t to_step, int64_t n) const {
    if (!convert_) return place_(from, from_step, to, to_step, n);
    if (from_step == 1 && to_step == 1) return convert_(from_, from, to_, to, n);
    constexpr int64_t kBlock = 256;
    alignas(64) char together[kBlock * 8], converted[kBlock * 8];
    for (int64_t m; n > 0; n -= m) {
      m = std::min(kBlock, n);
      if (from_step != 1) gather_(from, from_step, together, 1, m);
      convert_(from_, from_step == 1 ? from : together, to_, to_step == 1 ? to : converted, m);
      if (to_step != 1) place_(converted, 1, to, to_step, m);
      from += m * from_step * static_cast<int64_t>(element_size(from_));
      to += m * to_step * static_cast<int64_t>(element_size(to_));
    }
  }

 private:
  using Move = void (*)(const void* from, int64_t from_step, void* to, int64_t to_step, int64_t n);
  static Move mover(Dtype d) {
    return with_word(d, [](auto t) -> Move { return &move_run<typename decltype(t)::type>; });
  }

  Dtype to_, from_;
  Move place_, gather_ = nullptr;
  Convert convert_ = nullptr;
};

constexpr int64_t kShort = 1024;  // bytes of a run for which a call is dear

/// Runs of so many bytes, without a call for each: in pieces of a fixed size, of which the last two
/// may overlap.
void copy_short(WalkedRuns<2>& runs, int64_t bytes) {
  const auto in_pieces = [&](auto size) {
    constexpr int64_t kSize = size;
    int64_t count;
    do {
      count = runs.below();
      const char* from = runs.at[1];
      char* to = runs.at[0];
      for (int64_t r = 0; r < count; ++r, from += runs.down(1), to += runs.down(0)) {
        for (int64_t i = 0; i + kSize < bytes; i += kSize) std::memcpy(to + i, from + i, kSize);
        std::memcpy(to + bytes - kSize, from + bytes - kSize, kSize);
      }
    } while (runs.next(count));
  };
  if (bytes >= 64) return in_pieces(std::integral_constant<int64_t, 64>());
  if (bytes >= 32) return in_pieces(std::integral_constant<int64_t, 32>());
  if (bytes >= 16) return in_pieces(std::integral_constant<int64_t, 16>());
  if (bytes >= 8) return in_pieces(std::integral_constant<int64_t, 8>());
  in_pieces(std::integral_constant<int64_t, 1>());
}

/// The dimension in which `from` is contiguous, if that is not the innermost one and a walk along
/// the innermost one would touch a line of cache for each element; otherwise −1.
int transposed(const Walk<2>& walk) {
  const int inner = walk.shape.size() - 1;
  const auto& [to, from] = walk.operands;
  if (walk.shape[inner] < 8 || std::abs(from.strides[inner]) <= 2 * from.item) return -1;
  for (int d = inner - 1; d >= 0; --d)
    if (from.strides[d] == from.item && walk.shape[d] >= 8) return d;
  return -1;
}

constexpr int64_t kSide = 32;
#ifdef HALFTAPE_SIMD  // registers of floats keep any bits
template <class Word>
constexpr bool kByRegisters = sizeof(Word) == sizeof(float);
#else
template <class Word>
constexpr bool kByRegisters = false;
#endif

/// to[i][j] ← from[j][i] of a square, rows so many elements apart.
template <class Word>
void transpose(const Word* from, int64_t from_pitch, Word* to, int64_t to_pitch) {
#ifdef HALFTAPE_SIMD
  if constexpr (kByRegisters<Word>) {
    constexpr int kWidth = simd::kWidth;
    const float* x = reinterpret_cast<const float*>(from);
    float* y = reinterpret_cast<float*>(to);
    for (int64_t i = 0; i < kSide; i += kWidth)
      for (int64_t j = 0; j < kSide; j += kWidth) {
        simd::Vec block[kWidth];
        for (int k = 0; k < kWidth; ++k) block[k] = simd::load(x + (j + k) * from_pitch + i);
        simd::transpose(block);
        for (int k = 0; k < kWidth; ++k) simd::store(y + (i + k) * to_pitch + j, block[k]);
      }
    return;
  }
#endif
  for (int64_t j = 0; j < kSide; ++j)
    for (int64_t i = 0; i < kSide; ++i) to[i * to_pitch + j] = from[j * from_pitch + i];
}

/// Copies squares of 32x32 elements: reads them along the dimension in which `from` is contiguous,
/// and writes them along the innermost one.
template <class Word>
void copy_squares(const Walk<2>& walk, int dim, const CopyRun& copy, bool same) {
  const int inner = walk.shape.size() - 1;
  const auto &to = walk.operands[0], &from = walk.operands[1];
  const int64_t across = walk.shape[inner], down = walk.shape[dim];
  const int64_t rows = (down + kSide - 1) / kSide, step = to.strides[inner] / to.item;
  const int64_t pitch = from.strides[inner] / from.item;
  const bool in_place = same && step == 1 && kByRegisters<Word>;
  int64_t planes = 1;  // of all dimensions but these two
  for (int d = 0; d < inner; ++d) planes *= d == dim ? 1 : walk.shape[d];
  const auto strip = [&](int64_t task) {  // a row of squares
    const int64_t i0 = task % rows * kSide, height = std::min(kSide, down - i0);
    char* y = to.base + i0 * to.strides[dim];
    const char* x = from.base + i0 * from.item;
    int64_t plane = task / rows;
    for (int d = inner - 1; d >= 0; --d) {
      if (d == dim) continue;
      y += plane % walk.shape[d] * to.strides[d];
      x += plane % walk.shape[d] * from.strides[d];
      plane /= walk.shape[d];
    }
    Word square[kSide][kSide];
    for (int64_t j0 = 0; j0 < across; j0 += kSide) {
      const int64_t width = std::min(kSide, across - j0);
      const Word* corner = reinterpret_cast<const Word*>(x) + j0 * pitch;
      const bool whole = height == kSide && width == kSide;
      if (whole && in_place) {
        transpose(corner, pitch, reinterpret_cast<Word*>(y) + j0, to.strides[dim] / to.item);
        continue;
      }
      if (whole)
        transpose(corner, pitch, square[0], kSide);
      else
        for (int64_t j = 0; j < width; ++j)
          for (int64_t i = 0; i < height; ++i) square[i][j] = corner[j * pitch + i];
      for (int64_t i = 0; i < height; ++i)
        copy(reinterpret_cast<const char*>(square[i]), 1,
             y + i * to.strides[dim] + j0 * to.strides[inner], step, width);
    }
  };
  parallel_tasks(planes * rows, planes * across * down, strip);
}

/// Elements begin … end − 1 of a distribution.
void draw(Distribution kind, double a, double b, RandomKey key, int64_t begin, int64_t end,
          double* out) {
  const auto word = [&](int64_t i) {
    return random_bits(key.seed, key.offset, static_cast<uint64_t>(i));
  };
  for (int64_t i = begin; i < end; ++i) {
    double& v = *out++;
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
      const auto at = static_cast<uint64_t>(i);
      v = integer_between(a, b, word(i), philox(key.seed, key.offset + at / 4, 1).v[at % 4]);
    }
  }
}

}  // namespace

bool is_transposed(const Array& to, const Array& from) {
  int inner = to.dim() - 1;
  while (inner > 0 && to.size(inner) == 1) --inner;
  if (inner < 1 || std::abs(from.strides()[inner]) <= 2) return false;  // without planning a walk
  return transposed(Walk<2>({&to, &from})) >= 0;
}

void copy(const Array& to, const Array& from) {
  const CopyRun copy(to.dtype(), from.dtype());
  if (to.numel() <= kAlone && to.contiguous() && from.contiguous())  // no walk to plan
    return copy(static_cast<char*>(from.raw()), 1, static_cast<char*>(to.raw()), 1, to.numel());
  const Walk<2> walk({&to, &from});
  if (const int dim = transposed(walk); dim >= 0)
    return with_word(from.dtype(), [&](auto t) {
      copy_squares<typename decltype(t)::type>(walk, dim, copy, to.dtype() == from.dtype());
    });
  const int64_t item = to.dtype() == from.dtype() ? walk.operands[0].item : 0;
  walk.run([&copy, item](WalkedRuns<2>& runs) {
    const bool as_bytes = runs.steps[0] == 1 && runs.steps[1] == 1 && item > 0;
    if (const int64_t bytes = runs.n * item; as_bytes && bytes <= kShort)
      return copy_short(runs, bytes);
    do copy(runs.at[1], runs.steps[1], runs.at[0], runs.steps[0], runs.n);
    while (runs.next());
  });
}

void fill(const Array& to, Scalar value) {
  uint64_t bits = 0;
  visit(to.dtype(), [&](auto t) {
    const auto v = value.as_element<typename decltype(t)::type>();
    std::memcpy(&bits, &v, sizeof v);
  });
  with_word(to.dtype(), [&](auto t) {
    using Word = typename decltype(t)::type;
    Word v;
    std::memcpy(&v, &bits, sizeof v);
    Walk<1>::run({&to}, [v](WalkedRuns<1>& runs) {
      do {
        Word* y = reinterpret_cast<Word*>(runs.at[0]);
        const int64_t n = runs.n, step = runs.steps[0];
        if (step == 1)
          std::fill_n(y, n, v);
        else
          for (int64_t i = 0; i < n; ++i) y[i * step] = v;
      } while (runs.next());
    });
  });
}

void CpuBackend::copy(const Array& to, const Array& from) { cpu::copy(to, from); }
void CpuBackend::fill(const Array& to, Scalar value) { cpu::fill(to, value); }

void CpuBackend::random(const Array& y, Distribution kind, double a, double b, RandomKey key) {
  const Array flat = y.contiguous() ? y : empty_like(y);
  const auto item = static_cast<int64_t>(element_size(y.dtype()));
  const Store<double> store = storer<double>(y.dtype());
  const Load<double> load = loader<double>(y.dtype());
  parallel_ranges(flat.numel(), 8192, [&](int64_t begin, int64_t end) {
    double drawn[512], rounded[512];
    for (int64_t n; begin < end; begin += n) {
      n = std::min<int64_t>(std::size(drawn), end - begin);
      draw(kind, a, b, key, begin, begin + n, drawn);
      char* out = static_cast<char*>(flat.raw()) + begin * item;
      store(drawn, n, out, 1);
      if (kind != Distribution::Uniform || a >= b) continue;
      // Rounding to few digits may reach the excluded upper end.
      load(out, 1, n, rounded);
      for (int64_t i = 0; i < n; ++i)
        if (rounded[i] >= b) store(&a, 1, out + i * item, 1);
    }
  });
  if (!y.contiguous()) copy(y, flat);
}

}  // namespace halftape::cpu
