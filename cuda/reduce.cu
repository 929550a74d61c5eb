// Sums, products and extrema; reduction.cuh fixes the order of elements.
#include "halftape/core/formula/reduce.h"

#include "halftape/cuda/copy.h"
#include "halftape/cuda/cuda_backend.h"
#include "halftape/cuda/vector/map.cuh"
#include "halftape/cuda/vector/reduction.cuh"

namespace halftape::cuda {
namespace {

/// One of ReduceOps, named when the kernel is launched.
struct AnyOp {
  OpId op;
  template <class S>
  __device__ S start() const {
    S x{};
    with_formula(ReduceOps(), op, [&](auto o) { x = decltype(o)::type::template start<S>(); });
    return x;
  }
  template <class S>
  __device__ S step(S a, S b) const {
    with_formula(ReduceOps(), op, [&](auto o) { a = decltype(o)::type::step(a, b); });
    return a;
  }
};

/// The reduction of one array by one of ReduceOps.
template <class Op, class S>
struct Fold : Reduction<1> {
  using Value = S;
  Op op;

  Fold(const Array& x, const Dims& dims, Op by) : Reduction<1>({x}, dims), op(by) {}
  __device__ S start() const { return op.template start<S>(); }
  __device__ S join(S a, S b) const { return op.step(a, b); }
  __device__ S take_run(S acc, char* const (&base)[1], int64_t first, int64_t end) const {
    char* at[1];
    if (straight) {
      S x[kPack];
      locate(first, base, at);
      fetch(x, 0, at[0], end - first, start());
      for (int i = 0; i < kPack; ++i) acc = op.step(acc, x[i]);
    } else {
#pragma unroll 1
      for (int64_t i = first; i < first + kPack && i < end; ++i) {
        locate(i, base, at);
        acc = op.step(acc, element<S>(0, at[0]));
      }
    }
    return acc;
  }
  __device__ void put(int64_t unit, S x) const { store(place(unit), to.dtype[0], x); }
};

template <class S, class Op>
void reduce_as(const char* name, const Array& y, const Array& x, const Dims& dims, Op op) {
  Fold<Op, S> r(x, dims, op);
  const Array to = r.segments == 1 ? y : Array({r.kept.numel, r.segments}, dtype_of<S>, x.device());
  r.to = Layout<1>({&to});
  launch_reduction(name, queue(x), r);
  if (r.segments > 1) reduce_as<S>(name, y, to, {1}, op);
}

}  // namespace

void CudaBackend::reduce(OpId op, const Array& y, const Array& x, const Dims& dims) {
  if (y.numel() == 0) return;
  const auto at = static_cast<size_t>(op);
  with_compute_type(promote(x.dtype(), y.dtype()), [&](auto t) {
    using S = typename decltype(t)::type;
    if (x.numel() == 0) {
      const auto starts =
          ReduceOps::table([](auto o) { return Scalar(decltype(o)::type::template start<S>()); });
      return fill(y, starts[at]);
    }
    constexpr auto names = ReduceOps::table([](auto o) { return decltype(o)::type::name; });
    if constexpr (std::is_same_v<S, float>)  // most of a training's; others are not worth kernels
      if (op == ReduceOps::index<formula::Sum>())
        return reduce_as<S>(names[at], y, x, dims, formula::Sum());
    reduce_as<S>(names[at], y, x, dims, AnyOp{op});
  });
}

namespace {

/// Finds the first position of the largest (least) element, or of the first NaN, of each segment.
/// The winner depends on values and positions, not on the order of comparisons.
struct Search {
  Layout<1> lines;  // x: where they begin
  Layout<1> to;     // (lines, segments)
  int64_t count, segments;
  int64_t step;               // bytes
  const int64_t* candidates;  // (lines, count): positions to compare; null for all
  bool least;

  template <class S>
  __device__ bool beats(S a, int64_t i, S b, int64_t j) const {
    if (a != a || b != b) return a != a && (b == b || i < j);
    if (a != b) return least ? a < b : a > b;
    return i < j;
  }
};

/// kLanes threads for a segment: 32 if the elements of a line are neighbours in memory, else one.
template <class S, int kLanes>
__global__ void find_extremum(Search s) {
  const int lane = kLanes == 1 ? 0 : threadIdx.x % kLanes;
  for (int64_t unit = thread_number() / kLanes; unit < s.to.numel;
       unit += thread_count() / kLanes) {
    const Division u(unit, s.segments);
    char* base[1];
    s.lines.locate(u.quotient, base);
    const int64_t begin = u.rest * kSegment;
    const int64_t end = begin + kSegment < s.count ? begin + kSegment : s.count;
    S top{};
    int64_t best = -1;  // none yet
    for (int64_t i = begin + lane; i < end; i += kLanes) {
      const int64_t place = s.candidates ? s.candidates[u.quotient * s.count + i] : i;
      const S x = load<S>(base[0] + place * s.step, s.lines.dtype[0]);
      if (best < 0 || s.beats(x, place, top, best)) top = x, best = place;
    }
    for (int d = 1; d < kLanes; d *= 2) {
      const S x = __shfl_down_sync(kWholeWarp, top, d);
      const int64_t place = __shfl_down_sync(kWholeWarp, best, d);
      if (place >= 0 && (best < 0 || s.beats(x, place, top, best))) top = x, best = place;
    }
    char* at[1];
    s.to.locate(unit, at);
    if (lane == 0) store(at[0], s.to.dtype[0], best);
  }
}

void find(const char* name, const Array& y, const Array& in, int dim, bool least) {
  if (y.numel() == 0) return;
  const Array x = in.dim() ? in : in.unsqueeze(0);
  const Array starts = x.select(dim, 0);
  const Queue q = queue(x);
  const auto item = static_cast<int64_t>(element_size(x.dtype()));
  Search s{Layout<1>({&starts}),    Layout<1>({&y}), x.size(dim), 0,
           x.strides()[dim] * item, nullptr,         least};
  const int64_t lines = s.lines.numel;
  const bool side_by_side = std::abs(s.lines.strides[0][s.lines.rank - 1]) < std::abs(s.step);
  const bool alone = s.count <= kWarp || (lines >= kWarp && side_by_side);
  // The winners of the segments are the candidates of the next round, until there is one segment.
  for (Array places;;) {
    s.segments = (s.count + kSegment - 1) / kSegment;
    const Array to = s.segments == 1 ? y : Array(Shape{lines, s.segments}, kInt64, x.device());
    s.to = Layout<1>({&to});
    with_compute_type(x.dtype(), [&](auto t) {
      using S = typename decltype(t)::type;
      if (alone)
        launch_for(q, s.to.numel, name, find_extremum<S, 1>, s);
      else
        launch_for(q, s.to.numel * kWarp, name, find_extremum<S, kWarp>, s);
    });
    if (s.segments == 1) return;
    places = to;
    s.candidates = places.data<int64_t>();
    s.count = s.segments;
  }
}

}  // namespace

void CudaBackend::arg_extremum(const Array& y, const Array& x, int dim, bool least) {
  find(least ? "argmin" : "argmax", y, x, dim, least);
}

}  // namespace halftape::cuda
