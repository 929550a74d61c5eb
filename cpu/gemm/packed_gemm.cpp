#include "halftape/cpu/gemm/packed_gemm.h"

#ifdef HALFTAPE_SIMD
#include <algorithm>
#include <array>
#include <cstring>

#include "halftape/cpu/runtime/allocator.h"
#include "halftape/cpu/vector/loop.h"

namespace halftape::cpu {
namespace {

using simd::Vec, simd::kWidth;

// A tile of the result is what the registers hold: of 32 or 16, four are left for operands.
constexpr int kRows = kWidth == 16 ? 14 : 6, kColumns = 2 * kWidth;
// Blocks of the depth, of rows and of columns, so that packed b's panels stay in the first-level
// cache, packed a in the second, and packed b in the third.
constexpr int64_t kDepth = 512, kBlockRows = 24 * kRows, kBlockColumns = 2048;

constexpr int64_t round_up(int64_t x, int64_t to) { return (x + to - 1) / to * to; }

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

/// What a tile does with sums that are whole: + bias, then relu, which writes its mask, or its
/// gradient, which reads it. Anything may be null, and begins at the tile's first column.
struct Ending {
  const float* bias = nullptr;  // as far behind the columns as a tile reaches
  Epilogue epilogue = Epilogue::None;
  uint8_t* mask = nullptr;
  int64_t mask_row = 0;  // bytes from one row to the next
  Ending at(int64_t i, int64_t j) const {
    return {bias ? bias + j : nullptr, epilogue, mask ? mask + i * mask_row + j / 8 : nullptr,
            mask_row};
  }
};

/// What becomes of sums.
struct Result {
  char* data;
  Dtype dtype;
  int64_t row, column;  // steps in elements
  float alpha, beta;
  Ending ending;
  bool bias_of_rows;  // ending.bias is along the rows instead
  void* at(int64_t i, int64_t j) const {
    return data + (i * row + j * column) * static_cast<int64_t>(element_size(dtype));
  }
  /// Are sums results, but for what a tile does itself?
  bool takes_sums() const { return alpha == 1 && beta == 0 && !(ending.bias && bias_of_rows); }
};

struct Product {
  int64_t rows, columns, depth;
  Factor a, b;
  Result d;
};

// Packing: panels of R lines. A word is one element of a line in float, or, for dot products of
// bfloat16, two neighbours as they are (P = 2); the R words of one depth are neighbours. Lines that
// are missing in the last panel, and the second of an odd last pair, are 0.

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
void pack_apart(const T* from, int64_t line, int64_t depth_step, int64_t lines, int64_t depth,
                float* panels) {
  const int64_t words = (depth + P - 1) / P;
  for (int64_t l = 0; l < round_up(lines, R); ++l) {
    float* panel = panels + l / R * R * words + l % R;
    for (int64_t w = 0; w < words; ++w) {
      T elements[kWidth] = {};
      for (int64_t i = 0; i < P; ++i)
        if (l < lines && w * P + i < depth) elements[i] = from[l * line + (w * P + i) * depth_step];
      simd::store_first(panel + w * R, along<P>(elements, P), 1);
    }
  }
}

/// Lines are neighbours.
template <int R, int P, class T>
void pack_beside(const T* from, int64_t depth_step, int64_t lines, int64_t depth, float* panels) {
  const int64_t words = (depth + P - 1) / P;
  // A few depths of all panels at a time: steps of 4 KiB would all fall into one set of the cache.
  for (int64_t begin = 0; begin < words; begin += 8) {
    const int64_t end = std::min(begin + 8, words);
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
void pack_along(const T* from, int64_t line, int64_t lines, int64_t depth, float* panel) {
  const int64_t words = (depth + P - 1) / P;
  for (int64_t l = 0; l < lines; l += R, panel += R * words) {
    for (int64_t w = 0; w < words; w += kWidth) {
      const int high = static_cast<int>(std::min<int64_t>(kWidth, words - w)),
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
void pack(const Factor& f, int64_t lines, int64_t depth, float* panels) {
  with_elements<P>(f, [&](const auto* from) {
    if (f.line == 1)
      pack_beside<R, P>(from, f.depth, lines, depth, panels);
    else if (f.depth == 1)
      pack_along<R, P>(from, f.line, lines, depth, panels);
    else
      pack_apart<R, P>(from, f.line, f.depth, lines, depth, panels);
  });
}

/// Lines as they are, in float, `pitch` apart, which leaves room for a last register.
void copy_lines(const Factor& f, int64_t lines, int64_t depth, float* to, int64_t pitch) {
  with_elements<1>(f, [&](const auto* from) {
    for (int64_t l = 0; l < lines; ++l, from += f.line, to += pitch) {
      int64_t k = 0;
      for (; k + kWidth <= depth; k += kWidth) simd::store(to + k, simd::load(from + k));
      if (k < depth) simd::store(to + k, simd::load_first(from + k, static_cast<int>(depth - k)));
    }
  });
}

/// c ← c, or 0 when it is the first block of the depth, + a·b, one fused multiply-add for each (one
/// dot product of two); of the last block, with an ending. a's rows are `row` words apart and its
/// depths `step`, b's depths `b_step`, c's rows `pitch`.
using Tile = void (*)(int64_t words, const float* a, int64_t row, int64_t step, const float* b,
                      int64_t b_step, float* c, int64_t pitch, bool first, const Ending* ending);

template <int M, int P>
void tile(int64_t words, const float* a, int64_t row, int64_t step, const float* b, int64_t b_step,
          float* c, int64_t pitch, bool first, const Ending* ending) {
  Vec sums[M][2];
#pragma GCC unroll 16
  for (int i = 0; i < M; ++i) {
    sums[i][0] = first ? simd::zero() : simd::load(c + i * pitch);
    sums[i][1] = first ? simd::zero() : simd::load(c + i * pitch + kWidth);
  }
#pragma GCC unroll 4
  for (int64_t w = 0; w < words; ++w) {
    const Vec b0 = simd::load(b), b1 = simd::load(b + kWidth);
#pragma GCC unroll 16
    for (int i = 0; i < M; ++i) {
      const Vec x = simd::splat(a[i * row]);
      sums[i][0] = simd::add_product<P>(x, b0, sums[i][0]);
      sums[i][1] = simd::add_product<P>(x, b1, sums[i][1]);
    }
    a += step;
    b += b_step;
  }
  if (ending && ending->bias) {
    const Vec b0 = simd::load(ending->bias), b1 = simd::load(ending->bias + kWidth);
#pragma GCC unroll 16
    for (int i = 0; i < M; ++i) sums[i][0] = sums[i][0] + b0, sums[i][1] = sums[i][1] + b1;
  }
  if (ending && ending->epilogue != Epilogue::None) {
    uint8_t* mask = ending->mask;
#pragma GCC unroll 16
    for (int i = 0; i < M; ++i) {
      simd::Bits bits[2];
      if (ending->epilogue == Epilogue::DRelu) {
        std::memcpy(bits, mask, sizeof bits);
      } else {
        for (int half = 0; half < 2; ++half) bits[half] = simd::not_below_or_zero(sums[i][half]);
        if (mask) std::memcpy(mask, bits, sizeof bits);
      }
      for (int half = 0; half < 2; ++half) sums[i][half] = simd::keep(bits[half], sums[i][half]);
      if (mask) mask += ending->mask_row;
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < M; ++i) {
    simd::store(c + i * pitch, sums[i][0]);
    simd::store(c + i * pitch + kWidth, sums[i][1]);
  }
}

template <int P, int... M>
constexpr std::array<Tile, sizeof...(M)> tiles_of(std::integer_sequence<int, M...>) {
  return {&tile<M + 1, P>...};
}
/// [M − 1]: of M rows.
template <int P>
constexpr auto tiles = tiles_of<P>(std::make_integer_sequence<int, kRows>());

/// Sums of rows i… and columns j… into d, which takes them or has its own to add. Rows of sums are
/// padded to kColumns.
template <class T>
void finish_as(const Result& d, const float* sums, int64_t pitch, int64_t i, int64_t j, int rows,
               int columns) {
  const bool ready = d.takes_sums();
  for (int r = 0; r < rows; ++r, sums += pitch) {
    T* to = static_cast<T*>(d.at(i + r, j));
    auto value = [&](auto sum, auto before, auto bias, auto splat) {
      if (ready) return sum;
      auto v = d.alpha == 1 ? sum : splat(d.alpha) * sum;
      if (d.beta != 0) v = v + splat(d.beta) * before();
      if (d.ending.bias) v = v + (d.bias_of_rows ? splat(d.ending.bias[i + r]) : bias());
      return v;
    };
    if constexpr (!std::is_same_v<T, double>) {
      if (d.column == 1) {
        for (int c = 0; c < columns; c += kWidth) {
          const int n = std::min(kWidth, columns - c);
          const Vec v = value(
              simd::load(sums + c), [&] { return simd::load_first(to + c, n); },
              [&] { return simd::load(d.ending.bias + j + c); },
              [](float x) { return simd::splat(x); });
          if (n == kWidth)
            simd::store(to + c, v);
          else
            simd::store_first(to + c, v, n);
        }
        continue;
      }
    }
    for (int c = 0; c < columns; ++c) {
      T& y = to[c * d.column];
      y = convert<T>(value(
          sums[c], [&] { return convert<float>(y); }, [&] { return d.ending.bias[j + c]; },
          [](float x) { return x; }));
    }
  }
}
using Finish = decltype(&finish_as<float>);

/// Rows [i0, i1) and columns [j0, j1) of the result.
template <int P>
void block(const Product& p, int64_t i0, int64_t i1, int64_t j0, int64_t j1) {
  // Of equal depth, so that none is short.
  const int64_t blocks = (p.depth + P * kDepth - 1) / (P * kDepth);
  const int64_t depth = round_up((p.depth + blocks - 1) / blocks, 8), words = depth / P;
  const int64_t rows = std::min(i1 - i0, kBlockRows), columns = std::min(j1 - j0, kBlockColumns);
  // Packing pays for what is read many times. What is not is read where it is: b, where its panels
  // are neighbours; a, unless all its rows begin in the same set of the cache. Of other rows of a,
  // a copy does.
  const int64_t bytes = 4;
  const bool b_in_place = p.b.dtype == kFloat32 && p.b.line == 1 && p.columns % kColumns == 0 &&
                          p.rows <= (p.b.depth * bytes <= 2048 ? 64 : 20) * kRows;
  const bool a_in_place =
      p.a.dtype == kFloat32 &&
      ((p.a.depth == 1 && (p.a.line * bytes % 4096 != 0 || p.rows <= 64)) ||
       (p.a.line == 1 && p.columns <= 4 * kColumns) || p.rows * p.depth * bytes <= 32768);
  const bool a_in_rows = P == 1 && !a_in_place && p.a.depth == 1;
  const int64_t a_pitch = round_up(depth, kWidth) + kWidth;
  const bool sums_in_d = p.d.dtype == kFloat32 && p.d.column == 1 && p.d.beta == 0;
  // Sums between blocks of the depth, where d is no place for them: in a last panel of few columns,
  // or in all.
  const int64_t pitch = sums_in_d ? kColumns : round_up(columns, kColumns);
  const Scratch packed_b(
      b_in_place ? 0 : static_cast<size_t>(round_up(columns, kColumns) * words * bytes)),
      packed_a(a_in_place  ? 0
               : a_in_rows ? static_cast<size_t>(rows * a_pitch * bytes)
                           : static_cast<size_t>(round_up(rows, kRows) * words * bytes)),
      sums(blocks == 1 ? 0 : static_cast<size_t>((i1 - i0) * pitch * bytes));
  alignas(64) float one_tile[kRows * kColumns];
  const Finish finish = visit(p.d.dtype, [](auto t) -> Finish {
    using T = typename decltype(t)::type;
    if constexpr (is_element<T> && !std::is_integral_v<T>)
      return &finish_as<T>;
    else
      return nullptr;
  });

  for (int64_t j = j0; j < j1; j += columns) {
    const int64_t across = std::min(columns, j1 - j);
    for (int64_t k = 0; k < p.depth; k += depth) {
      const int64_t deep = std::min(depth, p.depth - k), deep_words = (deep + P - 1) / P;
      const bool first = k == 0, last = k + deep == p.depth;
      if (!b_in_place) pack<kColumns, P>(p.b.at(j, k), across, deep, packed_b.as<float>());
      for (int64_t i = i0; i < i1; i += rows) {
        const int64_t down = std::min(rows, i1 - i);
        if (a_in_rows)
          copy_lines(p.a.at(i, k), down, deep, packed_a.as<float>(), a_pitch);
        else if (!a_in_place)
          pack<kRows, P>(p.a.at(i, k), down, deep, packed_a.as<float>());
        // Tiles of equal height, as far as panels leave it open: low ones are slow.
        const int64_t tiles_down = (down + kRows - 1) / kRows;
        const int64_t each = a_in_place || a_in_rows ? (down + tiles_down - 1) / tiles_down : kRows;
        // A panel of b stays in the first cache while a passes by; but rows of a that lie across
        // memory are fetched once.
        const bool by_rows = a_in_place && p.a.line == 1;
        const int64_t outer = by_rows ? down : across, outer_step = by_rows ? each : kColumns;
        const int64_t inner = by_rows ? across : down, inner_step = by_rows ? kColumns : each;
        for (int64_t o = 0; o < outer; o += outer_step)
          for (int64_t n = 0; n < inner; n += inner_step) {
            const int64_t ii = by_rows ? o : n, jj = by_rows ? n : o;
            const int wide = static_cast<int>(std::min<int64_t>(kColumns, across - jj));
            const int high = static_cast<int>(std::min(each, down - ii));
            const float* b = b_in_place ? reinterpret_cast<const float*>(p.b.at(j + jj, k).data)
                                        : packed_b.as<float>() + jj * deep_words;
            const int64_t b_step = b_in_place ? p.b.depth : kColumns;
            float* c = one_tile;
            int64_t c_pitch = kColumns;
            const bool in_d = sums_in_d && wide == kColumns;
            if (in_d) {
              c = static_cast<float*>(p.d.at(i + ii, j + jj));
              c_pitch = p.d.row;
            } else if (blocks > 1) {
              c = sums.as<float>() + (i + ii - i0) * pitch + (sums_in_d ? 0 : jj);
              c_pitch = pitch;
            }
            const bool ready = last && p.d.takes_sums();
            const Ending here = p.d.ending.at(i + ii, j + jj);
            const Ending* ending = ready ? &here : nullptr;
            const auto run = tiles<P>[static_cast<size_t>(high - 1)];
            if (a_in_place) {
              const auto* a = reinterpret_cast<const float*>(p.a.at(i + ii, k).data);
              run(deep_words, a, p.a.line, p.a.depth, b, b_step, c, c_pitch, first, ending);
            } else if (a_in_rows) {
              run(deep_words, packed_a.as<float>() + ii * a_pitch, a_pitch, 1, b, b_step, c,
                  c_pitch, first, ending);
            } else {
              run(deep_words, packed_a.as<float>() + ii * deep_words, 1, kRows, b, b_step, c,
                  c_pitch, first, ending);
            }
            if (last && !(ready && in_d)) finish(p.d, c, c_pitch, i + ii, j + jj, high, wide);
          }
      }
    }
  }
}

/// dᵀ = bᵀ·aᵀ.
Product transposed(const Product& p) {
  Product t{p.columns, p.rows, p.depth, p.b, p.a, p.d};
  std::swap(t.d.row, t.d.column);
  t.d.bias_of_rows = !p.d.bias_of_rows;
  return t;
}

/// Where each matrix of a batch begins.
int64_t batch_offset(const Array& x, int64_t batch) {
  int64_t offset = 0;
  for (int d = x.dim() - 3; d >= 0; --d) {
    offset += batch % x.size(d) * x.strides()[d];
    batch /= x.size(d);
  }
  return offset * static_cast<int64_t>(element_size(x.dtype()));
}

/// Rows of the result are written, and tiles are wider than they are high.
bool is_swapped(const Gemm& g) {
  const int rank = g.d.dim();
  const int64_t m = g.d.size(rank - 2), n = g.d.size(rank - 1);
  return (g.d.strides()[rank - 1] != 1 && g.d.strides()[rank - 2] == 1) ||
         (n < kWidth / 2 && m > n);
}

constexpr int64_t kSerial = 1 << 20;  // multiply-adds that are not worth a second thread

}  // namespace

bool ends_in_tiles(const Gemm& g) {
  return (g.epilogue == Epilogue::Relu || g.epilogue == Epilogue::DRelu) && g.alpha == 1 &&
         g.beta == 0 && !is_swapped(g);
}

void packed_gemm(const Gemm& g) {
  const int rank = g.d.dim();
  const int64_t m = g.d.size(rank - 2), n = g.d.size(rank - 1), k = g.a.size(rank - 1);
  auto step = [&](const Array& x, int back) { return x.strides()[rank - back]; };
  const Scratch bias(g.bias ? static_cast<size_t>(round_up(n, kColumns)) * 4 : 0);
  if (g.bias) {
    const int64_t by = g.bias->strides()[0];
    visit(g.bias->dtype(), [&](auto t) {
      const auto* x = g.bias->data<typename decltype(t)::type>();
      for (int64_t j = 0; j < n; ++j) bias.as<float>()[j] = convert<float>(x[j * by]);
    });
    std::fill_n(bias.as<float>() + n, round_up(n, kColumns) - n, 0.f);
  }
  Product p{m,
            n,
            k,
            {static_cast<const char*>(g.a.raw()), g.a.dtype(), step(g.a, 2), step(g.a, 1)},
            {static_cast<const char*>(g.b.raw()), g.b.dtype(), step(g.b, 1), step(g.b, 2)},
            {static_cast<char*>(g.d.raw()),
             g.d.dtype(),
             step(g.d, 2),
             step(g.d, 1),
             static_cast<float>(g.alpha),
             static_cast<float>(g.beta),
             {g.bias ? bias.as<float>() : nullptr, g.epilogue,
              g.aux.defined() ? g.aux.data<uint8_t>() : nullptr, relu_mask_bytes(n)},
             false}};
  const bool swap = is_swapped(g);
  if (swap) p = transposed(p);

  const int64_t batches = g.d.numel() / (m * n), one = p.rows * p.columns * k;
  const int64_t threads = get_num_threads();
  const bool serial = threads == 1 || batches * one <= kSerial;
  // Columns are split first: each thread packs its own part of b.
  const int64_t wanted = serial || batches >= 2 * threads ? 1 : 2 * threads;
  const int64_t wide = std::max<int64_t>(round_up((p.columns + wanted - 1) / wanted, kColumns),
                                         wanted > 1 ? 4 * kColumns : kColumns);
  const int64_t across = (p.columns + wide - 1) / wide;
  const int64_t high = round_up((p.rows * across + wanted - 1) / wanted, kRows);
  const int64_t down = across >= threads ? 1 : (p.rows + high - 1) / high;
  const int64_t rows = down == 1 ? p.rows : high;
  const int64_t together =
      std::max<int64_t>(1, serial ? batches : kSerial / one);  // batches a task
  const auto run =
      simd::kDots && g.a.dtype() == kBFloat16 ? &block < simd::kDots ? 2 : 1 > : &block<1>;
  parallel_ranges(batches, together, [&](int64_t begin, int64_t end) {
    for (int64_t batch = begin; batch < end; ++batch) {
      Product q = p;
      q.a.data += batch_offset(swap ? g.b : g.a, batch);
      q.b.data += batch_offset(swap ? g.a : g.b, batch);
      q.d.data += batch_offset(g.d, batch);
      if (q.d.ending.mask) q.d.ending.mask += batch * m * q.d.ending.mask_row;
      parallel_for(down * across, [&](int64_t part) {
        const int64_t i = part / across * rows, j = part % across * wide;
        run(q, i, std::min(i + rows, q.rows), j, std::min(j + wide, q.columns));
      });
    }
  });
}

}  // namespace halftape::cpu

#endif
