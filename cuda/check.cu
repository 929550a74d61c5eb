// Are all gradients finite? And, in the same launch, divided by the loss scale.
#include "halftape/cuda/kernels.h"
#include "halftape/cuda/scaler.cuh"

namespace halftape::cuda {
namespace {

template <class A>
struct Gradient {
  A arrays;  // one
  int64_t position;
};

struct Judge {
  const float* inv_scale;
  float* found_inf;
  long long* first;
  bool divides;  // writes what it multiplied

  __device__ float factor() const { return inv_scale ? *inv_scale : 1; }
  /// Called by whole warps.
  __device__ void say(bool bad, int64_t position) const {
    if (!__any_sync(~0u, bad) || threadIdx.x % 32 != 0) return;
    *found_inf = 1;
    // Without a sign, −1 is the largest number.
    if (first)
      atomicMin(reinterpret_cast<unsigned long long*>(first),
                static_cast<unsigned long long>(position));
  }
};

__global__ void judge_packs(const __grid_constant__ Chunk<Gradient<Flat<1>>> list, Judge judge) {
  const int e = list.entry_of(blockIdx.x);
  const Flat<1>& x = list.entries[e].arrays;
  const int64_t pack =
      static_cast<int64_t>(blockIdx.x - list.first_block[e]) * kThreads + threadIdx.x;
  const int64_t left = x.numel - pack * kPack;
  const float by = judge.factor();
  bool bad = false;
  with_packed_type(x.dtype[0], [&](auto t) {
    using T = typename decltype(t)::type;
    if (left >= kPack) {
      Pack<T>& place = reinterpret_cast<Pack<T>*>(x.base[0])[pack];
      Pack<T> p = place;
      for (T& v : p.v) {
        const float before = as<float>(v), after = before * by;
        v = as<T>(after);  // which may overflow once more
        bad = bad || !is_finite(before) || !is_finite(judge.divides ? as<float>(v) : after);
      }
      if (judge.divides && by != 1) place = p;
    } else {
      for (int64_t i = pack * kPack; i < x.numel; ++i)
        bad = judge_element(x.base[0] + i * static_cast<int64_t>(sizeof(T)), x.dtype[0], by,
                            judge.divides) ||
              bad;
    }
  });
  judge.say(bad, list.entries[e].position);
}

template <class S>
__global__ void judge_elements(const __grid_constant__ Chunk<Gradient<Layout<1>>> list,
                               Judge judge) {
  const int e = list.entry_of(blockIdx.x);
  const Layout<1>& x = list.entries[e].arrays;
  const int64_t begin = static_cast<int64_t>(blockIdx.x - list.first_block[e]) * kPerBlock;
  const S by = static_cast<S>(judge.factor());
  bool bad = false;
  for (int64_t i = begin + threadIdx.x; i < begin + kPerBlock && i < x.numel; i += kThreads) {
    char* at[1];
    x.locate(i, at);
    bad = judge_element<S>(at[0], x.dtype[0], by, judge.divides) || bad;
  }
  judge.say(bad, list.entries[e].position);
}

void judge_all(const char* what, std::span<const Array> xs, const Array& inv_scale,
               const Array& found_inf, const Array& first, bool divides) {
  std::vector<Gradient<Flat<1>>> packs;
  std::vector<Gradient<Layout<1>>> floats, doubles;
  for (size_t i = 0; i < xs.size(); ++i) {
    if (!xs[i].defined()) continue;
    if (divides) xs[i].bump_version();
    if (xs[i].numel() == 0) continue;
    const Layout<1> layout({&xs[i]});
    const auto position = static_cast<int64_t>(i);
    if (lies_flat(layout))
      packs.push_back({flat(layout), position});
    else
      (xs[i].dtype() == kFloat64 ? doubles : floats).push_back({layout, position});
  }
  const Queue q = queue(found_inf);
  const Judge judge{float_of(inv_scale), found_inf.data<float>(),
                    first.defined() ? static_cast<long long*>(first.raw()) : nullptr, divides};
  const auto send = [&](const auto& list, auto* kernel) {
    in_chunks(list, [&](const auto& part) {
      launch(q, what, kernel, part.blocks(), kThreads, 0, part, judge);
    });
  };
  send(packs, judge_packs);
  send(floats, judge_elements<float>);
  send(doubles, judge_elements<double>);
}

}  // namespace

void check_finite(std::span<const Array> xs, const Array& found_inf, const Array& inv_scale,
                  const Array& first) {
  judge_all("check_finite", xs, inv_scale, found_inf, first, false);
}

void unscale(std::span<const Array> grads, const Array& inv_scale, const Array& found_inf,
             const Array& first) {
  judge_all("unscale", grads, inv_scale, found_inf, first, true);
}

}  // namespace halftape::cuda
