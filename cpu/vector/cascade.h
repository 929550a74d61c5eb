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

/// Chunks joined lane by lane, by Sum or Max, in registers: a Chunk that a loop adds to stays in
/// memory, where each step waits for the one before to be written.
template <class Op, class S>
class Running {
 public:
  Running() {
    for (Register& r : lanes_) r = Register{} + Op::template start<S>();
  }
  void add(const Chunk<S>& x) {
    for (int r = 0; r < kCount; ++r) {
      Register with;
      std::memcpy(&with, x.v + r * kEach, sizeof with);
      lanes_[r] = step(lanes_[r], with);
    }
  }
  Chunk<S> lanes() const {
    Chunk<S> all;
    std::memcpy(all.v, lanes_, sizeof all.v);
    return all;
  }

 private:
#if defined(__AVX512F__)
  static constexpr int kBytes = 64;
#elif defined(__AVX__)
  static constexpr int kBytes = 32;
#else
  static constexpr int kBytes = 16;
#endif
  static constexpr int kEach = kBytes / static_cast<int>(sizeof(S)), kCount = kLanes / kEach;
  using Register [[gnu::vector_size(kBytes)]] = S;
  static Register step(Register acc, Register x) {
    if constexpr (std::is_same_v<Op, formula::Sum>) {
      return acc + x;
    } else {
      static_assert(std::is_same_v<Op, formula::Max>);
      const auto stays = (acc != acc) | (acc > x);
      using Word = decltype(stays + stays);
      return (Register)(((Word)acc & stays) | ((Word)x & ~stays));  // NOLINT: bits
    }
  }
  Register lanes_[kCount];
};

/// All lanes of a chunk, joined as a tree of halves. Inlined, for a chunk stays in registers then.
template <class Op, int Half = kLanes / 2, class S>
[[gnu::always_inline]] inline S combine_lanes(Chunk<S> acc) {
  for (int k = 0; k < Half; ++k) acc.v[k] = Op::step(acc.v[k], acc.v[k + Half]);
  if constexpr (Half > 1)
    return combine_lanes<Op, Half / 2>(acc);
  else
    return acc.v[0];
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
