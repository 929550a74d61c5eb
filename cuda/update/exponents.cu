// Counts numbers by powers of two, and by their class: a block counts in a table of its own first.
#include "halftape/core/formula/exponents.h"

#include "halftape/core/formula/number_class.h"

#include "halftape/cuda/cuda_backend.h"
#include "halftape/cuda/vector/map.cuh"

namespace halftape::cuda {
namespace {

struct ByExponent {
  static constexpr int kSlots = kExponentSlots;
  __device__ static int slot(const void* x, Dtype dtype) {
    return dtype == kFloat64 ? exponent_slot(load<double>(x, dtype))
                             : exponent_slot(load<float>(x, dtype));
  }
};
struct ByClass {
  static constexpr int kSlots = kNumberClasses;
  __device__ static int slot(const void* x, Dtype dtype) {
    NumberClass c{};
    visit(dtype, [&]<class T>(Type<T>) {
      if constexpr (is_floating_point(dtype_of<T>)) c = number_class(*static_cast<const T*>(x));
    });
    return static_cast<int>(c);
  }
};

template <class By>
__global__ void count_slots(const __grid_constant__ Layout<1> x, unsigned long long* counts) {
  __shared__ unsigned table[By::kSlots];
  for (int slot = static_cast<int>(threadIdx.x); slot < By::kSlots; slot += kThreads)
    table[slot] = 0;
  __syncthreads();
  for (int64_t i = thread_number(); i < x.numel; i += thread_count()) {
    char* at[1];
    x.locate(i, at);
    atomicAdd(table + By::slot(at[0], x.dtype[0]), 1u);
  }
  __syncthreads();
  for (int slot = static_cast<int>(threadIdx.x); slot < By::kSlots; slot += kThreads)
    if (table[slot] > 0) atomicAdd(counts + slot, static_cast<unsigned long long>(table[slot]));
}

template <class By>
void count_by(const char* name, const Array& counts, const Array& x) {
  counts.bump_version();
  if (x.numel() == 0) return;
  launch_for(queue(x), x.numel(), name, count_slots<By>, Layout<1>({&x}),
             static_cast<unsigned long long*>(counts.raw()));
}

}  // namespace

void CudaBackend::count_numbers(CountBy by, const Array& counts, const Array& x) {
  if (by == CountBy::Exponent)
    count_by<ByExponent>("count_exponents", counts, x);
  else
    count_by<ByClass>("count_classes", counts, x);
}

}  // namespace halftape::cuda
