// Reductions in a fixed order: it depends on the shape and the reduced dimensions alone.
//
// Of the elements that make one output, kSegment neighbours at a time are one segment. Its runs of
// eight go to 32 accumulators in turn, which are joined as a tree. The segments' results are
// reduced in the same way until one is left: the error grows with the logarithm of the count. Three
// kernels do just that with the same bits; which one is fast is a question of layout.
#include "halftape/core/formula/reduce.h"

#include "halftape/cuda/kernels.h"
#include "halftape/cuda/map.cuh"
#include "halftape/cuda/runs.cuh"

namespace halftape::cuda {
namespace {

constexpr int64_t kSegment = 1024;                 // elements
constexpr int64_t kTurn = int64_t{kWarp} * kPack;  // elements after which it is lane 0's turn again
constexpr unsigned kWholeBlock = kWarp * kWarp;    // threads: a warp for each accumulator

/// x as seen without the dimensions `dims`, or with these alone.
Array part_of(const Array& x, const Dims& dims, bool reduced) {
  Shape shape;
  Strides strides;
  for (int d = 0; d < x.dim(); ++d) {
    if (dims.contains(d) != reduced) continue;
    shape.push_back(x.size(d));
    strides.push_back(x.strides()[d]);
  }
  return x.as_strided(shape, strides, x.offset());
}

template <int N>
int64_t inner_stride(const Layout<N>& l) {
  return l.strides[0][l.rank - 1] / static_cast<int64_t>(element_size(l.dtype[0]));
}

struct Reduction {
  Layout<1> kept, reduced;  // x: where outputs begin, and the way from there
  Layout<1> to;             // (outputs, segments)
  int64_t segments;
  bool straight;  // runs do not bend: they lie within the innermost dimension
  Along along;

  Reduction(const Array& x, const Dims& dims)
      : kept({&x}), reduced({&x}), to({&x}), segments(0), straight(false), along(kept, 0, 0) {
    const Array outputs = part_of(x, dims, false), elements = part_of(x, dims, true);
    kept = Layout<1>({&outputs});
    reduced = Layout<1>({&elements});
    segments = (reduced.numel + kSegment - 1) / kSegment;
    straight = reduced.rank == 1 || reduced.sizes[reduced.rank - 1] % kPack == 0;
    along = Along(kept, 0, inner_stride(reduced));
    for (int d = 0; d + 1 < reduced.rank; ++d)
      along.packed = along.packed && reduced.strides[0][d] % 16 == 0;
  }
  __device__ const char* output(int64_t o) const {
    char* at[1];
    kept.locate(o, at);
    return at[0];
  }
  /// Element i of the output that begins at `base`.
  __device__ const char* element(const char* base, int64_t i) const {
    char* at[1];
    reduced.locate(i, at);
    return base + (at[0] - reduced.base[0]);
  }
  template <class S>
  __device__ void put(int64_t unit, S x) const {
    char* at[1];
    to.locate(unit, at);
    store(at[0], to.dtype[0], x);
  }
  __device__ int64_t end_of(int64_t segment) const {
    const int64_t end = (segment + 1) * kSegment;
    return end < reduced.numel ? end : reduced.numel;
  }
};

/// acc with the run that starts at element `first` taken in; what lies beyond `end` changes
/// nothing.
template <class Op, class S>
__device__ S take_run(S acc, const Reduction& r, const char* base, int64_t first, int64_t end) {
  if (r.straight) {
    S x[kPack];
    load_run(x, r.element(base, first), r.along, end - first, Op::template start<S>());
    for (int i = 0; i < kPack; ++i) acc = Op::step(acc, x[i]);
  } else {
    for (int64_t i = first; i < first + kPack && i < end; ++i)
      acc = Op::step(acc, load<S>(r.element(base, i), r.along.dtype));
  }
  return acc;
}

/// A warp for a segment, a lane for an accumulator: where a line's neighbours lie side by side.
template <class Op, class S>
__global__ void reduce_by_warps(Reduction r) {
  const int lane = threadIdx.x % kWarp;
  for (int64_t unit = thread_number() / kWarp; unit < r.to.numel; unit += thread_count() / kWarp) {
    const Division u(unit, r.segments);
    const char* base = r.output(u.quotient);
    const int64_t end = r.end_of(u.rest);
    S acc = Op::template start<S>();
    for (int64_t i = u.rest * kSegment + lane * kPack; i < end; i += kTurn)
      acc = take_run<Op>(acc, r, base, i, end);
    acc = join_lanes<Op>(acc);
    if (lane == 0) r.put(unit, acc);
  }
}

/// A block for a segment of 32 outputs, a warp for an accumulator of each: where outputs lie side
/// by side, as for a sum over a batch.
template <class Op, class S>
__global__ void __launch_bounds__(kWholeBlock) reduce_by_blocks(Reduction r) {
  __shared__ S accumulators[kWarp][kWarp + 1];
  const int lane = threadIdx.x % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
  const int64_t groups = (r.kept.numel + kWarp - 1) / kWarp;
  for (int64_t unit = blockIdx.x; unit < groups * r.segments; unit += gridDim.x) {
    const Division u(unit, r.segments);
    const int64_t first_output = u.quotient * kWarp;
    S acc = Op::template start<S>();
    if (first_output + lane < r.kept.numel) {
      const char* base = r.output(first_output + lane);
      const int64_t end = r.end_of(u.rest);
      for (int64_t i = u.rest * kSegment + warp * kPack; i < end; i += kTurn)
        acc = take_run<Op>(acc, r, base, i, end);
    }
    accumulators[warp][lane] = acc;
    __syncthreads();
    acc = join_lanes<Op>(accumulators[lane][warp]);
    if (lane == 0 && first_output + warp < r.kept.numel)
      r.put((first_output + warp) * r.segments + u.rest, acc);
    __syncthreads();
  }
}

/// A thread for an output of few elements: every accumulator takes one run at most, so they can be
/// joined one after the other, as a binary counter carries.
template <class Op, class S>
__global__ void reduce_by_threads(Reduction r) {
  constexpr int kLevels = 6;
  for (int64_t o = thread_number(); o < r.kept.numel; o += thread_count()) {
    const char* base = r.output(o);
    S levels[kLevels]{};  // level i holds 2ⁱ accumulators where bit i of their number is set
    int runs = 0;
    for (int64_t i = 0; i < r.reduced.numel; i += kPack, ++runs) {
      S x = take_run<Op>(Op::template start<S>(), r, base, i, r.reduced.numel);
      bool carry = true;
      for (int level = 0; level < kLevels; ++level) {
        if (carry && (runs >> level & 1)) {
          x = Op::step(levels[level], x);
        } else if (carry) {
          levels[level] = x;
          carry = false;
        }
      }
    }
    S total = Op::template start<S>();
    for (int level = 0; level < kLevels; ++level)
      if (runs >> level & 1) total = Op::step(levels[level], total);
    r.put(o, total);
  }
}

template <class Op, class S>
void reduce_as(const Array& y, const Array& x, const Dims& dims) {
  if (x.numel() == 0) return fill(y, Op::template start<S>());
  Reduction r(x, dims);
  const int64_t outputs = r.kept.numel, count = r.reduced.numel;
  const Queue q = queue(x);
  const Array to = r.segments == 1 ? y : Array({outputs, r.segments}, dtype_of<S>, x.device());
  r.to = Layout<1>({&to});

  const int64_t across = inner_stride(r.kept), along = inner_stride(r.reduced);
  const bool side_by_side = std::abs(across) < std::abs(along);
  if (count <= kWarp || (count <= kTurn && side_by_side && outputs >= 16384)) {
    launch(q, Op::name, reduce_by_threads<Op, S>, blocks_for(q, outputs), kThreads, 0, r);
  } else if (side_by_side && outputs > 1) {
    const int64_t units = (outputs + kWarp - 1) / kWarp * r.segments;
    const int64_t most = int64_t{4} * q.context.multiprocessors();
    launch(q, Op::name, reduce_by_blocks<Op, S>, dim3(static_cast<unsigned>(std::min(units, most))),
           kWholeBlock, 0, r);
  } else {
    launch(q, Op::name, reduce_by_warps<Op, S>, blocks_for(q, outputs * r.segments * kWarp),
           kThreads, 0, r);
  }
  if (r.segments > 1) reduce_as<Op, S>(y, to, {1});
}

}  // namespace

void reduce(OpId op, const Array& y, const Array& x, const Dims& dims) {
  if (y.numel() == 0) return;
  with_compute_type(promote(x.dtype(), y.dtype()), [&](auto t) {
    using S = typename decltype(t)::type;
    constexpr auto table =
        ReduceOps::table([](auto o) { return &reduce_as<typename decltype(o)::type, S>; });
    table[static_cast<size_t>(op)](y, x, dims);
  });
}

namespace {

/// The first place of the largest (least) element, or of the first NaN, among a segment's. Places
/// and values say who wins, so that the order of looking does not matter.
struct Search {
  Layout<1> lines;  // x: where they begin
  Layout<1> to;     // (lines, segments)
  int64_t count, segments;
  int64_t step;               // bytes
  const int64_t* candidates;  // (lines, count): places to look at; null for all
  bool least;

  template <class S>
  __device__ bool beats(S a, int64_t i, S b, int64_t j) const {
    if (a != a || b != b) return a != a && (b == b || i < j);
    if (a != b) return least ? a < b : a > b;
    return i < j;
  }
};

/// kLanes threads for a segment: 32 where a line's neighbours lie side by side, else one.
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

void arg_extremum(const char* name, const Array& y, const Array& in, int dim, bool least) {
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
        launch(q, name, find_extremum<S, 1>, blocks_for(q, s.to.numel), kThreads, 0, s);
      else
        launch(q, name, find_extremum<S, kWarp>, blocks_for(q, s.to.numel * kWarp), kThreads, 0, s);
    });
    if (s.segments == 1) return;
    places = to;
    s.candidates = places.data<int64_t>();
    s.count = s.segments;
  }
}

}  // namespace

void argmax(const Array& y, const Array& x, int dim) { arg_extremum("argmax", y, x, dim, false); }
void argmin(const Array& y, const Array& x, int dim) { arg_extremum("argmin", y, x, dim, true); }

}  // namespace halftape::cuda
