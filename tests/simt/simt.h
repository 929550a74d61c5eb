// Runs CUDA kernels as plain C++ on the CPU: a test rig, not a fast path. A kernel file includes
// this when a C++ compiler compiles it instead of nvcc. Beside it:
//   threads/   the threads of a grid, barriers, warps, atomics
//   runtime/   the stand-in for libcudart; device.h is for tests
//   cublaslt/  the stand-in for cuBLASLt
//
// It cannot show speed, bank conflicts, reorderings of the memory model, races between the lanes of
// a warp between two collectives, code under __CUDA_ARCH__, wgmma and TMA.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>

#include "threads/block.h"
#include "threads/launch.h"
#include "threads/shared_arrays.h"

// The threads of a block are the fibers of an OS thread, so shared memory is thread_local (and
// static in a function). Dynamic shared memory is simt::dynamic_shared().
#undef __shared__
#define __shared__ SIMT_SHARED(__COUNTER__)
#undef __launch_bounds__
#define __launch_bounds__(...)
#undef __noinline__
#define __noinline__
#undef __grid_constant__
#define __grid_constant__
#undef __constant__
#define __constant__
#undef __managed__
#define __managed__

#include "threads/atomics.h"
#include "threads/intrinsics.h"
#include "threads/warp.h"

#define threadIdx (::simt::this_block->thread_index())
#define blockIdx (::simt::this_block->block_index())
#define blockDim (::simt::this_block->block_dim())
#define gridDim (::simt::this_block->grid_dim())
inline constexpr int warpSize = simt::kWarp;

namespace simt {
/// The barrier of a cooperative grid: cooperative_groups::this_grid().sync().
inline void grid_sync(Place place = Place::here()) { this_block->sync_grid(place); }
}  // namespace simt
