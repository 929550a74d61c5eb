// Barriers and warp collectives, under CUDA's names. Included by simt.h.
#pragma once
#include <bit>
#include <cstdint>
#include <string>
#include <type_traits>

#include "threads/block.h"

namespace simt {

/// All lanes of `mask` give a value; each gets result(values, lanes, lane). `values` has 32
/// entries, of which those in `lanes` are set.
template <class T, class Result>
auto together(unsigned mask, T value, Result, Place place) {
  using R = decltype(Result{}(static_cast<const T*>(nullptr), 0u, 0));
  struct Lane {
    T value;
    R result;
  } mine{value, R{}};
  this_block->collective(
      mask, &mine,
      [](void** argument, std::uint32_t lanes) {
        T values[kWarp] = {};
        for (int i = 0; i < kWarp; ++i)
          if (lanes >> i & 1) values[i] = static_cast<Lane*>(argument[i])->value;
        for (int i = 0; i < kWarp; ++i)
          if (lanes >> i & 1) static_cast<Lane*>(argument[i])->result = Result{}(values, lanes, i);
      },
      place);
  return mine.result;
}

template <class T>
struct Sent {
  T value;
  int source;  // the lane to read
};

/// How the four shuffles find their source; a type each, so that lanes that call different ones
/// with one mask are noticed.
enum class Shuffle { Index, Up, Down, Xor };

template <Shuffle kind, class T>
T shuffle(unsigned mask, T value, int amount, int width, Place place) {
  if (width < 1 || width > kWarp || (width & (width - 1)))
    this_block->fail("shuffle at " + place.text() + ": width " + std::to_string(width) +
                     " is not a power of two up to 32");
  const int lane = this_block->lane(), first = lane & ~(width - 1);
  int source = lane;
  if constexpr (kind == Shuffle::Index) source = first | (amount & (width - 1));
  if constexpr (kind == Shuffle::Up) source = lane - amount;
  if constexpr (kind == Shuffle::Down) source = lane + amount;
  if constexpr (kind == Shuffle::Xor) source = lane ^ amount;
  // Xor may read an earlier group of lanes, though no later one.
  const bool inside =
      source < first + width && (kind == Shuffle::Xor ? source >= 0 : source >= first);
  const auto take = [](const Sent<T>* sent, std::uint32_t lanes, int me) {
    const int from = sent[me].source;
    if (!(lanes >> from & 1))
      this_block->fail("a shuffle reads lane " + std::to_string(from) +
                       ", which is not there: it exited, or is not in the mask");
    return sent[from].value;
  };
  return together(mask, Sent<T>{value, inside ? source : lane}, take, place);
}

template <class Combine>
struct Fold {
  template <class T>
  T operator()(const T* values, std::uint32_t lanes, int) const {
    int i = std::countr_zero(lanes);
    T sum = values[i];
    while (++i < kWarp)
      if (lanes >> i & 1) sum = Combine{}(sum, values[i]);
    return sum;
  }
};
template <class Combine, class T>
T fold(unsigned mask, T value, Combine, Place place) {
  static_assert(sizeof(T) == 4 && std::is_integral_v<T>, "__reduce_*_sync takes int and unsigned");
  return together(mask, value, Fold<Combine>{}, place);
}

}  // namespace simt

#define SIMT_PLACE ::simt::Place place = ::simt::Place::here()

inline void __syncthreads(SIMT_PLACE) { simt::this_block->sync_threads(place); }
inline int __syncthreads_count(int predicate, SIMT_PLACE) {
  return simt::this_block->sync_threads(place, predicate != 0);
}
inline int __syncthreads_or(int predicate, SIMT_PLACE) {
  return simt::this_block->sync_threads(place, predicate != 0) != 0;
}
inline int __syncthreads_and(int predicate, SIMT_PLACE) {
  return simt::this_block->sync_threads(place, predicate == 0) == 0;
}
inline void __syncwarp(unsigned mask = ~0u, SIMT_PLACE) {
  simt::this_block->collective(
      mask, nullptr, [](void**, std::uint32_t) {}, place);
}

template <class T>
T __shfl_sync(unsigned mask, T value, int lane, int width = simt::kWarp, SIMT_PLACE) {
  return simt::shuffle<simt::Shuffle::Index>(mask, value, lane, width, place);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = simt::kWarp, SIMT_PLACE) {
  return simt::shuffle<simt::Shuffle::Up>(mask, value, int(delta), width, place);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = simt::kWarp, SIMT_PLACE) {
  return simt::shuffle<simt::Shuffle::Down>(mask, value, int(delta), width, place);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = simt::kWarp, SIMT_PLACE) {
  return simt::shuffle<simt::Shuffle::Xor>(mask, value, lane_mask, width, place);
}

inline unsigned __ballot_sync(unsigned mask, int predicate, SIMT_PLACE) {
  const auto votes = [](const int* values, std::uint32_t lanes, int) {
    unsigned set = 0;
    for (int i = 0; i < simt::kWarp; ++i)
      if (lanes >> i & 1 && values[i]) set |= 1u << i;
    return set;
  };
  return simt::together(mask, predicate, votes, place);
}
inline int __any_sync(unsigned mask, int predicate, SIMT_PLACE) {
  const auto any = [](const int* values, std::uint32_t lanes, int) {
    for (int i = 0; i < simt::kWarp; ++i)
      if (lanes >> i & 1 && values[i]) return 1;
    return 0;
  };
  return simt::together(mask, predicate, any, place);
}
inline int __all_sync(unsigned mask, int predicate, SIMT_PLACE) {
  const auto all = [](const int* values, std::uint32_t lanes, int) {
    for (int i = 0; i < simt::kWarp; ++i)
      if (lanes >> i & 1 && !values[i]) return 0;
    return 1;
  };
  return simt::together(mask, predicate, all, place);
}
template <class T>
unsigned __match_any_sync(unsigned mask, T value, SIMT_PLACE) {
  const auto same = [](const T* values, std::uint32_t lanes, int me) {
    unsigned set = 0;
    for (int i = 0; i < simt::kWarp; ++i)
      if (lanes >> i & 1 && values[i] == values[me]) set |= 1u << i;
    return set;
  };
  return simt::together(mask, value, same, place);
}
/// The calling lane alone, which is all that CUDA promises.
inline unsigned __activemask() { return 1u << simt::this_block->lane(); }

template <class T>
T __reduce_add_sync(unsigned mask, T value, SIMT_PLACE) {
  const auto add = [](T a, T b) { return T(unsigned(a) + unsigned(b)); };
  return simt::fold(mask, value, add, place);
}
template <class T>
T __reduce_min_sync(unsigned mask, T value, SIMT_PLACE) {
  const auto lower = [](T a, T b) { return b < a ? b : a; };
  return simt::fold(mask, value, lower, place);
}
template <class T>
T __reduce_max_sync(unsigned mask, T value, SIMT_PLACE) {
  const auto higher = [](T a, T b) { return a < b ? b : a; };
  return simt::fold(mask, value, higher, place);
}
inline unsigned __reduce_and_sync(unsigned mask, unsigned value, SIMT_PLACE) {
  return simt::fold(
      mask, value, [](unsigned a, unsigned b) { return a & b; }, place);
}
inline unsigned __reduce_or_sync(unsigned mask, unsigned value, SIMT_PLACE) {
  return simt::fold(
      mask, value, [](unsigned a, unsigned b) { return a | b; }, place);
}
inline unsigned __reduce_xor_sync(unsigned mask, unsigned value, SIMT_PLACE) {
  return simt::fold(
      mask, value, [](unsigned a, unsigned b) { return a ^ b; }, place);
}
