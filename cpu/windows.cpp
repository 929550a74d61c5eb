// Windows: the sum of overlapping ones, and where their largest elements are. A task works on rows
// of the result, and for each takes the positions in a window one after the other.
#include <limits>

#include "halftape/cpu/cpu_backend.h"
#include "halftape/cpu/vector/loop.h"
#include "halftape/cpu/vector/simd.h"

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

/// Elements of the last two dimensions of a block: rows j … j_end − 1, of each begin … end − 1.
struct Piece {
  int64_t i, j, j_end, begin, end;
  int64_t width() const { return end - begin; }
};

/// Calls f(block of a, block of b, piece) for pieces of every block, of at most kPiece elements;
/// blocks have `size` elements. `work`: steps for each element.
void each_piece(const Array& a, const Array& b, int dims, const int64_t (&size)[3], int64_t work,
                FunctionRef<void(char* a, const char* b, const Piece& piece)> f) {
  const Array a0 = block_starts(a, dims), b0 = block_starts(b, b.dim() - a0.dim());
  const CollapsedDims<2> lead({&a0, &b0});
  const int64_t width = std::min(size[2], kPiece), high = std::min(size[1], kPiece / width);
  const int64_t across = (size[2] + width - 1) / width, down = (size[1] + high - 1) / high;
  const int64_t grain = std::max<int64_t>(1, kTile / (width * high * std::max<int64_t>(1, work)));
  parallel_ranges(a0.numel() * size[0] * down * across, grain, [&](int64_t first, int64_t last) {
    for (int64_t r = first; r < last; ++r) {
      const int64_t begin = r % across * width, j = r / across % down * high;
      const int64_t i = r / across / down % size[0];
      int64_t rest = r / across / down / size[0];
      char *at = lead.operands[0].base, *bt = lead.operands[1].base;
      for (int d = lead.shape.size() - 1; d >= 0; --d) {
        at += rest % lead.shape[d] * lead.operands[0].strides[d];
        bt += rest % lead.shape[d] * lead.operands[1].strides[d];
        rest /= lead.shape[d];
      }
      f(at, bt, Piece{i, j, std::min(size[1], j + high), begin, std::min(size[2], begin + width)});
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

/// sum[l·sum_step] += x[l·step] for l < n.
template <class S>
using AddTo = void (*)(S* sum, int64_t sum_step, const void* x, int64_t step, int64_t n);
template <class T>
void add_to(Compute<T>* sum, int64_t sum_step, const void* from, int64_t step, int64_t n) {
  using S = Compute<T>;
  const T* x = static_cast<const T*>(from);
  if (sum_step != 1 || step != 1) {
    for (int64_t l = 0; l < n; ++l) sum[l * sum_step] += convert<S>(x[l * step]);
    return;
  }
#ifdef HALFTAPE_SIMD
  if constexpr (std::is_same_v<S, float>) {  // the ends of short rows are much of the work
    for (int64_t l = 0; l < n; l += simd::kWidth) {
      const int m = static_cast<int>(std::min<int64_t>(simd::kWidth, n - l));
      simd::store_first(sum + l, simd::load_first(sum + l, m) + simd::load_first(x + l, m), m);
    }
    return;
  }
#endif
  for (int64_t l = 0; l < n; ++l) sum[l] += convert<S>(x[l]);
}

template <class S>
void fold_as(const Array& y, const Array& g, const Windows& windows, AddTo<S> add_row) {
  const WindowLoop w(windows, y, g, true);
  const auto &a0 = w.axis[0], &a1 = w.axis[1], &a2 = w.axis[2];
  const Store<S> write = storer<S>(y.dtype());
  const int64_t size[] = {a0.length, a1.length, a2.length};
  const auto item = static_cast<int64_t>(element_size(y.dtype()));
  const int64_t spacing = a2.window_step / static_cast<int64_t>(element_size(g.dtype()));
  // Rows one after the other for each position in a window: a sum is not read right after it was
  // stored.
  const auto add = [&](S* sum, const char* from, const Piece& p) {
    each_window_on(a0, p.i, [&](int64_t k0, int64_t l0) {
      for (int64_t k1 = 0; k1 < a1.size; ++k1) {
        const int64_t down = a1.padding - k1 * a1.dilation,
                      begin = from_zero(p.j + down, a1.stride),
                      end = std::min(a1.count, from_zero(p.j_end + down, a1.stride));
        for (int64_t k = 0; begin < end && k < a2.size; ++k) {
          const int64_t shift = a2.padding - k * a2.dilation,
                        first = from_zero(p.begin + shift, a2.stride),
                        last = std::min(a2.count, from_zero(p.end + shift, a2.stride));
          const char* at = from + k0 * a0.inner_step + l0 * a0.window_step + k1 * a1.inner_step +
                           k * a2.inner_step + first * a2.window_step;
          for (int64_t l1 = begin; l1 < end && first < last; ++l1) {
            // Where the row's first window lies in the piece.
            const int64_t to =
                (l1 * a1.stride - down - p.j) * p.width() - shift - p.begin + first * a2.stride;
            add_row(sum + to, a2.stride, at + l1 * a1.window_step, spacing, last - first);
          }
        }
      }
    });
  };
  each_piece(y, g, windows.dims(), size, positions(w),
             [&](char* to, const char* from, const Piece& p) {
               S sum[kPiece];
               std::fill_n(sum, (p.j_end - p.j) * p.width(), S(0));
               add(sum, from, p);
               for (int64_t j = p.j; j < p.j_end; ++j) {
                 const S* row = sum + (j - p.j) * p.width();
                 char* out = to + p.i * a0.step + j * a1.step + p.begin * a2.step;
                 for (int64_t s = 0; s < p.width(); s += kLanes)
                   write(row + s, std::min<int64_t>(kLanes, p.width() - s), out + s * a2.step,
                         a2.step / item);
               }
             });
}

constexpr int64_t kWindows = 16;  // side by side, whose largest elements are found together

/// v[l] = x[l·step] for first ≤ l < last; x[0] need not be there.
template <class S>
using TakeApart = void (*)(const char* x, int64_t step, int64_t first, int64_t last, S* v);
template <class T>
void take_apart(const char* from, int64_t step, int64_t first, int64_t last, Compute<T>* v) {
  using S = Compute<T>;
  const T* x = reinterpret_cast<const T*>(from);
#ifdef HALFTAPE_SIMD
  if constexpr (std::is_same_v<S, float>) {
    constexpr int64_t kWidth = simd::kWidth;
    if (step == 2 && first == 0) {  // as most pooling has it
      for (int64_t l = 0; l < last; l += kWidth) {
        const auto load = [&](int64_t begin) {
          const int64_t n = std::clamp<int64_t>(2 * last - 1 - begin, 0, kWidth);
          return simd::load_first(x + begin, static_cast<int>(n));
        };
        simd::store(v + l, simd::even(load(2 * l), load(2 * l + kWidth)));
      }
      return;
    }
  }
#endif
  for (int64_t l = first; l < last; ++l) v[l] = convert<S>(x[l * step]);
}

/// The largest elements of kWindows windows side by side, and where they are. Elements are
/// collected first, a position of all windows after the other: a register cannot load at once what
/// was stored one by one just before.
template <class S, class Number>
class Largest {
 public:
  explicit Largest(int64_t step) : step_(static_cast<Number>(step)) {
    std::fill_n(best, kWindows, Number(-1));
  }
  /// Room for an element of each window, of which those of first … last − 1 count, and are at
  /// place + window·step.
  S* room(int64_t first, int64_t last, int64_t place) {
    if (count_ == kMost) take();
    found_[count_] = {static_cast<Number>(first), static_cast<Number>(last),
                      static_cast<Number>(place)};
    std::fill_n(v_[count_], kWindows, S(0));
    return v_[count_++];
  }
  /// Without branches, which no processor could foresee.
  void take() {
    for (int i = 0; i < count_; ++i) {
      const auto [first, last, place] = found_[i];
      for (Number l = 0; l < kWindows; ++l) {
        const S v = v_[i][l], t = top_[l];
        const bool better = (l >= first) & (l < last) & ((!(v <= t) & (t == t)) | (best[l] < 0));
        top_[l] = better ? v : t;
        best[l] = better ? place + l * step_ : best[l];
      }
    }
    count_ = 0;
  }
  Number best[kWindows];

 private:
  static constexpr int kMost = 16;
  struct Found {
    Number first, last, place;
  };
  Number step_;
  int count_ = 0;
  Found found_[kMost];
  S top_[kWindows] = {}, v_[kMost][kWindows];
};

/// `Number`: wide enough for positions; of the elements' width, the search is a vector's.
template <class S, class Number>
void argmax_as(const Array& y, const Array& x, const Windows& windows, TakeApart<S> take) {
  const WindowLoop w(windows, x, y, false);
  const auto &a0 = w.axis[0], &a1 = w.axis[1], &a2 = w.axis[2];
  const int64_t size[] = {a0.count, a1.count, a2.count};
  const int64_t step = a2.stride * a2.step / static_cast<int64_t>(element_size(x.dtype()));
  const auto search = [&](char* to, const char* from, int64_t i, int64_t j, int64_t begin,
                          int64_t n) {
    Largest<S, Number> largest(a2.stride);
    each_in_window(a0, i, [&](int64_t, int64_t s0) {
      each_in_window(a1, j, [&](int64_t, int64_t s1) {
        const char* row = from + s0 * a0.step + s1 * a1.step;
        for (int64_t k = 0; k < a2.size; ++k) {
          const int64_t at = begin * a2.stride + k * a2.dilation - a2.padding;  // of window 0
          const bool inside = at >= 0 && at + (n - 1) * a2.stride < a2.length;
          const int64_t first = inside ? 0 : from_zero(-at, a2.stride),
                        last = inside ? n : std::min(n, from_zero(a2.length - at, a2.stride));
          S* v = largest.room(first, last, (s0 * a1.length + s1) * a2.length + at);
          take(row + at * a2.step, step, first, last, v);
        }
      });
    });
    largest.take();
    char* out = to + i * a0.window_step + j * a1.window_step + begin * a2.window_step;
    if (a2.window_step == sizeof(int64_t)) {
      std::copy_n(largest.best, n, reinterpret_cast<int64_t*>(out));
      return;
    }
    for (int64_t l = 0; l < n; ++l)
      *reinterpret_cast<int64_t*>(out + l * a2.window_step) = largest.best[l];
  };
  each_piece(y, x, windows.dims(), size, positions(w),
             [&](char* to, const char* from, const Piece& p) {
               for (int64_t j = p.j; j < p.j_end; ++j)
                 for (int64_t l = p.begin; l < p.end; l += kWindows)
                   search(to, from, p.i, j, l, std::min<int64_t>(kWindows, p.end - l));
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
  with_element_type(g, [&](auto t, const Array& from) {
    using T = typename decltype(t)::type;
    fold_as<Compute<T>>(y, from, windows, &add_to<T>);
  });
}

void CpuBackend::argmax_windows(const Array& y, const Array& x, const Windows& windows) {
  if (y.numel() == 0) return;
  if (x.numel() == 0) return fill(y, -1);
  with_element_type(x, [&](auto t, const Array& from) {
    using T = typename decltype(t)::type;
    using S = Compute<T>;
    if constexpr (std::is_same_v<S, float>)
      if (x.numel() <= std::numeric_limits<int32_t>::max())
        return argmax_as<S, int32_t>(y, from, windows, &take_apart<T>);
    argmax_as<S, int64_t>(y, from, windows, &take_apart<T>);
  });
}

}  // namespace halftape::cpu
