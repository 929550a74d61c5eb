// Instructions that CUDA C++ has no name for: products on tensor cores, and what feeds them. All
// inline PTX stands here, each piece beside its twin for the rig of tests/simt.
#pragma once
#include "halftape/core/dtype.h"
#include "halftape/cuda/vector/lanes.cuh"
#if !defined(__CUDACC__)
#include <cstring>
#include <vector>
#endif

// Fragments, as PTX numbers them. Lane l is in group l / 4 with t = 2·(l % 4); a register holds two
// neighbours of 16 bits, the first in its low half.
//   a (16×16, by rows):     {(g, t), (g + 8, t), (g, t + 8), (g + 8, t + 8)}
//   b (16×8, by columns):   {(t, g), (t + 8, g)}
//   d (16×8, float):        {(g, t), (g, t + 1), (g + 8, t), (g + 8, t + 1)}
// Two d side by side, rounded, are therefore an a.
namespace halftape::cuda {

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

#if defined(__CUDACC__)

/// d += a·b, the whole warp together. bfloat16 takes sm_80.
template <class T>
__device__ inline void multiply_add(float (&d)[4], const unsigned (&a)[4], unsigned b0,
                                    unsigned b1) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
  if constexpr (std::is_same_v<T, Half>) {
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3},{%4,%5},{%6},{%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(b0));
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3},{%4,%5},{%6},{%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[2]), "r"(a[3]), "r"(b1));
  } else {
    __trap();  // the host does not send it here
  }
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

/// Four matrices of 8×8 from shared memory, each kTurned on the way: lane l says where row l % 8 of
/// matrix l / 8 begins, a multiple of 16 bytes. r[i]: elements (g, t) and (g, t + 1) of matrix i.
template <bool kTurned, class T>
__device__ inline void load_matrices(unsigned (&r)[4], const T* row) {
  const auto at = static_cast<unsigned>(__cvta_generic_to_shared(row));
  if constexpr (kTurned)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3},[%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at));
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3},[%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at));
}

/// 16 bytes on their way into shared memory; there for this thread after cp_async_wait(), for
/// others after a barrier behind that.
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

/// Memory that will be read soon.
__device__ inline void prefetch(const void* at) {
  asm volatile("prefetch.global.L1 [%0];" ::"l"(at));
}

#elif defined(HALFTAPE_SIMT)

namespace twin {

struct Factors {
  float* d;
  const unsigned* a;
  unsigned b[2];
};
template <class T>
void multiply_add(void** lanes, std::uint32_t there) {
  if (there != ~0u) simt::this_block->fail("a product on tensor cores takes all 32 lanes");
  float a[16][16], b[16][8];
  for (int l = 0; l < 32; ++l) {
    const auto& f = *static_cast<const Factors*>(lanes[l]);
    const int g = l / 4, t = l % 4 * 2;
    for (int r = 0; r < 4; ++r) {
      a[g + 8 * (r & 1)][t + 8 * (r >> 1)] = low_of<T>(f.a[r]);
      a[g + 8 * (r & 1)][t + 8 * (r >> 1) + 1] = high_of<T>(f.a[r]);
    }
    for (int r = 0; r < 2; ++r) {
      b[t + 8 * r][g] = low_of<T>(f.b[r]);
      b[t + 8 * r + 1][g] = high_of<T>(f.b[r]);
    }
  }
  for (int l = 0; l < 32; ++l) {
    float* const d = static_cast<const Factors*>(lanes[l])->d;
    const int g = l / 4, t = l % 4 * 2;
    for (int r = 0; r < 4; ++r)
      for (int k = 0; k < 16; ++k) d[r] += a[g + 8 * (r >> 1)][k] * b[k][t + (r & 1)];
  }
}

struct Rows {
  unsigned* r;
  const void* row;
};
template <bool kTurned>
void load_matrices(void** lanes, std::uint32_t there) {
  if (there != ~0u) simt::this_block->fail("ldmatrix takes all 32 lanes");
  const std::uint16_t* rows[32];
  for (int l = 0; l < 32; ++l) {
    rows[l] = static_cast<const std::uint16_t*>(static_cast<const Rows*>(lanes[l])->row);
    if (reinterpret_cast<std::uintptr_t>(rows[l]) % 16 != 0)
      simt::this_block->fail("ldmatrix: a row does not begin at a multiple of 16 bytes");
  }
  for (int l = 0; l < 32; ++l)
    for (int m = 0; m < 4; ++m) {
      const int g = l / 4, t = l % 4 * 2;
      const auto at = [&](int i, int j) -> unsigned { return rows[m * 8 + i][j]; };
      static_cast<const Rows*>(lanes[l])->r[m] =
          kTurned ? at(t, g) | at(t + 1, g) << 16 : at(g, t) | at(g, t + 1) << 16;
    }
}

/// Nothing moves before it is waited for, so that a wait that is missing shows.
struct Copy {
  unsigned thread;
  void* to;
  const void* from;
};
inline thread_local std::vector<Copy> copies;

}  // namespace twin

template <class T>
void multiply_add(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1,
                  simt::Place place = simt::Place::here()) {
  twin::Factors mine{d, a, {b0, b1}};
  simt::this_block->collective(~0u, &mine, twin::multiply_add<T>, place);
}
template <bool kTurned, class T>
void load_matrices(unsigned (&r)[4], const T* row, simt::Place place = simt::Place::here()) {
  twin::Rows mine{r, row};
  simt::this_block->collective(~0u, &mine, twin::load_matrices<kTurned>, place);
}
inline void cp_async(void* shared, const void* from) {
  twin::copies.push_back({threadIdx.x, shared, from});
}
inline void prefetch(const void*) {}
inline void cp_async_wait() {
  const unsigned me = threadIdx.x;
  for (const twin::Copy& c : twin::copies)
    if (c.thread == me) std::memcpy(c.to, c.from, 16);
  std::erase_if(twin::copies, [=](const twin::Copy& c) { return c.thread == me; });
}

#endif

}  // namespace halftape::cuda
