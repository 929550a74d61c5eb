// Partial results in 32 lanes, and the fixed orders in which they are joined.
#pragma once
#include <cstring>

#include "halftape/core/formula/reduce.h"

#include "halftape/cpu/vector/chunk.h"

namespace halftape::cpu {

/// acc ← op(acc, x) lane by lane: in a chain of them the masks that a Chunk's comparison writes out
/// would be waited for.
template <class Op, class S>
void step_chunk(Chunk<S>& acc, const Chunk<S>& x) {
  for (int k = 0; k < kLanes; ++k) acc.v[k] = Op::step(acc.v[k], x.v[k]);
}

/// All lanes of a chunk, joined as a tree of halves. Inlined, for a chunk stays in registers then.
template <class Op, int Half = kLanes / 2, class S>
[[gnu::always_inline]] inline S combine_lanes(Chunk<S> acc) {
  for (int k = 0; k < Half; ++k) acc.v[k] = Op::step(acc.v[k], acc.v[k + Half]);
  if constexpr (Half > 1)
    return combine_lanes<Op, Half / 2>(acc);
  else
    return acc.v[0];
}

/// An op where nothing is NaN: one instruction.
template <class Op>
struct WithoutNan : Op {};
template <>
struct WithoutNan<formula::Max> : formula::Max {
  static auto step(const auto& acc, const auto& x) { return acc > x ? acc : x; }
};
template <>
struct WithoutNan<formula::Min> : formula::Min {
  static auto step(const auto& acc, const auto& x) { return acc < x ? acc : x; }
};

/// Chunks joined lane by lane, in registers: a Chunk that a loop adds to stays in memory, where
/// each step waits for the one before to be written. (Inlined, or they would stay there, too.)
/// After a NaN, Max and Min are wrong: see joined().
template <class Op, class S>
class Running {
 public:
  Running() {
    for (Register& r : lanes_) r = Register{} + Op::template start<S>();
  }
  [[gnu::always_inline]] void add(const Chunk<S>& x) {
    for (int r = 0; r < kCount; ++r) {
      Register with;
      std::memcpy(&with, x.v + r * kEach, sizeof with);
      if constexpr (kForgets) nan_ |= with != with;
      lanes_[r] = WithoutNan<Op>::step(lanes_[r], with);
    }
  }
  [[gnu::always_inline]] bool is_wrong() const {
    if constexpr (!kForgets) return false;
    uint64_t words[kBytes / 8], any = 0;
    std::memcpy(words, &nan_, sizeof words);
    for (const uint64_t word : words) any |= word;
    return any != 0;
  }
  [[gnu::always_inline]] Chunk<S> lanes() const {
    Chunk<S> all;
    std::memcpy(all.v, lanes_, sizeof all.v);
    return all;
  }
  [[gnu::always_inline]] S total() const { return combine_lanes<WithoutNan<Op>>(lanes()); }

 private:
#if defined(__AVX512F__)
  static constexpr int kBytes = 64;
#elif defined(__AVX__)
  static constexpr int kBytes = 32;
#else
  static constexpr int kBytes = 16;
#endif
  static constexpr int kEach = kBytes / static_cast<int>(sizeof(S)), kCount = kLanes / kEach;
  static constexpr bool kForgets =
      std::is_floating_point_v<S> &&
      (std::is_same_v<Op, formula::Max> || std::is_same_v<Op, formula::Min>);
  using Register [[gnu::vector_size(kBytes)]] = S;
  Register lanes_[kCount];
  decltype(Register{} != Register{}) nan_ = {};
};

/// The same by the op's own formula, which keeps a NaN.
template <class Op, class S>
class Plain {
 public:
  void add(const Chunk<S>& x) { step_chunk<Op>(acc_, x); }
  S total() const { return combine_lanes<Op>(acc_); }

 private:
  Chunk<S> acc_{Op::template start<S>()};
};

/// All of what each(add) gives, chunk by chunk, to `add`; twice where a NaN was among it.
template <class Op, class S, class F>
S joined(const F& each) {
  Running<Op, S> fast;
  each([&](const Chunk<S>& x) { fast.add(x); });
  if (!fast.is_wrong()) [[likely]]
    return fast.total();
  Plain<Op, S> plain;
  each([&](const Chunk<S>& x) { plain.add(x); });
  return plain.total();
}

/// Joins partial results as a binary counter carries: equal halves meet, so that the error grows
/// with the logarithm of their number, without keeping them all.
template <class Op, class S>
class Cascade {
 public:
  void add(Chunk<S> block) {
    int level = 0;
    for (int64_t b = blocks_++; b & 1; b >>= 1) join(block, levels_[level++]);
    levels_[level] = block;
  }
  Chunk<S> total() const {
    Chunk<S> all(Op::template start<S>());
    int level = 0;
    for (int64_t b = blocks_; b; b >>= 1, ++level)
      if (b & 1) join(all, levels_[level]);
    return all;
  }

 private:
  static void join(Chunk<S>& into, const Chunk<S>& earlier) {
    for (int k = 0; k < kLanes; ++k) into.v[k] = Op::step(earlier.v[k], into.v[k]);
  }
  Chunk<S> levels_[48];  // level i holds 2^i blocks where bit i of the count is set
  int64_t blocks_ = 0;
};

}  // namespace halftape::cpu
