// Matrix products on any machine, and of float64: operands become row-major float32 (float64),
// fixed tiles of the result are single-threaded Eigen products over the whole depth, rounded once.
// The canonical form is what makes every layout give the same bits; the fixed tiles, every thread
// count.

// Never the way that Eigen has for small products: its bits follow the alignment of the result.
#define EIGEN_GEMM_TO_COEFFBASED_THRESHOLD 0
#include <Eigen/Core>
#include <mutex>

#include "halftape/core/contract/unfused.h"
#include "halftape/cpu/cpu_backend.h"
#include "halftape/cpu/gemm/packed_gemm.h"
#include "halftape/cpu/runtime/allocator.h"
#include "halftape/cpu/runtime/native_bfloat16.h"
#include "halftape/cpu/vector/loop.h"

namespace halftape::cpu {
namespace {

constexpr int64_t kTileRows = 128, kTileColumns = 256;

template <class S>
using Matrix = Eigen::Matrix<S, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
template <class S>
using ConstView = Eigen::Map<const Matrix<S>, 0, Eigen::OuterStride<>>;

/// Row-major in the dtype that is computed in; itself when it is that already.
Array canonical(const Array& x, Dtype type) {
  if (x.dtype() == type && x.contiguous()) return x;
  Array y(x.shape(), type, x.device());
  copy(y, x);
  return y;
}

template <class S>
void gemm_as(const Gemm& g) {
  const Dtype type = dtype_of<S>;
  const int rank = g.d.dim();
  const int64_t m = g.d.size(rank - 2), n = g.d.size(rank - 1), k = g.a.size(rank - 1);
  if (g.d.numel() == 0) return;
  const Array a = canonical(g.a, type), b = canonical(g.b, type);
  const bool in_place =
      g.d.dtype() == type && g.d.contiguous() && g.beta == 0;  // write tiles where they belong
  const Array product = in_place ? g.d : Array(g.d.shape(), type, g.d.device());
  const Array bias = g.bias ? canonical(*g.bias, type) : Array();
  const Array before = g.beta != 0 ? canonical(g.d, type) : Array();
  const int64_t batches = g.d.numel() / (m * n);
  const int64_t down = (m + kTileRows - 1) / kTileRows,
                across = (n + kTileColumns - 1) / kTileColumns;
  const S alpha = static_cast<S>(g.alpha), beta = static_cast<S>(g.beta);
  parallel_for(batches * down * across, [&](int64_t tile) {
    const int64_t batch = tile / (down * across), row = tile / across % down * kTileRows,
                  column = tile % across * kTileColumns;
    const int64_t rows = std::min(kTileRows, m - row), columns = std::min(kTileColumns, n - column);
    S* out = product.data<S>() + (batch * m + row) * n + column;
    Eigen::Map<Matrix<S>, 0, Eigen::OuterStride<>> d(out, rows, columns, Eigen::OuterStride<>(n));
    if (k == 0) {
      d.setZero();
    } else {
      const ConstView<S> left(a.data<S>() + (batch * m + row) * k, rows, k,
                              Eigen::OuterStride<>(k));
      const ConstView<S> right(b.data<S>() + batch * k * n + column, k, columns,
                               Eigen::OuterStride<>(n));
      // At most what Eigen packs of a tile.
      const auto packed = static_cast<uint64_t>((rows + columns) * k);
      on_host(bytes_of<S>(packed), [&] { d.noalias() = left * right; });
    }
    if (alpha == S(1) && beta == S(0) && !bias.defined()) return;
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < columns; ++c) {
        S v = alpha * out[r * n + c];
        if (beta != S(0)) v += beta * before.data<S>()[(batch * m + row + r) * n + column + c];
        if (bias.defined()) v += bias.data<S>()[column + c];
        out[r * n + c] = v;
      }
    }
  });
  if (!in_place) copy(g.d, product);
}

/// EpilogueSteps::masked_relu, a byte of the mask at a time.
void masked_relu(const Array& d, const Array& mask, bool gradient) {
  if (d.numel() == 0) return;
  const int64_t n = d.size(d.dim() - 1), width = mask.size(mask.dim() - 1);
  visit(d.dtype(), [&](auto t) {
    using T = typename decltype(t)::type;
    parallel_for(d.numel() / n, [&](int64_t row) {
      T* x = d.data<T>() + row * n;
      uint8_t* bits = mask.data<uint8_t>() + row * width;
      for (int64_t j = 0; j < n; j += 8, ++bits) {
        const int64_t here = std::min<int64_t>(8, n - j);
        if (!gradient) {
          *bits = 0;
          for (int64_t k = 0; k < here; ++k)
            *bits |= static_cast<uint8_t>(!(convert<double>(x[j + k]) <= 0) << k);
        }
        for (int64_t k = 0; k < here; ++k)
          if (!(*bits >> k & 1)) x[j + k] = T{};
      }
    });
  });
}

}  // namespace

void CpuBackend::gemm(const Gemm& g) {
  const bool plain = g.epilogue == Epilogue::None && !g.bias_grad.defined();
#ifdef HALFTAPE_SIMD
  const Dtype type = g.a.dtype();
  const bool packs = (type == kFloat32 || is_16bit(type)) && is_floating_point(g.d.dtype()) &&
                     g.d.numel() > 0 && g.a.size(g.a.dim() - 1) > 0;
  if (packs && (plain || (!g.bias_grad.defined() && ends_in_tiles(g)))) {
    const PackedGemm native = type == kBFloat16 ? native_bfloat16_gemm() : nullptr;
    return native ? native(g) : packed_gemm(g);
  }
#endif
  if (!plain) return gemm_unfused(*this, g, {masked_relu});
  static std::once_flag once;
  // Eigen blocks by the cache sizes it finds; fixed ones give the same bits on every machine.
  std::call_once(once, [] { Eigen::setCpuCacheSizes(32 * 1024, 512 * 1024, 4 * 1024 * 1024); });
  with_float_type(g.a.dtype(), [&](auto t) { gemm_as<typename decltype(t)::type>(g); });
}

}  // namespace halftape::cpu
