// The norm of a list of arrays, and the factor that clips it. Every block writes a part of the sum,
// and the last one joins the parts in their order. The same launch may check the arrays and divide
// them first.

#include "halftape/core/formula/norm.h"

#include "halftape/cuda/copy.h"
#include "halftape/cuda/cuda_backend.h"
#include "halftape/cuda/fused.h"
#include "halftape/cuda/runtime/last_block.cuh"
#include "halftape/cuda/update/finite_check.cuh"
#include "halftape/cuda/vector/runs.cuh"

namespace halftape::cuda {
namespace {

struct NormTask {
  double p, most;
  const double* unit;  // null: 1
  double* parts;
  int64_t first, all;  // parts: index of the first of this launch; number of all
  bool finishes;       // this is the last launch
  void *norm, *factor;
  Dtype dtype;
  BlockCounter counter;
  bool checks;  // looks at the arrays first
  FiniteCheck finite;
};

/// In thread 0, the values of all threads of the block, joined in a fixed order.
__device__ double of_block(double x, const NormOrder& order) {
  __shared__ double of_warps[kThreads / kWarp];
  for (int d = 1; d < kWarp; d *= 2) x = order.join(x, __shfl_down_sync(kWholeWarp, x, d));
  if (threadIdx.x % kWarp == 0) of_warps[threadIdx.x / kWarp] = x;
  __syncthreads();
  if (threadIdx.x == 0)
    for (unsigned w = 1; w < kThreads / kWarp; ++w) x = order.join(x, of_warps[w]);
  return x;
}

__device__ void finish(double x, const NormTask& task, const NormOrder& order) {
  const double part = of_block(x, order);
  if (threadIdx.x == 0) task.parts[task.first + blockIdx.x] = part;
  if (!task.counter.is_last() || !task.finishes) return;
  double sum = 0;
  for (int64_t i = threadIdx.x; i < task.all; i += kThreads) sum = order.join(sum, task.parts[i]);
  sum = of_block(sum, order);
  if (threadIdx.x > 0) return;
  store(task.norm, task.dtype, order.whole(sum));
  store(task.factor, task.dtype, NormOrder::factor(load<double>(task.norm, task.dtype), task.most));
}

__device__ NormOrder order_of(const NormTask& task) { return {task.p, task.unit ? *task.unit : 1}; }

__global__ void norm_of_packs(const __grid_constant__ Chunk<Gradient<Flat<1>>> list,
                              NormTask task) {
  const NormOrder order = order_of(task);
  double sum = 0;
  if (blockIdx.x < list.blocks()) {
    const int e = list.entry_of(blockIdx.x);
    const Flat<1>& x = list.entries[e].arrays;
    const int64_t pack =
        static_cast<int64_t>(blockIdx.x - list.first_block[e]) * kThreads + threadIdx.x;
    const int64_t left = x.numel - pack * kPack;
    if (task.checks) {
      const FiniteCheck& finite = task.finite;
      finite.report(check_pack(x, pack, finite.factor(), finite.divides), list.entries[e].position);
    }
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
  finish(sum, task, order);
}

/// Eight elements for a thread, as in norm_of_packs.
__global__ void norm_of_elements(const __grid_constant__ Chunk<Gradient<Layout<1>>> list,
                                 NormTask task) {
  const NormOrder order = order_of(task);
  double sum = 0;
  if (blockIdx.x < list.blocks()) {
    const int e = list.entry_of(blockIdx.x);
    const Layout<1>& x = list.entries[e].arrays;
    const int64_t first =
        static_cast<int64_t>(blockIdx.x - list.first_block[e]) * kPerBlock + threadIdx.x * kPack;
    const float by = task.finite.factor();
    bool bad = false;
    for (int64_t i = first; i < first + kPack && i < x.numel; ++i) {
      char* at[1];
      x.locate(i, at);
      if (task.checks) bad = check_any(at[0], x.dtype[0], by, task.finite.divides) || bad;
      sum = order.join(sum, order.term(load<double>(at[0], x.dtype[0])));
    }
    if (task.checks) task.finite.report(bad, list.entries[e].position);
  }
  finish(sum, task, order);
}

/// Launches the norm, after the check in the same kernel if there is one.
void norm_of(const char* what, const ListNorm& n, const GradientCheck* check) {
  const Queue q = queue(n.norm);
  const FiniteCheck finite = check ? finite_check(*check) : FiniteCheck{};
  const GradientList list(n.xs, check ? check->grads : std::span<const Array>());
  int64_t blocks = 0, left = 0;
  list.each(norm_of_packs, norm_of_elements, [&](const auto& part, auto*) {
    blocks += part.blocks();
    ++left;
  });
  if (left == 0) {
    fill(n.norm, 0);
    fill(n.factor, 1);
    return;
  }
  const BufferPtr parts = q.context.allocate(sizeof(double) * static_cast<size_t>(blocks));
  NormTask task{.p = n.p,
                .most = n.most,
                .unit = n.unit.defined() ? n.unit.data<double>() : nullptr,
                .parts = static_cast<double*>(parts->bytes()),
                .first = 0,
                .all = blocks,
                .finishes = false,
                .norm = n.norm.raw(),
                .factor = n.factor.raw(),
                .dtype = n.norm.dtype(),
                .counter = block_counter(q),
                .checks = check != nullptr,
                .finite = finite};
  list.each(norm_of_packs, norm_of_elements, [&](const auto& part, auto* kernel) {
    task.finishes = --left == 0;
    launch(q, what, kernel, part.blocks(), kThreads, 0, part, task);
    task.first += part.blocks();
  });
}

}  // namespace

void CudaBackend::list_norm(const ListNorm& n) { norm_of("list_norm", n, nullptr); }

void check_and_norm(const GradientCheck& check, const ListNorm& n) {
  norm_of(check.divides ? "unscale, list_norm" : "check_finite, list_norm", n, &check);
}

}  // namespace halftape::cuda
