// Runs CUDA kernels as plain C++ on the CPU: a test rig, not a fast path. A kernel file that is
// compiled by a C++ compiler includes this where nvcc would know everything by itself; runtime.cpp
// takes the place of libcudart. What a test may choose and ask is in device.h.
//
// What cannot be shown here: speed, bank conflicts, reorderings of the memory model, races between
// the lanes of a warp between two collectives, code under __CUDA_ARCH__, wgmma and TMA.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>

#include "block.h"
#include "launch.h"
#include "shared_arrays.h"

// Shared by the threads of a block = by the fibers of an OS thread; in a function, thread_local is
// static as well. For dynamic shared memory there is simt::dynamic_shared().
#undef __shared__
#define __shared__ SIMT_SHARED(__COUNTER__)
#undef __launch_bounds__
#define __launch_bounds__(...)
#undef __grid_constant__
#define __grid_constant__
#undef __constant__
#define __constant__
#undef __managed__
#define __managed__

#include "atomics.h"
#include "intrinsics.h"
#include "warp.h"

#define threadIdx (::simt::this_block->thread_index())
#define blockIdx (::simt::this_block->block_index())
#define blockDim (::simt::this_block->block_dim())
#define gridDim (::simt::this_block->grid_dim())
inline constexpr int warpSize = simt::kWarp;

namespace simt {
/// The barrier of a cooperative grid: cooperative_groups::this_grid().sync().
inline void grid_sync(Place place = Place::here()) { this_block->sync_grid(place); }
}  // namespace simt
