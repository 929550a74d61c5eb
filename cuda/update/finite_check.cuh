// The check that a list of gradients is finite, which may divide them by the loss scale or clip
// them in the same launch.
#pragma once
#include <span>
#include <unordered_map>
#include <vector>

#include "halftape/cuda/update/scaler.cuh"

namespace halftape::cuda {

/// One gradient and its index in the list.
template <class A>
struct Gradient {
  A arrays;  // one array
  int64_t position;
};

/// The launches of a list: first the arrays that can be moved in packs, then the others.
struct GradientList {
  std::vector<Gradient<Flat<1>>> packs;
  std::vector<Gradient<Layout<1>>> elements;

  /// Positions are indices in xs, or in `whole` if that is given, a list with the same arrays.
  explicit GradientList(std::span<const Array> xs, std::span<const Array> whole = {}) {
    std::unordered_map<const void*, int64_t> places;
    for (size_t i = 0; i < whole.size(); ++i)
      if (whole[i].defined() && whole[i].numel() > 0)
        places.emplace(whole[i].raw(), static_cast<int64_t>(i));
    for (size_t i = 0; i < xs.size(); ++i) {
      if (!xs[i].defined() || xs[i].numel() == 0) continue;
      const Layout<1> layout({&xs[i]});
      const int64_t position = whole.empty() ? static_cast<int64_t>(i) : places.at(xs[i].raw());
      if (lies_flat(layout))
        packs.push_back({flat(layout), position});
      else
        elements.push_back({layout, position});
    }
  }
  /// Calls f(chunk, kernel) for each launch.
  template <class P, class E, class F>
  void each(P* of_packs, E* of_elements, const F& f) const {
    in_chunks(packs, [&](const auto& part) { f(part, of_packs); });
    in_chunks(elements, [&](const auto& part) { f(part, of_elements); });
  }
};

struct FiniteCheck {
  const float* inv_scale;  // null: 1
  float* found_inf;        // or null
  long long* first;        // or null
  bool divides;            // gradients are multiplied in place

  __device__ float factor() const { return inv_scale ? *inv_scale : 1; }
  /// Called by whole warps; `bad`: this thread found an element that is not finite.
  __device__ void report(bool bad, int64_t position) const {
    if (!found_inf || !__any_sync(~0u, bad) || threadIdx.x % 32 != 0) return;
    *found_inf = 1;
    // −1, which means none, is the largest number without a sign.
    if (first)
      atomicMin(reinterpret_cast<unsigned long long*>(first),
                static_cast<unsigned long long>(position));
  }
};

/// Raises the versions of the gradients if the check writes them.
inline FiniteCheck finite_check(const GradientCheck& c) {
  if (c.divides)
    for (const Array& g : c.grads)
      if (g.defined()) g.bump_version();
  return {place_of<float>(c.inv_scale), place_of<float>(c.found_inf),
          c.first.defined() ? static_cast<long long*>(c.first.raw()) : nullptr, c.divides};
}

/// check_element(), computed in float, or in double for float64.
__device__ inline bool check_any(void* at, Dtype d, float by, bool divides) {
  return d == Dtype::Float64 ? check_element<double>(at, d, by, divides)
                             : check_element<float>(at, d, by, divides);
}

/// check_any() for a pack, or for its first elements if the array ends in it.
__device__ inline bool check_pack(const Flat<1>& x, int64_t pack, float by, bool divides) {
  const int64_t left = x.numel - pack * kPack;
  bool bad = false;
  with_packed_type(x.dtype[0], [&](auto t) {
    using T = typename decltype(t)::type;
    if (left >= kPack) {
      Pack<T>& place = reinterpret_cast<Pack<T>*>(x.base[0])[pack];
      Pack<T> p = place;
      for (T& v : p.v) {
        const float before = as<float>(v), after = before * by;
        v = as<T>(after);  // which may overflow once more
        bad = bad || !is_finite(before) || !is_finite(divides ? as<float>(v) : after);
      }
      if (divides && by != 1) place = p;
    } else {
      for (int64_t i = pack * kPack; i < x.numel; ++i)
        bad = check_element(x.base[0] + i * static_cast<int64_t>(sizeof(T)), x.dtype[0], by,
                            divides) ||
              bad;
    }
  });
  return bad;
}

}  // namespace halftape::cuda
