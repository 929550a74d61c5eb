// Windows: the sum of overlapping ones, and where their largest elements are. A task works on rows
// of the result, and for each takes the positions in a window one after the other.
#include <limits>

#include "halftape/cpu/cpu_backend.h"
#include "halftape/cpu/vector/loop.h"

namespace halftape::cpu {
namespace {

using Axis = WindowLoop::Axis;
constexpr int64_t kPiece = 1024;  // elements of a row that are worked on at once

/// What elements of a type are computed in.
template <class T>
using Compute = std::conditional_t<std::is_integral_v<T>, int64_t,
                                   std::conditional_t<std::is_same_v<T, double>, double, float>>;

/// The smallest number ≥ 0 that is at least a/b.
int64_t from_zero(int64_t a, int64_t b) { return a <= 0 ? 0 : (a + b - 1) / b; }

/// Calls f(block of a, block of b, i, j, begin, end) for pieces [begin, end) of the rows (i, j) of
/// every block; blocks have `size` elements. `work`: steps for each element.
template <class F>
void each_piece(const Array& a, const Array& b, int dims, const int64_t (&size)[3], int64_t work,
                const F& f) {
  const Array a0 = block_starts(a, dims), b0 = block_starts(b, b.dim() - a0.dim());
  const CollapsedDims<2> lead({&a0, &b0});
  const int64_t pieces = (size[2] + kPiece - 1) / kPiece, rows = a0.numel() * size[0] * size[1];
  const int64_t grain =
      std::max<int64_t>(1, kTile / std::max<int64_t>(1, std::min(size[2], kPiece) * work));
  parallel_ranges(rows * pieces, grain, [&](int64_t first, int64_t last) {
    for (int64_t r = first; r < last; ++r) {
      const int64_t begin = r % pieces * kPiece, j = r / pieces % size[1],
                    i = r / pieces / size[1] % size[0];
      int64_t rest = r / pieces / size[1] / size[0];
      char *at = lead.operands[0].base, *bt = lead.operands[1].base;
      for (int d = lead.shape.size() - 1; d >= 0; --d) {
        at += rest % lead.shape[d] * lead.operands[0].strides[d];
        bt += rest % lead.shape[d] * lead.operands[1].strides[d];
        rest /= lead.shape[d];
      }
      f(at, bt, i, j, begin, std::min(size[2], begin + kPiece));
    }
  });
}

int64_t positions(const WindowLoop& w) { return w.axis[0].size * w.axis[1].size * w.axis[2].size; }

/// Calls f(k, window) for each window of which position k lies on element s.
template <class F>
void each_window_on(const Axis& a, int64_t s, const F& f) {
  for (int64_t k = 0; k < a.size; ++k) {
    const int64_t from = s + a.padding - k * a.dilation;
    if (from >= 0 && from % a.stride == 0 && from / a.stride < a.count) f(k, from / a.stride);
  }
}

/// Calls f(k, element) for the positions k of window l that lie inside the dimension.
template <class F>
void each_in_window(const Axis& a, int64_t l, const F& f) {
  for (int64_t k = 0; k < a.size; ++k) {
    const int64_t s = l * a.stride + k * a.dilation - a.padding;
    if (s >= 0 && s < a.length) f(k, s);
  }
}

template <class T>
void fold_as(const Array& y, const Array& g, const Windows& windows) {
  using S = Compute<T>;
  const WindowLoop w(windows, y, g, true);
  const auto &a0 = w.axis[0], &a1 = w.axis[1], &a2 = w.axis[2];
  const Store<S> write = storer<S>(y.dtype());
  const int64_t size[] = {a0.length, a1.length, a2.length};
  const auto item = static_cast<int64_t>(element_size(y.dtype()));
  const int64_t spacing = a2.window_step / static_cast<int64_t>(sizeof(T));
  each_piece(y, g, windows.dims(), size, positions(w),
             [&](char* to, const char* from, int64_t i, int64_t j, int64_t begin, int64_t end) {
               S sum[kPiece];
               std::fill_n(sum, end - begin, S(0));
               each_window_on(a0, i, [&](int64_t k0, int64_t l0) {
                 each_window_on(a1, j, [&](int64_t k1, int64_t l1) {
                   const char* row = from + k0 * a0.inner_step + l0 * a0.window_step +
                                     k1 * a1.inner_step + l1 * a1.window_step;
                   for (int64_t k = 0; k < a2.size; ++k) {
                     const int64_t shift = a2.padding - k * a2.dilation,
                                   first = from_zero(begin + shift, a2.stride),
                                   last = std::min(a2.count, from_zero(end + shift, a2.stride));
                     const T* x = reinterpret_cast<const T*>(row + k * a2.inner_step);
                     const int64_t at = -shift - begin;  // where window 0 lies in the piece
                     if (a2.stride == 1 && spacing == 1) {
                       for (int64_t l = first; l < last; ++l) sum[l + at] += convert<S>(x[l]);
                     } else {
                       for (int64_t l = first; l < last; ++l)
                         sum[l * a2.stride + at] += convert<S>(x[l * spacing]);
                     }
                   }
                 });
               });
               char* out = to + i * a0.step + j * a1.step + begin * a2.step;
               for (int64_t s = 0; s < end - begin; s += kLanes)
                 write(sum + s, static_cast<int>(std::min<int64_t>(kLanes, end - begin - s)),
                       out + s * a2.step, a2.step / item);
             });
}

/// `Number`: wide enough for positions; of the elements' width, the search is a vector's.
template <class T, class Number>
void argmax_as(const Array& y, const Array& x, const Windows& windows) {
  using S = Compute<T>;
  const WindowLoop w(windows, x, y, false);
  const auto &a0 = w.axis[0], &a1 = w.axis[1], &a2 = w.axis[2];
  const int64_t size[] = {a0.count, a1.count, a2.count};
  const int64_t spacing = a2.step / static_cast<int64_t>(sizeof(T));
  each_piece(y, x, windows.dims(), size, positions(w),
             [&](char* to, const char* from, int64_t i, int64_t j, int64_t begin, int64_t end) {
               S top[kPiece];
               Number best[kPiece];
               std::fill_n(top, end - begin, S(0));
               std::fill_n(best, end - begin, Number(-1));
               each_in_window(a0, i, [&](int64_t, int64_t s0) {
                 each_in_window(a1, j, [&](int64_t, int64_t s1) {
                   const T* row = reinterpret_cast<const T*>(from + s0 * a0.step + s1 * a1.step);
                   const int64_t number = (s0 * a1.length + s1) * a2.length;
                   for (int64_t k = 0; k < a2.size; ++k) {
                     const int64_t shift = a2.padding - k * a2.dilation;
                     const int64_t first = std::max(begin, from_zero(shift, a2.stride)),
                                   last = std::min(end, from_zero(a2.length + shift, a2.stride));
                     const T* at = row + (first * a2.stride - shift) * spacing;
                     auto s = static_cast<Number>(number + first * a2.stride - shift);
                     for (int64_t l = first - begin; l < last - begin; ++l) {
                       // Without branches, which no processor could foresee.
                       const S v = convert<S>(*at), t = top[l];
                       const bool better = (!(v <= t) & (t == t)) | (best[l] < 0);
                       top[l] = better ? v : t;
                       best[l] = better ? s : best[l];
                       at += a2.stride * spacing, s += static_cast<Number>(a2.stride);
                     }
                   }
                 });
               });
               char* out = to + i * a0.window_step + j * a1.window_step + begin * a2.window_step;
               for (int64_t l = 0; l < end - begin; ++l)
                 *reinterpret_cast<int64_t*>(out + l * a2.window_step) = best[l];
             });
}

/// f(Type<T>{}, x): integers, which are rarely pooled, come as int64.
template <class F>
void with_element_type(const Array& x, const F& f) {
  if (!is_floating_point(x.dtype())) return f(Type<int64_t>{}, x.to(kInt64));
  if (x.dtype() == kFloat16) return f(Type<Half>{}, x);
  if (x.dtype() == kBFloat16) return f(Type<BFloat16>{}, x);
  if (x.dtype() == kFloat32) return f(Type<float>{}, x);
  f(Type<double>{}, x);
}

}  // namespace

void CpuBackend::unfold(const Array& y, const Array& x, const Windows& windows) {
  if (y.numel() == 0) return;
  const int n = windows.dims();
  copy(y, window_view(x, windows, y.shape().slice(y.dim() - n, n)));
}

void CpuBackend::fold(const Array& y, const Array& g, const Windows& windows) {
  if (y.numel() == 0) return;
  if (g.numel() == 0) return fill(y, 0);
  with_element_type(
      g, [&](auto t, const Array& from) { fold_as<typename decltype(t)::type>(y, from, windows); });
}

void CpuBackend::argmax_windows(const Array& y, const Array& x, const Windows& windows) {
  if (y.numel() == 0) return;
  if (x.numel() == 0) return fill(y, -1);
  with_element_type(x, [&](auto t, const Array& from) {
    using T = typename decltype(t)::type;
    if (x.numel() <= std::numeric_limits<int32_t>::max())
      argmax_as<T, int32_t>(y, from, windows);
    else
      argmax_as<T, int64_t>(y, from, windows);
  });
}

}  // namespace halftape::cpu
