// Functions that run on the host and on a CUDA device.
#pragma once

#if defined(__CUDACC__)
#define HALFTAPE_HD __host__ __device__ __forceinline__
#else
#define HALFTAPE_HD inline
#endif
