// What cuda/vector/ptx.cuh includes on the rig: the same results, and an error for a wrong use.
#pragma once
#include <cstdint>
#include <cstring>
#include <vector>

#include "simt.h"

namespace halftape::cuda {

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

/// Nothing is copied before the wait, so that a missing wait shows.
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
  if ((reinterpret_cast<std::uintptr_t>(shared) | reinterpret_cast<std::uintptr_t>(from)) % 16 != 0)
    simt::this_block->fail("cp.async: an address is not a multiple of 16 bytes");
  twin::copies.push_back({threadIdx.x, shared, from});
}
inline void prefetch(const void*) {}
inline void cp_async_wait() {
  const unsigned me = threadIdx.x;
  for (const twin::Copy& c : twin::copies)
    if (c.thread == me) std::memcpy(c.to, c.from, 16);
  std::erase_if(twin::copies, [=](const twin::Copy& c) { return c.thread == me; });
}

}  // namespace halftape::cuda
