// Instructions without a name in CUDA C++: products on tensor cores, and the loads for them. All
// inline PTX is here; tests/simt/threads/tensor_cores.h does the same on the CPU.
#pragma once
#include "halftape/core/dtype.h"
#include "halftape/cuda/vector/lanes.cuh"

// The fragments of PTX. Lane l is in group l / 4 with t = 2·(l % 4); a register holds two
// neighbours of 16 bits, the first in its low half.
//   a (16×16, by rows):     {(g, t), (g + 8, t), (g, t + 8), (g + 8, t + 8)}
//   b (16×8, by columns):   {(t, g), (t + 8, g)}
//   d (16×8, float):        {(g, t), (g, t + 1), (g + 8, t), (g + 8, t + 1)}
// Two d side by side, rounded, are therefore an a.
namespace halftape::cuda {

/// True if the GPU that is compiled for multiplies matrices of T: bfloat16 takes sm_80.
template <class T>
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
inline constexpr bool kMultiplies = std::is_same_v<T, Half>;
#else
inline constexpr bool kMultiplies = true;
#endif

/// Two floats rounded to T, in one register.
template <class T>
__device__ inline unsigned pair_of(float low, float high) {
  if constexpr (std::is_same_v<T, Half>) {
    const __half2_raw p = __floats2half2_rn(low, high);
    return static_cast<unsigned>(p.y) << 16 | p.x;
  } else {
    const __nv_bfloat162_raw p = __floats2bfloat162_rn(low, high);
    return static_cast<unsigned>(p.y) << 16 | p.x;
  }
}
template <class T>
__device__ inline float low_of(unsigned pair) {
  return to_float(T::from_bits(static_cast<uint16_t>(pair)));
}
template <class T>
__device__ inline float high_of(unsigned pair) {
  return to_float(T::from_bits(static_cast<uint16_t>(pair >> 16)));
}

}  // namespace halftape::cuda

#if defined(HALFTAPE_SIMT)
#include "threads/tensor_cores.h"
#elif defined(__CUDACC__)
namespace halftape::cuda {

/// d += a·b, the whole warp together, if the GPU multiplies T.
template <class T>
__device__ inline void multiply_add(float (&d)[4], const unsigned (&a)[4], unsigned b0,
                                    unsigned b1) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
  static_assert(kMultiplies<T>);
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3},{%4,%5},{%6},{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(b0));
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3},{%4,%5},{%6},{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[2]), "r"(a[3]), "r"(b1));
#else
  if constexpr (std::is_same_v<T, Half>)
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  else
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#endif
}

/// Loads four matrices of 8×8 from shared memory, transposed if kTurned. Lane l gives the address
/// of row l % 8 of matrix l / 8, a multiple of 16 bytes. r[i]: elements (g, t) and (g, t + 1) of
/// matrix i.
template <bool kTurned, class T>
__device__ inline void load_matrices(unsigned (&r)[4], const T* row) {
  const auto at = static_cast<unsigned>(__cvta_generic_to_shared(row));
  if constexpr (kTurned)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3},[%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3},[%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
}

/// Starts to copy 16 bytes into shared memory. This thread sees them after cp_async_wait(), others
/// after a barrier behind that.
__device__ inline void cp_async(void* shared, const void* from) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
  *static_cast<uint4*>(shared) = *static_cast<const uint4*>(from);
#else
  asm volatile("cp.async.cg.shared.global [%0],[%1],16;" ::"r"(
                   static_cast<unsigned>(__cvta_generic_to_shared(shared))),
               "l"(from)
               : "memory");
#endif
}
__device__ inline void cp_async_wait() {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

/// Loads memory into the cache that will be read soon.
__device__ inline void prefetch(const void* at) {
  asm volatile("prefetch.global.L1 [%0];" ::"l"(at));
}

}  // namespace halftape::cuda
#endif
