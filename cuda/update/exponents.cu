// Counts numbers by powers of two: a block counts in a table of its own first.
#include "halftape/core/formula/exponents.h"

#include "halftape/cuda/cuda_backend.h"
#include "halftape/cuda/vector/map.cuh"

namespace halftape::cuda {
namespace {

__global__ void count_slots(const __grid_constant__ Layout<1> x, unsigned long long* counts) {
  __shared__ unsigned table[kExponentSlots];
  for (int slot = static_cast<int>(threadIdx.x); slot < kExponentSlots; slot += kThreads)
    table[slot] = 0;
  __syncthreads();
  for (int64_t i = thread_number(); i < x.numel; i += thread_count()) {
    char* at[1];
    x.locate(i, at);
    const Dtype dtype = x.dtype[0];
    const int slot = dtype == kFloat64 ? exponent_slot(load<double>(at[0], dtype))
                                       : exponent_slot(load<float>(at[0], dtype));
    atomicAdd(table + slot, 1u);
  }
  __syncthreads();
  for (int slot = static_cast<int>(threadIdx.x); slot < kExponentSlots; slot += kThreads)
    if (table[slot] > 0) atomicAdd(counts + slot, static_cast<unsigned long long>(table[slot]));
}

}  // namespace

void CudaBackend::count_exponents(const Array& counts, const Array& x) {
  counts.bump_version();
  if (x.numel() == 0) return;
  launch_for(queue(x), x.numel(), "count_exponents", count_slots, Layout<1>({&x}),
             static_cast<unsigned long long*>(counts.raw()));
}

}  // namespace halftape::cuda
