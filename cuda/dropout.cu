// Dropout in one pass: the numbers are drawn where they are used.
#include <cmath>

#include "halftape/core/formula/philox.h"
#include "halftape/cuda/fused.h"
#include "halftape/cuda/vector/map.cuh"
#include "halftape/cuda/vector/runs.cuh"

namespace halftape::cuda {
namespace {

/// An element stays if the 24 bits of its random number are below `below`.
__global__ void drop_packs(PackedOperands<2> a, unsigned below, float rest, RandomKey key) {
  if (key.live) {
    key.seed += key.live->seed;
    key.offset += key.live->offset;
  }
  const auto dropped = [&](float x, uint32_t bits) {
    return x * (bits >> 8 < below ? 1.f : 0.f) / rest;
  };
  for (int64_t p = thread_number(); p * kPack < a.numel; p += thread_count()) {
    const auto block = static_cast<uint64_t>(p) * (kPack / 4);
    const PhiloxBlock words[] = {philox(key.seed, key.offset + block, 0),
                                 philox(key.seed, key.offset + block + 1, 0)};
    if ((p + 1) * kPack <= a.numel) {
      float x[kPack];
      load_pack(x, a.base[1], a.dtype[1], p);
      unrolled<kPack>([&](int i) { x[i] = dropped(x[i], words[i / 4].v[i % 4]); });
      store_pack(x, a.base[0], a.dtype[0], p);
      continue;
    }
    const auto item = static_cast<int64_t>(element_size(a.dtype[0]));
    unrolled<kPack>([&](int i) {  // the last, incomplete pack
      const int64_t at = p * kPack + i;
      if (at >= a.numel) return;
      const float x = load_packed(a.base[1] + at * item, a.dtype[1]);
      store_packed(a.base[0] + at * item, a.dtype[0], dropped(x, words[i / 4].v[i % 4]));
    });
  }
}

}  // namespace

bool dropout_fused(const DropoutTask& d) {
  const Layout<2> layout({&d.y, &d.x});
  if (layout.numel == 0) return true;
  for (int k = 0; k < 2; ++k)
    if (!packs(layout.dtype[k]) || !layout.contiguous(k) || !is_aligned(layout.base[k]))
      return false;
  const PackedOperands<2> a{
      layout.numel, {layout.base[0], layout.base[1]}, {d.y.dtype(), d.x.dtype()}, {}};
  // u·2^-24 < 1 − p, as random() compares, for whole numbers u.
  const auto below = static_cast<unsigned>(std::ceil(std::ldexp(1 - d.p, 24)));
  launch_for(queue(d.y), (layout.numel + kPack - 1) / kPack, "dropout", drop_packs, a, below,
             static_cast<float>(1 - d.p), d.key);
  return true;
}

}  // namespace halftape::cuda
