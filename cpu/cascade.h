// Partial results in 32 lanes, and the fixed orders in which they are joined.
#pragma once
#include "halftape/core/formula/reduce.h"

#include "halftape/cpu/chunk.h"

namespace halftape::cpu {

/// acc ← op(acc, x) lane by lane: in a chain of them the masks that a Chunk's comparison writes out
/// would be waited for.
template <class Op, class S>
void step_chunk(Chunk<S>& acc, const Chunk<S>& x) {
  for (int k = 0; k < kLanes; ++k) acc.v[k] = Op::step(acc.v[k], x.v[k]);
}

/// All lanes of a chunk, joined as a tree of halves.
template <class Op, int Half = kLanes / 2, class S>
S combine_lanes(Chunk<S> acc) {
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
