// The sum of overlapping windows, and the positions of their largest elements. A thread computes
// one element of the result and takes the positions in a window one after the other.
#include "halftape/core/contract/windows.h"

#include "halftape/cuda/copy.h"
#include "halftape/cuda/cuda_backend.h"
#include "halftape/cuda/vector/map.cuh"
#include "halftape/cuda/vector/runs.cuh"

namespace halftape::cuda {
namespace {

using Axis = WindowLoop::Axis;

struct WindowArrays {
  Layout<2> lead;  // first elements of the blocks, in the result and in the operand
  WindowLoop loop;
};

/// The block of the result's element i, and its position there.
struct Place {
  int64_t block, at[3];
  __device__ Place(int64_t i, int64_t size0, int64_t size1, int64_t size2) {
    const Division d2(i, size2), d1(d2.quotient, size1), d0(d1.quotient, size0);
    block = d0.quotient;
    at[0] = d0.rest, at[1] = d1.rest, at[2] = d2.rest;
  }
};

/// The window whose position k is at element s; −1 for none.
__device__ inline int64_t window_on(const Axis& a, int64_t s, int64_t k) {
  const int64_t from = s + a.padding - k * a.dilation;
  if (from < 0) return -1;
  const Division d(from, a.stride);
  return d.rest == 0 && d.quotient < a.count ? d.quotient : -1;
}
/// The element at position k of window l; −1 for none.
__device__ inline int64_t element_of(const Axis& a, int64_t l, int64_t k) {
  const int64_t s = l * a.stride + k * a.dilation - a.padding;
  return s < a.length ? s : -1;
}

template <class S>
__global__ void fold_windows(WindowArrays w, int64_t count) {
  const Axis &a0 = w.loop.axis[0], &a1 = w.loop.axis[1], &a2 = w.loop.axis[2];
  for (int64_t i = thread_number(); i < count; i += thread_count()) {
    const Place p(i, a0.length, a1.length, a2.length);
    char* at[2];
    w.lead.locate(p.block, at);
    S sum = 0;
    for (int64_t k0 = 0; k0 < a0.size; ++k0) {
      const int64_t l0 = window_on(a0, p.at[0], k0);
      if (l0 < 0) continue;
      for (int64_t k1 = 0; k1 < a1.size; ++k1) {
        const int64_t l1 = window_on(a1, p.at[1], k1);
        if (l1 < 0) continue;
        const char* row = at[1] + k0 * a0.inner_step + l0 * a0.window_step + k1 * a1.inner_step +
                          l1 * a1.window_step;
        for (int64_t k2 = 0; k2 < a2.size; ++k2) {
          const int64_t l2 = window_on(a2, p.at[2], k2);
          if (l2 < 0) continue;
          sum += load<S>(row + k2 * a2.inner_step + l2 * a2.window_step, w.lead.dtype[1]);
        }
      }
    }
    store(at[0] + p.at[0] * a0.step + p.at[1] * a1.step + p.at[2] * a2.step, w.lead.dtype[0], sum);
  }
}

template <class S>
__global__ void largest_of_windows(WindowArrays w, int64_t count) {
  const Axis &a0 = w.loop.axis[0], &a1 = w.loop.axis[1], &a2 = w.loop.axis[2];
  for (int64_t i = thread_number(); i < count; i += thread_count()) {
    const Place p(i, a0.count, a1.count, a2.count);
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

WindowArrays arrays_of(const Array& y, const Array& x, int dims, const WindowLoop& loop) {
  const Array to = block_starts(y, dims), from = block_starts(x, x.dim() - to.dim());
  return {Layout<2>({&to, &from}), loop};
}

}  // namespace

void CudaBackend::fold(const Array& y, const Array& g, const Windows& windows) {
  if (y.numel() == 0) return;
  if (g.numel() == 0) return fill(y, 0);
  const Queue q = queue(y);
  const WindowArrays w = arrays_of(y, g, windows.dims(), WindowLoop(windows, y, g, true));
  with_compute_type(g.dtype(), [&](auto t) {
    using S = typename decltype(t)::type;
    launch_for(q, y.numel(), "fold", fold_windows<S>, w, y.numel());
  });
}

void CudaBackend::argmax_windows(const Array& y, const Array& x, const Windows& windows) {
  if (y.numel() == 0) return;
  if (x.numel() == 0) return fill(y, -1);
  const Queue q = queue(y);
  const WindowArrays w = arrays_of(y, x, windows.dims(), WindowLoop(windows, x, y, false));
  with_compute_type(x.dtype(), [&](auto t) {
    using S = typename decltype(t)::type;
    launch_for(q, y.numel(), "argmax_windows", largest_of_windows<S>, w, y.numel());
  });
}

}  // namespace halftape::cuda
