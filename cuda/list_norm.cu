// The norm of a list of arrays, and the factor that clips it: every block leaves a part of the sum,
// and the last one joins them, in their order.
#include <algorithm>

#include "halftape/core/formula/norm.h"

#include "halftape/cuda/chunk.cuh"
#include "halftape/cuda/kernels.h"
#include "halftape/cuda/runs.cuh"
#include "halftape/cuda/ticket.cuh"

namespace halftape::cuda {
namespace {

template <class A>
struct Item {
  A arrays;  // one
};

struct Goal {
  double p, most;
  const double* unit;  // null: 1
  double* parts;
  int64_t first, all;  // of the parts: that of this launch's first block, and how many there are
  bool finishes;       // no launch follows
  void *norm, *factor;
  Dtype dtype;
  Ticket ticket;
};

/// In thread 0: what all threads of the block hold, joined in a fixed order.
__device__ double of_block(double x, const NormOrder& order) {
  __shared__ double of_warps[kThreads / kWarp];
  for (int d = 1; d < kWarp; d *= 2) x = order.join(x, __shfl_down_sync(kWholeWarp, x, d));
  if (threadIdx.x % kWarp == 0) of_warps[threadIdx.x / kWarp] = x;
  __syncthreads();
  if (threadIdx.x == 0)
    for (unsigned w = 1; w < kThreads / kWarp; ++w) x = order.join(x, of_warps[w]);
  return x;
}

__device__ void finish(double x, const Goal& goal, const NormOrder& order) {
  const double part = of_block(x, order);
  if (threadIdx.x == 0) goal.parts[goal.first + blockIdx.x] = part;
  if (!goal.ticket.last_block() || !goal.finishes) return;
  double sum = 0;
  for (int64_t i = threadIdx.x; i < goal.all; i += kThreads) sum = order.join(sum, goal.parts[i]);
  sum = of_block(sum, order);
  if (threadIdx.x > 0) return;
  store(goal.norm, goal.dtype, order.whole(sum));
  store(goal.factor, goal.dtype, NormOrder::factor(load<double>(goal.norm, goal.dtype), goal.most));
}

__device__ NormOrder order_of(const Goal& goal) { return {goal.p, goal.unit ? *goal.unit : 1}; }

__global__ void norm_of_packs(const __grid_constant__ Chunk<Item<Flat<1>>> list, Goal goal) {
  const NormOrder order = order_of(goal);
  double sum = 0;
  if (blockIdx.x < list.blocks()) {
    const int e = list.entry_of(blockIdx.x);
    const Flat<1>& x = list.entries[e].arrays;
    const int64_t pack =
        static_cast<int64_t>(blockIdx.x - list.first_block[e]) * kThreads + threadIdx.x;
    const int64_t left = x.numel - pack * kPack;
    if (left >= kPack) {
      float lanes[kPack];
      load_pack(lanes, x.base[0], x.dtype[0], pack);
      for (const float v : lanes) sum = order.join(sum, order.term(v));
    } else {
      const auto item = static_cast<int64_t>(element_size(x.dtype[0]));
      for (int64_t i = pack * kPack; i < x.numel; ++i)
        sum = order.join(sum, order.term(load<float>(x.base[0] + i * item, x.dtype[0])));
    }
  }
  finish(sum, goal, order);
}

/// Eight elements for a thread, as above.
__global__ void norm_of_elements(const __grid_constant__ Chunk<Item<Layout<1>>> list, Goal goal) {
  const NormOrder order = order_of(goal);
  double sum = 0;
  if (blockIdx.x < list.blocks()) {
    const int e = list.entry_of(blockIdx.x);
    const Layout<1>& x = list.entries[e].arrays;
    const int64_t first =
        static_cast<int64_t>(blockIdx.x - list.first_block[e]) * kPerBlock + threadIdx.x * kPack;
    for (int64_t i = first; i < first + kPack && i < x.numel; ++i) {
      char* at[1];
      x.locate(i, at);
      sum = order.join(sum, order.term(load<double>(at[0], x.dtype[0])));
    }
  }
  finish(sum, goal, order);
}

/// The launches of a list, in its order, and how many blocks each has.
struct Launches {
  std::vector<Item<Flat<1>>> packs;
  std::vector<Item<Layout<1>>> elements;

  explicit Launches(std::span<const Array> xs) {
    for (const Array& x : xs) {
      if (!x.defined() || x.numel() == 0) continue;
      const Layout<1> layout({&x});
      if (lies_flat(layout))
        packs.push_back({flat(layout)});
      else
        elements.push_back({layout});
    }
  }
  /// f(chunk, kernel) for each of them.
  template <class F>
  void each(const F& f) const {
    in_chunks(packs, [&](const auto& part) { f(part, norm_of_packs); });
    in_chunks(elements, [&](const auto& part) { f(part, norm_of_elements); });
  }
};

}  // namespace

void list_norm(const ListNorm& n) {
  const Queue q = queue(n.norm);
  const Launches launches(n.xs);
  int64_t blocks = 0, left = 0;
  launches.each([&](const auto& part, auto*) {
    blocks += part.blocks();
    ++left;
  });
  if (left == 0) {
    fill(n.norm, 0);
    fill(n.factor, 1);
    return;
  }
  const BufferPtr parts = q.context.allocate(sizeof(double) * static_cast<size_t>(blocks));
  Goal goal{.p = n.p,
            .most = n.most,
            .unit = n.unit.defined() ? n.unit.data<double>() : nullptr,
            .parts = static_cast<double*>(parts->bytes()),
            .first = 0,
            .all = blocks,
            .finishes = false,
            .norm = n.norm.raw(),
            .factor = n.factor.raw(),
            .dtype = n.norm.dtype(),
            .ticket = ticket(q)};
  launches.each([&](const auto& part, auto* kernel) {
    goal.finishes = --left == 0;
    launch(q, "list_norm", kernel, part.blocks(), kThreads, 0, part, goal);
    goal.first += part.blocks();
  });
}

}  // namespace halftape::cuda
