// Windows as columns, the sum of overlapping ones, and the positions of their largest elements. A
// thread copies a run of eight windows, or computes one element of the result and takes the
// positions in a window one after the other.
#include "halftape/core/contract/windows.h"

#include <algorithm>

#include "halftape/cuda/copy.h"
#include "halftape/cuda/cuda_backend.h"
#include "halftape/cuda/vector/map.cuh"
#include "halftape/cuda/vector/runs.cuh"

namespace halftape::cuda {
namespace {

using Axis = WindowLoop::Axis;

/// The elements at 0 of all but the first `dims` dimensions.
Layout<2> starts_of(const Array& y, const Array& x, int dims) {
  const Array to = block_starts(y, y.dim() - dims), from = block_starts(x, x.dim() - dims);
  return Layout<2>({&to, &from});
}

struct WindowArrays {
  Layout<2> lead;  // first elements of the blocks, in the result and in the operand
  WindowLoop loop;
  Divisor size[3];  // of a block of the result: (lengths…) or (windows…)
  Divisor stride[3];

  /// windows: the result has an element for each.
  WindowArrays(const Array& y, const Array& x, int dims, const WindowLoop& l, bool windows)
      : lead(starts_of(y, x, y.dim() - dims)), loop(l) {
    for (int d = 0; d < 3; ++d) {
      size[d] = windows ? l.axis[d].count : l.axis[d].length;
      stride[d] = l.axis[d].stride;
    }
  }
};

/// The block of the result's element i, and its position there.
struct Place {
  int64_t block, at[3];
  __device__ Place(int64_t i, const Divisor (&size)[3]) {
    const Divisor::Result d2 = size[2].divide(i), d1 = size[1].divide(d2.quotient),
                          d0 = size[0].divide(d1.quotient);
    block = d0.quotient;
    at[0] = d0.rest, at[1] = d1.rest, at[2] = d2.rest;
  }
};

/// The window whose position k is at element s; −1 for none.
__device__ inline int64_t window_on(const Axis& a, const Divisor& stride, int64_t s, int64_t k) {
  const int64_t from = s + a.padding - k * a.dilation;
  if (from < 0) return -1;
  const Divisor::Result d = stride.divide(from);
  return d.rest == 0 && d.quotient < a.count ? d.quotient : -1;
}
/// The element at position k of window l; −1 for none.
__device__ inline int64_t element_of(const Axis& a, int64_t l, int64_t k) {
  const int64_t s = l * a.stride + k * a.dilation - a.padding;
  return s < a.length ? s : -1;
}

template <class S>
__global__ void fold_windows(const __grid_constant__ WindowArrays w, int64_t count) {
  const Axis &a0 = w.loop.axis[0], &a1 = w.loop.axis[1], &a2 = w.loop.axis[2];
  for (int64_t i = thread_number(); i < count; i += thread_count()) {
    const Place p(i, w.size);
    char* at[2];
    w.lead.locate(p.block, at);
    S sum = 0;
    for (int64_t k0 = 0; k0 < a0.size; ++k0) {
      const int64_t l0 = window_on(a0, w.stride[0], p.at[0], k0);
      if (l0 < 0) continue;
      for (int64_t k1 = 0; k1 < a1.size; ++k1) {
        const int64_t l1 = window_on(a1, w.stride[1], p.at[1], k1);
        if (l1 < 0) continue;
        const char* row = at[1] + k0 * a0.inner_step + l0 * a0.window_step + k1 * a1.inner_step +
                          l1 * a1.window_step;
        for (int64_t k2 = 0; k2 < a2.size; ++k2) {
          const int64_t l2 = window_on(a2, w.stride[2], p.at[2], k2);
          if (l2 < 0) continue;
          sum += load<S>(row + k2 * a2.inner_step + l2 * a2.window_step, w.lead.dtype[1]);
        }
      }
    }
    store(at[0] + p.at[0] * a0.step + p.at[1] * a1.step + p.at[2] * a2.step, w.lead.dtype[0], sum);
  }
}

template <class S>
__global__ void largest_of_windows(const __grid_constant__ WindowArrays w, int64_t count) {
  const Axis &a0 = w.loop.axis[0], &a1 = w.loop.axis[1], &a2 = w.loop.axis[2];
  for (int64_t i = thread_number(); i < count; i += thread_count()) {
    const Place p(i, w.size);
    char* at[2];
    w.lead.locate(p.block, at);
    S top = 0;
    int64_t best = -1;
    for (int64_t k0 = 0; k0 < a0.size; ++k0) {
      const int64_t s0 = element_of(a0, p.at[0], k0);
      if (s0 < 0) continue;
      for (int64_t k1 = 0; k1 < a1.size; ++k1) {
        const int64_t s1 = element_of(a1, p.at[1], k1);
        if (s1 < 0) continue;
        for (int64_t k2 = 0; k2 < a2.size; ++k2) {
          const int64_t s2 = element_of(a2, p.at[2], k2);
          if (s2 < 0) continue;
          const S v = load<S>(at[1] + s0 * a0.step + s1 * a1.step + s2 * a2.step, w.lead.dtype[1]);
          if (best < 0 || v > top || (v != v && top == top)) {
            top = v;
            best = (s0 * a1.length + s1) * a2.length + s2;
          }
        }
      }
    }
    *reinterpret_cast<int64_t*>(at[0] + p.at[0] * a0.window_step + p.at[1] * a1.window_step +
                                p.at[2] * a2.window_step) = best;
  }
}

/// Copies of windows, by runs of eight neighbours.
struct Unfolding {
  Layout<2> lead;
  WindowLoop loop;
  Divisor runs;         // of all windows at one position
  Divisor position[3];  // the sizes of a window
  Divisor count[3];     // of windows
  int64_t windows;      // their number
  bool flat, packed;    // windows are contiguous in the result; and runs begin at aligned addresses

  Unfolding(const Array& y, const Array& x, const Windows& w)
      : lead(starts_of(y, x, x.dim() - w.dims())), loop(w, x, y, true), windows(1), flat(true) {
    const auto item = static_cast<int64_t>(element_size(y.dtype()));
    auto starts = reinterpret_cast<int64_t>(lead.base[0]);
    for (int d = 2; d >= 0; --d) {
      const Axis& a = loop.axis[d];
      position[d] = a.size, count[d] = a.count;
      flat = flat && (a.count == 1 || a.window_step == windows * item);
      windows *= a.count;
      if (a.size > 1) starts |= a.inner_step;
    }
    for (int d = 0; d < lead.rank; ++d)
      if (lead.sizes[d] > 1) starts |= lead.strides[0][d];
    packed = flat && starts % 16 == 0;
    runs = (windows + kPack - 1) / kPack;
  }
  /// True if positions in x fit 32 bits.
  bool small() const {
    int64_t most = 0;
    for (const Axis& a : loop.axis)
      most = std::max({most, a.length, a.count * a.stride + a.size * a.dilation + a.padding});
    return most < INT32_MAX;
  }
};

/// T: an unsigned type of an element's size. I: of positions.
template <class T, class I>
__global__ void unfold_windows(const __grid_constant__ Unfolding u, int64_t count) {
  using U = std::make_unsigned_t<I>;  // negative positions become large
  const Axis &a0 = u.loop.axis[0], &a1 = u.loop.axis[1], &a2 = u.loop.axis[2];
  for (int64_t i = thread_number(); i < count; i += thread_count()) {
    const Divisor::Result run = u.runs.divide(i);
    const Place k(run.quotient, u.position);
    char* at[2];
    u.lead.locate(k.block, at);
    const int64_t first = run.rest * kPack, left = u.windows - first;
    const Place l(first, u.count);
    // The position in x of the run's window, and of the first window of its dimension.
    const I start1 = static_cast<I>(k.at[1] * a1.dilation - a1.padding),
            start2 = static_cast<I>(k.at[2] * a2.dilation - a2.padding);
    I s0 = static_cast<I>(l.at[0] * a0.stride + k.at[0] * a0.dilation - a0.padding),
      s1 = static_cast<I>(l.at[1] * a1.stride) + start1,
      s2 = static_cast<I>(l.at[2] * a2.stride) + start2, l1 = static_cast<I>(l.at[1]),
      l2 = static_cast<I>(l.at[2]);
    const char* from;
    bool inside;  // the row of x
    const auto find_row = [&] {
      inside = static_cast<U>(s0) < static_cast<U>(a0.length) &&
               static_cast<U>(s1) < static_cast<U>(a1.length);
      from = at[1] + s0 * a0.step + s1 * a1.step + s2 * a2.step;
    };
    find_row();
    const int64_t next = a2.stride * a2.step;
    Pack<T> x;
    unrolled<kPack>([&](int e) {
      x.v[e] = T{};
      if (e < left && inside && static_cast<U>(s2) < static_cast<U>(a2.length))
        x.v[e] = *reinterpret_cast<const T*>(from);
      s2 += static_cast<I>(a2.stride), from += next;
      if (++l2 < a2.count) return;
      l2 = 0, s2 = start2, s1 += static_cast<I>(a1.stride);
      if (++l1 == a1.count) l1 = 0, s1 = start1, s0 += static_cast<I>(a0.stride);
      find_row();
    });
    char* to = at[0] + k.at[0] * a0.inner_step + k.at[1] * a1.inner_step + k.at[2] * a2.inner_step;
    if (u.packed && left >= kPack)
      reinterpret_cast<Pack<T>*>(to)[run.rest] = x;
    else if (u.flat)
      unrolled<kPack>([&](int e) {
        if (e < left) reinterpret_cast<T*>(to)[first + e] = x.v[e];
      });
    else
      unrolled<kPack>([&](int e) {
        const Place at_e(first + e, u.count);
        if (e < left)
          *reinterpret_cast<T*>(to + at_e.at[0] * a0.window_step + at_e.at[1] * a1.window_step +
                                at_e.at[2] * a2.window_step) = x.v[e];
      });
  }
}

}  // namespace

void CudaBackend::unfold(const Array& y, const Array& x, const Windows& windows) {
  if (y.numel() == 0) return;
  if (x.numel() == 0) return fill(y, 0);
  const Queue q = queue(y);
  const Unfolding u(y, x, windows);
  const int64_t count = y.numel() / u.windows * u.runs.size;
  with_bytes(element_size(y.dtype()), [&](auto t) {
    using T = typename decltype(t)::type;
    if constexpr (sizeof(T) <= 8)  // as all dtypes are
      launch_for(q, count, "unfold",
                 u.small() ? unfold_windows<T, int32_t> : unfold_windows<T, int64_t>, u, count);
  });
}

void CudaBackend::fold(const Array& y, const Array& g, const Windows& windows) {
  if (y.numel() == 0) return;
  if (g.numel() == 0) return fill(y, 0);
  const Queue q = queue(y);
  const WindowArrays w(y, g, windows.dims(), WindowLoop(windows, y, g, true), false);
  with_compute_type(g.dtype(), [&](auto t) {
    using S = typename decltype(t)::type;
    launch_for(q, y.numel(), "fold", fold_windows<S>, w, y.numel());
  });
}

void CudaBackend::argmax_windows(const Array& y, const Array& x, const Windows& windows) {
  if (y.numel() == 0) return;
  if (x.numel() == 0) return fill(y, -1);
  const Queue q = queue(y);
  const WindowArrays w(y, x, windows.dims(), WindowLoop(windows, x, y, false), true);
  with_compute_type(x.dtype(), [&](auto t) {
    using S = typename decltype(t)::type;
    launch_for(q, y.numel(), "argmax_windows", largest_of_windows<S>, w, y.numel());
  });
}

}  // namespace halftape::cuda
