// The header of all kernels, which are compiled by nvcc for a GPU, or by a C++ compiler for the rig
// of tests/simt, which runs them on the CPU. No other file launches a kernel.
#pragma once
#if defined(__CUDACC__)
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#elif defined(HALFTAPE_SIMT)
#include "simt.h"
#else
#include <cuda_runtime_api.h>  // host code of the backend
#endif

#include <type_traits>

#include "halftape/cuda/runtime/context.h"

namespace halftape::cuda {

#if defined(__CUDACC__) || defined(HALFTAPE_SIMT)

/// Puts a kernel into the queue. `what` names it in errors and must live for ever. `shared`: bytes
/// of dynamic shared memory. Arguments are converted to the kernel's parameter types and copied.
template <class... P>
void launch(const Queue& q, const char* what, void (*kernel)(P...), dim3 grid, dim3 block,
            size_t shared, const std::type_identity_t<P>&... arguments) {
#if defined(__CUDACC__)
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared;
  config.stream = q.stream;
  q.context.launched(what, cudaLaunchKernelEx(&config, kernel, P(arguments)...), q.stream);
#else
  q.context.launched(
      what, simt::launch(false, kernel, grid, block, shared, q.stream, P(arguments)...), q.stream);
#endif
}

/// The block's dynamic shared memory, of the size given to launch(), aligned to 16 bytes.
__device__ inline unsigned char* dynamic_shared() {
#if defined(__CUDACC__)
  extern __shared__ __align__(16) unsigned char bytes[];
  return bytes;
#else
  return static_cast<unsigned char*>(simt::dynamic_shared());
#endif
}

/// This thread's number in a one-dimensional grid and the number of threads, for loops that stride
/// by the grid. 64 bits: arrays may have more than 2³¹ elements.
__device__ inline int64_t thread_number() {
  return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ inline int64_t thread_count() { return static_cast<int64_t>(gridDim.x) * blockDim.x; }

inline constexpr unsigned kThreads = 256;  // of a block, unless a kernel needs another number

/// Blocks of kThreads for the work of `items` threads, at most eight for each multiprocessor; the
/// kernel's loop does the rest.
inline dim3 blocks_for(const Queue& q, int64_t items) {
  const int64_t wanted = (items + kThreads - 1) / kThreads;
  const int64_t most = int64_t{8} * q.context.multiprocessors();
  return dim3(static_cast<unsigned>(wanted < 1 ? 1 : wanted < most ? wanted : most));
}

/// launch() with the blocks of blocks_for().
template <class... P>
void launch_for(const Queue& q, int64_t items, const char* what, void (*kernel)(P...),
                const std::type_identity_t<P>&... arguments) {
  launch(q, what, kernel, blocks_for(q, items), kThreads, 0, arguments...);
}

#endif

}  // namespace halftape::cuda
