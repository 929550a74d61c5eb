// Running reductions along a dimension, by one of two kernels. The shape alone decides which, and
// so the order.
#include "halftape/core/formula/reduce.h"

#include "halftape/cuda/cuda_backend.h"
#include "halftape/cuda/vector/map.cuh"
#include "halftape/cuda/vector/runs.cuh"

namespace halftape::cuda {
namespace {

struct Scan {
  Layout<2> lines;   // their first elements, in y and in x
  int64_t step[2];   // bytes
  int64_t count;     // elements of a line
  int64_t segments;  // of a line
};

/// A thread for a line, one element after the other.
template <class Op, class S>
__global__ void scan_lines(Scan a) {
  for_elements(a.lines, [&](int64_t, char* const(&at)[2]) {
    S acc = Op::template start<S>();
    for (int64_t i = 0; i < a.count; ++i) {
      acc = Op::step(acc, load<S>(at[1] + i * a.step[1], a.lines.dtype[1]));
      store(at[0] + i * a.step[0], a.lines.dtype[0], acc);
    }
  });
}

/// A warp for a segment of a line, 32 elements at a time. The first launch writes the totals of the
/// segments; after a scan of the totals, the second starts from the total before each segment.
template <class Op, class S>
__global__ void scan_segments(Scan a, S* totals, bool only_totals) {
  const int lane = threadIdx.x % kWarp;
  for (int64_t unit = thread_number() / kWarp; unit < a.lines.numel * a.segments;
       unit += thread_count() / kWarp) {
    const Division u(unit, a.segments);
    char* at[2];
    a.lines.locate(u.quotient, at);
    S acc = !only_totals && u.rest > 0 ? totals[unit - 1] : Op::template start<S>();
    const int64_t begin = u.rest * kSegment;
    const int64_t end = begin + kSegment < a.count ? begin + kSegment : a.count;
    for (int64_t first = begin; first < end; first += kWarp) {
      const int64_t i = first + lane;
      S x = i < end ? load<S>(at[1] + i * a.step[1], a.lines.dtype[1]) : Op::template start<S>();
      for (int d = 1; d < kWarp; d *= 2) {
        const S before = __shfl_up_sync(kWholeWarp, x, d);
        if (lane >= d) x = Op::step(before, x);
      }
      x = Op::step(acc, x);
      if (!only_totals && i < end) store(at[0] + i * a.step[0], a.lines.dtype[0], x);
      acc = __shfl_sync(kWholeWarp, x, kWarp - 1);
    }
    if (only_totals && lane == 0) totals[unit] = acc;
  }
}

template <class Op, class S>
void scan_as(const Array& y, const Array& x, int dim, bool reverse) {
  const int64_t count = x.size(dim), start = reverse ? count - 1 : 0;
  const Array to = y.select(dim, start), from = x.select(dim, start);
  Scan a{Layout<2>({&to, &from}), {}, count, (count + kSegment - 1) / kSegment};
  a.step[0] = y.strides()[dim] * static_cast<int64_t>(element_size(y.dtype())) * (reverse ? -1 : 1);
  a.step[1] = x.strides()[dim] * static_cast<int64_t>(element_size(x.dtype())) * (reverse ? -1 : 1);
  const Queue q = queue(x);

  int64_t inner = 1;
  for (int d = dim + 1; d < x.dim(); ++d) inner *= x.size(d);
  const int64_t lines = a.lines.numel;
  if (count <= kWarp || (inner >= kWarp && lines >= 4096)) {
    launch_for(q, lines, Op::name, scan_lines<Op, S>, a);
    return;
  }
  const dim3 blocks = blocks_for(q, lines * a.segments * kWarp);
  if (a.segments == 1) {
    launch(q, Op::name, scan_segments<Op, S>, blocks, kThreads, 0, a, nullptr, false);
    return;
  }
  const Array totals({lines, a.segments}, dtype_of<S>, x.device());
  launch(q, Op::name, scan_segments<Op, S>, blocks, kThreads, 0, a, totals.data<S>(), true);
  scan_as<Op, S>(totals, totals, 1, false);
  launch(q, Op::name, scan_segments<Op, S>, blocks, kThreads, 0, a, totals.data<S>(), false);
}

}  // namespace

void CudaBackend::scan(OpId op, const Array& y, const Array& x, int dim, bool reverse) {
  if (y.numel() == 0) return;
  if (x.dim() == 0) return scan(op, y.unsqueeze(0), x.unsqueeze(0), 0, reverse);
  auto go = [&](auto t) {
    using S = typename decltype(t)::type;
    constexpr auto table =
        ReduceOps::table([](auto o) { return &scan_as<typename decltype(o)::type, S>; });
    table[static_cast<size_t>(op)](y, x, dim, reverse);
  };
  // Many additions in float would lose digits; in double it does not matter.
  if (is_floating_point(promote(x.dtype(), y.dtype())))
    go(Type<double>{});
  else
    go(Type<int64_t>{});
}

}  // namespace halftape::cuda
