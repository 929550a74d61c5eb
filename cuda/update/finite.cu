// Checks that gradients are finite and, in the same launch, divides them by the loss scale.
#include <algorithm>

#include "halftape/cuda/cuda_backend.h"
#include "halftape/cuda/update/finite_check.cuh"

namespace halftape::cuda {
namespace {

__global__ void check_packs(const __grid_constant__ Chunk<Gradient<Flat<1>>> list,
                            FiniteCheck finite) {
  const int e = list.entry_of(blockIdx.x);
  const int64_t pack =
      static_cast<int64_t>(blockIdx.x - list.first_block[e]) * kThreads + threadIdx.x;
  finite.report(check_pack(list.entries[e].arrays, pack, finite.factor(), finite.divides),
                list.entries[e].position);
}

__global__ void check_elements(const __grid_constant__ Chunk<Gradient<Layout<1>>> list,
                               FiniteCheck finite) {
  const int e = list.entry_of(blockIdx.x);
  const Layout<1>& x = list.entries[e].arrays;
  const int64_t begin = static_cast<int64_t>(blockIdx.x - list.first_block[e]) * kPerBlock;
  const float by = finite.factor();
  bool bad = false;
  for (int64_t i = begin + threadIdx.x; i < begin + kPerBlock && i < x.numel; i += kThreads) {
    char* at[1];
    x.locate(i, at);
    bad = check_any(at[0], x.dtype[0], by, finite.divides) || bad;
  }
  finite.report(bad, list.entries[e].position);
}

}  // namespace

void CudaBackend::check(const GradientCheck& c) {
  const auto one =
      std::find_if(c.grads.begin(), c.grads.end(), [](const Array& g) { return g.defined(); });
  if (one == c.grads.end()) return;
  const Queue q = queue(*one);
  const FiniteCheck finite = finite_check(c);
  GradientList(c.grads).each(check_packs, check_elements, [&](const auto& part, auto* kernel) {
    launch(q, c.divides ? "unscale" : "check_finite", kernel, part.blocks(), kThreads, 0, part,
           finite);
  });
}

}  // namespace halftape::cuda
