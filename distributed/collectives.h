// Every collective call as exchanges of messages, on arrays: the same for every engine.
#pragma once
#include <chrono>
#include <span>
#include <vector>

#include "halftape/core/array.h"
#include "halftape/distributed/engine/engine.h"

namespace halftape::distributed {

/// The messages of one collective call. Arrays are contiguous, in memory that the engine reaches.
class Exchanges {
 public:
  /// `first_tag` and the few that follow it belong to this call, and `timeout` is for all of them
  /// together. The engine is null in a group of 1.
  Exchanges(Engine* engine, int rank, int size, uint64_t first_tag, milliseconds timeout)
      : engine_(engine), rank_(rank), size_(size), tag_(first_tag), timeout_(timeout) {}
  int rank() const { return rank_; }
  int size() const { return size_; }
  /// sent[r] goes to rank r, and received[r] comes from there; an undefined array is no message.
  /// What this rank sends to itself is copied.
  void run(std::span<const Array> sent, std::span<const Array> received);
  /// The engine's own reduction; false where it has none. Where it has no average, that is its sum,
  /// divided; but not in 16 bits, where a sum may be inf though the average is not.
  bool reduce_by_engine(const Array& x, ReduceOp op);

 private:
  milliseconds left() const;  // of the timeout
  Engine* engine_;
  int rank_, size_;
  uint64_t tag_;
  milliseconds timeout_;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

/// The elements of each of n neighbouring parts but the last ones: a multiple of 16.
int64_t part_size(int64_t numel, int n);
/// The parts of a contiguous array, seen as one dimension: all but the last ones have part_size()
/// elements, and the last may be empty.
std::vector<Array> parts_of(const Array& x, int n);
/// n equal parts.
std::vector<Array> equal_parts_of(const Array& x, int n);

/// y ← the reduction of xs, of y's shape and dtype, in a fixed order: neighbours first,
/// ((x0 + x1) + (x2 + x3)) + …; computed in compute_dtype(), rounded once. Uses the bytes of xs.
/// So the sum of the sums of neighbours, as many in each as a power of 2, has the bits of the sum
/// of all.
void reduce_tree(const Array& y, std::vector<Array> xs, ReduceOp op);

/// sum ← sum / n.
void divide(const Array& sum, int64_t n);

void all_to_all(Exchanges& with, std::span<const Array> outputs, std::span<const Array> inputs);
void all_gather(Exchanges& with, std::span<const Array> outputs, const Array& input);
void reduce_scatter(Exchanges& with, const Array& output, std::span<const Array> inputs,
                    ReduceOp op);
void all_reduce(Exchanges& with, const Array& x, ReduceOp op);
void broadcast(Exchanges& with, const Array& x, int src);

}  // namespace halftape::distributed
