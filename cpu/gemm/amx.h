// A tile of a packed product by AMX (Intel's Advanced Matrix Extensions), whose registers are
// matrices of 16 rows of 64 bytes.
#pragma once
#include "halftape/cpu/gemm/result.h"

#if HALFTAPE_CPU_AMX
#include <atomic>

namespace halftape::cpu {

/// c ← c, or 0 when it is the first block of the depth, + a·b, of 16·M rows and 16·V columns, for
/// 16 pairs of bfloat16 at a time, from panels of 32 lines; c's rows are `pitch` apart. The sum of
/// each 16 pairs: the products of first elements are one chain of fused multiply-adds from 0, those
/// of second elements another; both are added, and that to c, each rounded, and subnormals count as
/// 0 (Intel SDM, TDPBF16PS).
template <int M, int V>
void matrix_tile(int64_t words, const float* a, const float* b, float* c, int64_t pitch,
                 bool first) {
  // Compilers do not know that these instructions read memory.
  std::atomic_signal_fence(std::memory_order_seq_cst);
  constexpr int64_t kBytes = sizeof(float);
  if (first) {
    _tile_zero(0);
    if constexpr (V == 2) _tile_zero(1);
    if constexpr (M == 2) _tile_zero(2);
    if constexpr (M == 2 && V == 2) _tile_zero(3);
  } else {
    _tile_loadd(0, c, pitch * kBytes);
    if constexpr (V == 2) _tile_loadd(1, c + 16, pitch * kBytes);
    if constexpr (M == 2) _tile_loadd(2, c + 16 * pitch, pitch * kBytes);
    if constexpr (M == 2 && V == 2) _tile_loadd(3, c + 16 * pitch + 16, pitch * kBytes);
  }
  for (int64_t w = 0; w < words; w += 16, a += 16 * 32, b += 16 * 32) {
    _tile_loadd(6, b, 32 * kBytes);
    _tile_loadd(4, a, 16 * kBytes);
    _tile_dpbf16ps(0, 4, 6);
    if constexpr (M == 2) {
      _tile_loadd(5, a + 16 * 16, 16 * kBytes);
      _tile_dpbf16ps(2, 5, 6);
    }
    if constexpr (V == 2) {
      _tile_loadd(7, b + 16, 32 * kBytes);
      _tile_dpbf16ps(1, 4, 7);
    }
    if constexpr (M == 2 && V == 2) _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, c, pitch * kBytes);
  if constexpr (V == 2) _tile_stored(1, c + 16, pitch * kBytes);
  if constexpr (M == 2) _tile_stored(2, c + 16 * pitch, pitch * kBytes);
  if constexpr (M == 2 && V == 2) _tile_stored(3, c + 16 * pitch + 16, pitch * kBytes);
}

/// a in panels of 32 lines, which lie as a tile reads them: 16 words of each line, then the
/// next 16. Rows that are missing in the last panel may hold anything.
inline void pack_matrices(const Factor& a, int64_t lines, int64_t depth, int64_t words,
                          float* panels) {
  const auto* from = reinterpret_cast<const BFloat16*>(a.data);
  const auto at = [&](int64_t l, int64_t w) {
    return panels + l / 32 * 32 * words + w * 32 + l % 32 * 16;
  };
  if (a.line != 1) {
    for (int64_t l = 0; l < lines; ++l, from += a.line) {
      for (int64_t w = 0; w < words; w += 16) {
        const int n = static_cast<int>(std::clamp<int64_t>(depth - 2 * w, 0, 32));
        BFloat16 gathered[32];
        const BFloat16* pairs = from + 2 * w;
        if (a.depth != 1) {
          for (int k = 0; k < n; ++k) gathered[k] = from[(2 * w + k) * a.depth];
          pairs = gathered;
        }
        simd::store(at(l, w), along<2>(pairs, n));
      }
    }
    return;
  }
  // Squares of words are transposed in registers.
  for (int64_t l = 0; l < lines; l += 16) {
    const int high = static_cast<int>(std::min<int64_t>(16, lines - l));
    for (int64_t w = 0; w < words; w += 16) {
      Vec square[16];
      for (int64_t j = 0; j < 16; ++j) {
        const int64_t k = 2 * (w + j);
        square[j] = k < depth ? beside<2>(from + l + k * a.depth, a.depth, high, k + 1 == depth)
                              : simd::zero();
      }
      simd::transpose(square);
      for (int i = 0; i < 16; ++i) simd::store(at(l + i, w), square[i]);
    }
  }
}

/// Sums in AMX's registers, which one thread sets up for the time of a part.
class MatrixTiles {
 public:
  static constexpr int kElements = 2, kRows = 32, kColumns = 32;
  static constexpr int kTogether = 16;   // words that a step takes
  static constexpr bool kExact = false;  // 16 or 32 rows are written
  static constexpr int64_t kBlockRows = 10 * kRows;
  static constexpr int64_t kSerial = 1 << 23;  // multiply-adds that are not worth a second thread

  MatrixTiles() {
    alignas(64) static constexpr struct {
      uint8_t palette = 1, start = 0, reserved[14] = {};
      uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
      uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
    } kEight;
    _tile_loadconfig(&kEight);
  }
  ~MatrixTiles() { _tile_release(); }
  MatrixTiles(const MatrixTiles&) = delete;
  MatrixTiles& operator=(const MatrixTiles&) = delete;

  static void pack_a(const Factor& a, int64_t lines, int64_t depth, int64_t words, float* panels) {
    pack_matrices(a, lines, depth, words, panels);
  }
  /// A tile of so many rows and registers of columns.
  void multiply(int rows, int registers, int64_t words, const LinesOfA& a, const float* b,
                int64_t /*b_step*/, float* c, int64_t pitch, bool first,
                const Ending* ending) const {
    const auto of = rows <= 16 ? (registers == 1 ? &matrix_tile<1, 1> : &matrix_tile<1, 2>)
                               : (registers == 1 ? &matrix_tile<2, 1> : &matrix_tile<2, 2>);
    of(words, a.data, b, c, pitch, first);
    if (!ending || (!ending->bias && ending->epilogue == Epilogue::None)) return;
    if (registers == 1)
      end_rows<1>(*ending, rows, c, pitch);
    else
      end_rows<2>(*ending, rows, c, pitch);
  }

 private:
  template <int V>
  static void end_rows(const Ending& ending, int rows, float* c, int64_t pitch) {
    for (int i = 0; i < rows; ++i, c += pitch) {
      Vec sums[1][V];
      for (int v = 0; v < V; ++v) sums[0][v] = simd::load(c + v * kWidth);
      end(ending.at(i, 0), sums);
      for (int v = 0; v < V; ++v) simd::store(c + v * kWidth, sums[0][v]);
    }
  }
};

}  // namespace halftape::cpu

#endif
