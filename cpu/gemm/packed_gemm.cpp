#include "halftape/cpu/gemm/packed_gemm.h"

#ifdef HALFTAPE_SIMD
#include "halftape/cpu/gemm/amx.h"
#include "halftape/cpu/gemm/tile.h"
#include "halftape/cpu/runtime/allocator.h"
#include "halftape/cpu/vector/loop.h"

namespace halftape::cpu {
namespace {

// What multiplies: this file is compiled by itself for each kind of dot products of bfloat16.
#ifndef HALFTAPE_CPU_GEMM
using Tiles = VectorTiles<1>;
#elif HALFTAPE_CPU_AMX
using Tiles = MatrixTiles;
#else
using Tiles = VectorTiles<2>;
#endif
constexpr int P = Tiles::kElements, kRows = Tiles::kRows, kColumns = Tiles::kColumns;

// Blocks of the depth, in words, of rows and of columns, so that packed b's panels stay in the
// first-level cache or near it, packed a in the second, and packed b in the third.
constexpr int64_t kDepth = 512, kBlockRows = Tiles::kBlockRows, kBlockColumns = 3072;

struct Product {
  int64_t rows, columns, depth;
  Factor a, b;
  Result d;
};

/// How many tiles of rows may read b in place, whose depths are so many bytes apart, until packing
/// pays. Depths that all begin in one set of the cache push each other out.
constexpr int64_t most_tiles_in_place(int64_t pitch) {
  if (pitch % 4096 == 0) return 2;
  return pitch <= 2048 ? 64 : 20;
}

/// The length of equal parts of a whole, none of which is longer than `most`, in whole units.
constexpr int64_t equal_part(int64_t whole, int64_t most, int64_t unit) {
  return round_up(ceil_div(whole, ceil_div(whole, most)), unit);
}

/// Rows [i0, i1) and columns [j0, j1) of a product, which one thread works on in blocks.
///
/// Packing pays only for what is read many times. Otherwise b is read in place where whole panels
/// are neighbours, and a unless all its rows begin in the same set of the cache; such rows are
/// copied.
class Part {
 public:
  Part(const Product& product, int64_t i0, int64_t i1, int64_t j0, int64_t j1)
      : p_(product), i0_(i0), i1_(i1), j0_(j0), j1_(j1) {}

  void run() const {
    for (int64_t j = j0_; j < j1_; j += columns_)
      for (int64_t k = 0; k < p_.depth; k += depth_) {
        Block b{.j = j, .k = k, .across = std::min(columns_, j1_ - j)};
        b.deep = std::min(depth_, p_.depth - k);
        b.words = round_up(ceil_div(b.deep, P), Tiles::kTogether);
        b.first = k == 0, b.last = k + b.deep == p_.depth;
        const int64_t in_place = columns_in_place(b.across);
        pack<kColumns, P>(p_.b.at(j + in_place, k), b.across - in_place, b.deep, b.words,
                          packed_b_.data());
        for (b.i = i0_; b.i < i1_; b.i += rows_) {
          b.down = std::min(rows_, i1_ - b.i);
          if (!a_in_place_) pack_a(b);
          run_tiles(b);
        }
      }
  }

 private:
  /// `down` rows, `across` columns and `deep` depths, in so many words, from (i, j, k) on.
  struct Block {
    int64_t i = 0, j, k, down = 0, across, deep = 0, words = 0;
    bool first = false, last = false;  // of the depth
  };
  /// Of so many columns, those whose panels are whole registers of b's own memory.
  int64_t columns_in_place(int64_t across) const {
    if (!b_in_place_) return 0;
    return across % kWidth == 0 ? across : across / kColumns * kColumns;
  }

  void pack_a(const Block& b) const {
    const Factor a = p_.a.at(b.i, b.k);
    if (a_in_rows_)
      copy_lines(a, b.down, b.deep, packed_a_.data(), a_pitch_);
    else
      Tiles::pack_a(a, b.down, b.deep, b.words, packed_a_.data());
  }

  void run_tiles(const Block& b) const {
    // Tiles of equal height, if panels leave the choice: low tiles are slow.
    const int64_t tiles_down = ceil_div(b.down, kRows);
    const int64_t height = a_in_place_ || a_in_rows_ ? ceil_div(b.down, tiles_down) : kRows;
    const auto run = [&](int64_t i, int64_t j) {
      run_tile(b, i, j, static_cast<int>(std::min(height, b.down - i)),
               static_cast<int>(std::min<int64_t>(kColumns, b.across - j)));
    };
    // A panel of b stays in the first cache while a passes by; but rows of a that lie across memory
    // are fetched once.
    if (a_in_place_ && p_.a.line == 1) {
      for (int64_t i = 0; i < b.down; i += height)
        for (int64_t j = 0; j < b.across; j += kColumns) run(i, j);
    } else {
      for (int64_t j = 0; j < b.across; j += kColumns)
        for (int64_t i = 0; i < b.down; i += height) run(i, j);
    }
  }

  /// The tile at (i, j) of a block.
  void run_tile(const Block& b, int64_t i, int64_t j, int high, int wide) const {
    const LinesOfA a = lines_of(b, i);
    const bool whole = wide % kWidth == 0;  // registers
    const bool right_in_place = b_in_place_ && whole;
    const float* right = right_in_place ? reinterpret_cast<const float*>(p_.b.at(b.j + j, b.k).data)
                                        : packed_b_.data() + (b_in_place_ ? 0 : j * b.words);
    const int64_t row = b.i + i, column = b.j + j;
    alignas(64) float own[kRows * kColumns];
    float* c = own;
    int64_t pitch = kColumns;
    const bool in_d = sums_in_d_ && whole;
    if (in_d) {
      c = static_cast<float*>(p_.d.at(row, column));
      pitch = p_.d.row;
    } else if (blocks_ > 1) {
      c = sums_.data() + (row - i0_) * pitch_ + (sums_in_d_ ? 0 : j);
      pitch = pitch_;
    }
    const bool ready = b.last && p_.d.takes_sums();
    const Ending ending = p_.d.ending.at(row, column);
    tiles_.multiply(high, ceil_div(wide, kWidth), b.words, a, right,
                    right_in_place ? p_.b.depth : kColumns, c, pitch, b.first,
                    ready ? &ending : nullptr);
    if (b.last && !(ready && in_d)) finish_(p_.d, c, pitch, row, column, high, wide);
  }
  LinesOfA lines_of(const Block& b, int64_t i) const {
    if (a_in_place_) {
      const auto* data = reinterpret_cast<const float*>(p_.a.at(b.i + i, b.k).data);
      return p_.a.depth == 1 ? LinesOfA{data, true, p_.a.line} : LinesOfA{data, false, p_.a.depth};
    }
    if (a_in_rows_) return {packed_a_.data() + i * a_pitch_, true, a_pitch_};
    return {packed_a_.data() + i * b.words, false, kRows};
  }

  const Product& p_;
  const int64_t i0_, i1_, j0_, j1_;
  const Tiles tiles_ = Tiles();
  // Blocks of equal size, so that none is short.
  const int64_t depth_ = equal_part(p_.depth, P*kDepth, std::max(8, P*Tiles::kTogether)),
                rows_ = equal_part(i1_ - i0_, kBlockRows, kRows),
                columns_ = equal_part(j1_ - j0_, kBlockColumns, kColumns);
  const int64_t blocks_ = ceil_div(p_.depth, depth_);  // of the depth
  const bool b_in_place_ = p_.b.dtype == kFloat32 && p_.b.line == 1 &&
                           p_.rows <= most_tiles_in_place(p_.b.depth * 4) * kRows;
  const bool a_in_place_ =
      p_.a.dtype == kFloat32 &&
      ((p_.a.depth == 1 && (p_.a.line * 4 % 4096 != 0 || p_.rows <= 64)) ||
       (p_.a.line == 1 && p_.columns <= 4 * kColumns) ||
       ((p_.a.depth == 1 || p_.a.line == 1) && p_.rows * p_.depth * 4 <= 32768));
  const bool a_in_rows_ = P == 1 && !a_in_place_ && p_.a.depth == 1;
  const int64_t words_ = ceil_div(depth_, P), a_pitch_ = round_up(words_, kWidth) + kWidth;
  const bool sums_in_d_ =
      Tiles::kExact && p_.d.dtype == kFloat32 && p_.d.column == 1 && p_.d.beta == 0;
  // Sums between blocks of the depth, where d is no place for them: in a last panel of few columns,
  // or in all.
  const int64_t pitch_ = sums_in_d_ ? kColumns : columns_;
  const int64_t packed_columns_ =
      b_in_place_ ? round_up(p_.columns - columns_in_place(p_.columns), kColumns) : columns_;
  const Scratch<float> packed_b_ = Scratch<float>(packed_columns_ * words_);
  const Scratch<float> packed_a_ = Scratch<float>(a_in_place_  ? 0
                                                  : a_in_rows_ ? rows_ * a_pitch_
                                                               : rows_ * words_);
  const Scratch<float> sums_ =
      Scratch<float>(blocks_ == 1 ? 0 : round_up(i1_ - i0_, kRows) * pitch_);
  const Finish finish_ = finisher(p_.d.dtype);
};

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

}  // namespace

bool ends_in_tiles(const Gemm& g) {
  return (g.epilogue == Epilogue::Relu || g.epilogue == Epilogue::DRelu) && g.alpha == 1 &&
         g.beta == 0 && !is_swapped(g);
}

void packed_gemm(const Gemm& g) {
  const int rank = g.d.dim();
  const int64_t m = g.d.size(rank - 2), n = g.d.size(rank - 1), k = g.a.size(rank - 1);
  auto step = [&](const Array& x, int back) { return x.strides()[rank - back]; };
  const Scratch<float> bias(g.bias ? round_up(n, kColumns) : 0);
  if (g.bias) {
    const int64_t by = g.bias->strides()[0];
    visit(g.bias->dtype(), [&](auto t) {
      const auto* x = g.bias->data<typename decltype(t)::type>();
      for (int64_t j = 0; j < n; ++j) bias.data()[j] = convert<float>(x[j * by]);
    });
    std::fill_n(bias.data() + n, round_up(n, kColumns) - n, 0.f);
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
             {g.bias ? bias.data() : nullptr, g.epilogue,
              g.aux.defined() ? g.aux.data<uint8_t>() : nullptr, relu_mask_bytes(n)},
             false}};
  const bool swap = is_swapped(g);
  if (swap) p = transposed(p);

  const int64_t batches = g.d.numel() / (m * n), one = p.rows * p.columns * k;
  const int64_t threads = get_num_threads();
  const bool serial = threads == 1 || batches * one <= Tiles::kSerial;
  // Columns are split first: each thread packs its own part of b.
  const int64_t wanted = serial || batches >= 2 * threads ? 1 : 2 * threads;
  const int64_t wide = std::max<int64_t>(round_up(ceil_div(p.columns, wanted), kColumns),
                                         wanted > 1 ? 4 * kColumns : kColumns);
  const int64_t across = ceil_div(p.columns, wide);
  const int64_t high = round_up(ceil_div(p.rows * across, wanted), kRows);
  const int64_t down = across >= threads ? 1 : ceil_div(p.rows, high);
  const int64_t rows = down == 1 ? p.rows : high;
  const int64_t together =
      std::max<int64_t>(1, serial ? batches : Tiles::kSerial / one);  // batches a task
  parallel_ranges(batches, together, [&](int64_t begin, int64_t end) {
    for (int64_t batch = begin; batch < end; ++batch) {
      Product q = p;
      q.a.data += batch_offset(swap ? g.b : g.a, batch);
      q.b.data += batch_offset(swap ? g.a : g.b, batch);
      q.d.data += batch_offset(g.d, batch);
      if (q.d.ending.mask) q.d.ending.mask += batch * m * q.d.ending.mask_row;
      parallel_for(down * across, [&](int64_t part) {
        const int64_t i = part / across * rows, j = part % across * wide;
        Part(q, i, std::min(i + rows, q.rows), j, std::min(j + wide, q.columns)).run();
      });
    }
  });
}

}  // namespace halftape::cpu

#ifdef HALFTAPE_CPU_GEMM
/// The only symbol that others see where this file is compiled by itself.
extern "C" void HALFTAPE_CPU_GEMM(const halftape::Gemm& g) { halftape::cpu::packed_gemm(g); }
#endif

#endif
