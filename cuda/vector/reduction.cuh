// Reductions in a fixed order: it depends on the shape and the reduced dimensions alone.
//
// The elements of an output are cut into segments of kSegment neighbours. The runs of eight of a
// segment go to 32 accumulators in turn, which are joined as a tree. The results of the segments
// are reduced in the same way until one is left, so that the error grows with the logarithm of the
// count. Three kernels do this with the same bits; the layout decides which one is fast.
#pragma once
#include <algorithm>
#include <array>

#include "halftape/cuda/vector/runs.cuh"

namespace halftape::cuda {

inline constexpr int64_t kTurn =
    int64_t{kWarp} * kPack;  // elements from one run of a lane to its next
inline constexpr unsigned kWholeBlock = kWarp * kWarp;  // threads: a warp for each accumulator

/// A view of x without the dimensions `dims`, or with these alone if `reduced`.
inline Array part_of(const Array& x, const Dims& dims, bool reduced) {
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
int64_t inner_stride(const Layout<N>& l, int a = 0) {
  return l.strides[a][l.rank - 1] / static_cast<int64_t>(element_size(l.dtype[a]));
}

/// N arrays of one shape. A reduction derives from this and defines Value, start(),
/// join(earlier, later), take_run() and put(), as Fold in reduce.cu does.
template <int N>
struct Reduction {
  static constexpr unsigned kBlock = kWholeBlock;  // threads of reduce_by_blocks
  Layout<N> kept, reduced;  // where each output begins; its elements from there
  Layout<1> to;             // (outputs, segments)
  int64_t segments = 0;
  bool straight;  // every run lies within the innermost dimension
  std::array<RunLayout, N> along;

  Reduction(const std::array<Array, N>& arrays, const Dims& dims)
      : kept(parts(arrays, dims, false)),
        reduced(parts(arrays, dims, true)),
        straight(reduced.rank == 1 || reduced.sizes[reduced.rank - 1] % kPack == 0),
        along(alongs(std::make_index_sequence<N>())) {
    segments = (reduced.numel + kSegment - 1) / kSegment;
  }
  __device__ void output(int64_t o, char* (&base)[N]) const { kept.locate(o, base); }
  /// at ← the address of element i of the output that begins at `base`, in every operand.
  __device__ void locate(int64_t i, char* const (&base)[N], char* (&at)[N]) const {
    reduced.locate(i, at);
    unrolled<N>([&](int k) { at[k] = base[k] + (at[k] - reduced.base[k]); });
  }
  template <class S>
  __device__ S element(int k, const char* at) const {
    return load<S>(at, along[static_cast<size_t>(k)].dtype);
  }
  /// x ← a run of operand k if runs are straight: n elements are left, then comes `rest`.
  template <class S>
  __device__ void fetch(S (&x)[kPack], int k, const char* at, int64_t n, S rest) const {
    load_run(x, at, along[static_cast<size_t>(k)], n, rest);
  }
  __device__ char* place(int64_t unit) const {
    char* at[1];
    to.locate(unit, at);
    return at[0];
  }
  __device__ int64_t end_of(int64_t segment) const {
    const int64_t end = (segment + 1) * kSegment;
    return end < reduced.numel ? end : reduced.numel;
  }

 private:
  static Layout<N> parts(const std::array<Array, N>& arrays, const Dims& dims, bool reduced) {
    std::array<Array, N> part;
    std::array<const Array*, N> all;
    for (size_t k = 0; k < N; ++k) {
      part[k] = part_of(arrays[k], dims, reduced);
      all[k] = &part[k];
    }
    return Layout<N>(all);
  }
  RunLayout along_of(int k) const {
    RunLayout a(kept, k, inner_stride(reduced, k));
    for (int d = 0; d + 1 < reduced.rank; ++d)
      a.packed = a.packed && reduced.strides[k][d] % 16 == 0;
    return a;
  }
  template <size_t... k>
  std::array<RunLayout, N> alongs(std::index_sequence<k...>) const {
    return {along_of(static_cast<int>(k))...};
  }
};

/// Numbers that are reduced together.
template <class S, int n>
struct Several {
  S v[n];
};
template <class S>
__device__ inline S of_lane_after(S x, int d) {
  return __shfl_down_sync(kWholeWarp, x, d);
}
template <class S, int n>
__device__ inline Several<S, n> of_lane_after(Several<S, n> x, int d) {
  unrolled<n>([&](int i) { x.v[i] = __shfl_down_sync(kWholeWarp, x.v[i], d); });
  return x;
}
/// In lane 0, the values of all lanes joined, neighbours first.
template <class R, class Value>
__device__ inline Value joined(const R& r, Value x) {
  for (int d = 1; d < kWarp; d *= 2) x = r.join(x, of_lane_after(x, d));
  return x;
}

/// A warp for a segment and a lane for an accumulator, for elements of an output that are
/// neighbours in memory.
template <class R, int N>
__global__ void reduce_by_warps(const __grid_constant__ R r) {
  using Value = typename R::Value;
  const int lane = threadIdx.x % kWarp;
  for (int64_t unit = thread_number() / kWarp; unit < r.to.numel; unit += thread_count() / kWarp) {
    const Division u(unit, r.segments);
    char* base[N];
    r.output(u.quotient, base);
    const int64_t end = r.end_of(u.rest);
    Value acc = r.start();
    for (int64_t i = u.rest * kSegment + lane * kPack; i < end; i += kTurn)
      acc = r.take_run(acc, base, i, end);
    acc = joined(r, acc);
    if (lane == 0) r.put(unit, acc);
  }
}

/// A block for a segment of 32 outputs and a warp for one or more accumulators of each, for outputs
/// that are neighbours in memory, as in a sum over a batch.
template <class R, int N>
__global__ void __launch_bounds__(R::kBlock, 1) reduce_by_blocks(const __grid_constant__ R r) {
  using Value = typename R::Value;
  constexpr int kWarps = R::kBlock / kWarp;
  __shared__ Value accumulators[kWarp][kWarp + 1];
  const int lane = threadIdx.x % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
  const int64_t groups = (r.kept.numel + kWarp - 1) / kWarp;
  for (int64_t unit = blockIdx.x; unit < groups * r.segments; unit += gridDim.x) {
    const Division u(unit, r.segments);
    const int64_t first_output = u.quotient * kWarp;
#pragma unroll 1
    for (int a = warp; a < kWarp; a += kWarps) {
      Value acc = r.start();
      if (first_output + lane < r.kept.numel) {
        char* base[N];
        r.output(first_output + lane, base);
        const int64_t end = r.end_of(u.rest);
        for (int64_t i = u.rest * kSegment + a * kPack; i < end; i += kTurn)
          acc = r.take_run(acc, base, i, end);
      }
      accumulators[a][lane] = acc;
    }
    __syncthreads();
#pragma unroll 1
    for (int o = warp; o < kWarp; o += kWarps) {
      const Value acc = joined(r, accumulators[lane][o]);
      if (lane == 0 && first_output + o < r.kept.numel)
        r.put((first_output + o) * r.segments + u.rest, acc);
    }
    __syncthreads();
  }
}

/// A thread for an output of few elements. Every accumulator takes at most one run, so they can be
/// joined one after the other, as a binary counter carries.
template <class R, int N>
__global__ void reduce_by_threads(const __grid_constant__ R r) {
  using Value = typename R::Value;
  constexpr int kLevels = 6;
  for (int64_t o = thread_number(); o < r.kept.numel; o += thread_count()) {
    char* base[N];
    r.output(o, base);
    Value levels[kLevels]{};  // level i holds 2ⁱ accumulators where bit i of their number is set
    int runs = 0;
    for (int64_t i = 0; i < r.reduced.numel; i += kPack, ++runs) {
      Value x = r.take_run(r.start(), base, i, r.reduced.numel);
      bool carry = true;
      for (int level = 0; level < kLevels; ++level) {
        if (carry && (runs >> level & 1)) {
          x = r.join(levels[level], x);
        } else if (carry) {
          levels[level] = x;
          carry = false;
        }
      }
    }
    Value total = r.start();
    for (int level = 0; level < kLevels; ++level)
      if (runs >> level & 1) total = r.join(levels[level], total);
    r.put(o, total);
  }
}

/// Chooses among the three by the first operand's layout. kAlong: the elements of an output are
/// always closer than outputs, so that reduce_by_blocks is left out.
template <bool kAlong = false, class R>
void launch_reduction(const char* name, const Queue& q, const R& r) {
  constexpr int N = static_cast<int>(std::tuple_size_v<decltype(r.along)>);
  const int64_t outputs = r.kept.numel, count = r.reduced.numel;
  const int64_t across = inner_stride(r.kept), along = inner_stride(r.reduced);
  const bool side_by_side = std::abs(across) < std::abs(along);
  if (count <= kWarp || (count <= kTurn && side_by_side && outputs >= 16384)) {
    return launch_for(q, outputs, name, reduce_by_threads<R, N>, r);
  }
  if constexpr (!kAlong) {
    if (side_by_side && outputs > 1) {
      const int64_t units = (outputs + kWarp - 1) / kWarp * r.segments;
      const int64_t most = int64_t{4} * q.context.multiprocessors();
      return launch(q, name, reduce_by_blocks<R, N>,
                    dim3(static_cast<unsigned>(std::min(units, most))), R::kBlock, 0, r);
    }
  }
  launch_for(q, outputs * r.segments * kWarp, name, reduce_by_warps<R, N>, r);
}

/// A reduction of N operands to n numbers, each in a contiguous array (outputs) of S.
template <class S, int N, int n>
struct JointReduction : Reduction<N> {
  using Value = Several<S, n>;
  static constexpr int kNumbers = n;
  static constexpr unsigned kBlock = kThreads;  // so that all of it stays in registers
  S* numbers[n] = {};
  using Reduction<N>::Reduction;
  __device__ void put(int64_t unit, const Value& x) const {
    unrolled<n>([&](int k) { numbers[k][unit] = x.v[k]; });
  }
};

/// Joins the results of the segments of R, which are contiguous.
template <class S, class R>
struct JoinSegments : JointReduction<S, R::kNumbers, R::kNumbers> {
  static constexpr int n = R::kNumbers;
  using Value = Several<S, n>;
  using JointReduction<S, n, n>::JointReduction;
  __device__ static Value start() { return R::start(); }
  __device__ static Value join(const Value& a, const Value& b) { return R::join(a, b); }
  __device__ Value take_run(Value acc, char* const (&base)[n], int64_t first, int64_t end) const {
    char* at[n];
    this->locate(first, base, at);
#pragma unroll 1
    for (int64_t i = 0; i < kPack && first + i < end; ++i) {
      Value one;
      unrolled<n>([&](int k) { one.v[k] = reinterpret_cast<const S*>(at[k])[i]; });
      acc = R::join(acc, one);
    }
    return acc;
  }
};

/// to[k] (outputs) ← number k of r, then JoinSegments until each output has one segment.
template <class S, class First, class R>
void reduce_into(const char* name, const std::array<Array, R::kNumbers>& to, R r) {
  constexpr bool kSegments = std::is_same_v<R, JoinSegments<S, First>>;
  std::array<Array, R::kNumbers> out = to;
  if (r.segments > 1) {
    const Array all({R::kNumbers, r.kept.numel, r.segments}, dtype_of<S>, to[0].device());
    for (int k = 0; k < R::kNumbers; ++k) out[static_cast<size_t>(k)] = all.select(0, k);
  }
  r.to = Layout<1>({&out[0]});
  for (size_t k = 0; k < out.size(); ++k) r.numbers[k] = out[k].template data<S>();
  launch_reduction<kSegments>(name, queue(to[0]), r);
  if (r.segments > 1) reduce_into<S, First>(name, to, JoinSegments<S, First>(out, {1}));
}

}  // namespace halftape::cuda
