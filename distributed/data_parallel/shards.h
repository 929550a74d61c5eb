// The same bits for any number of processes: a batch is cut into a fixed number of shards, and what
// they give is added in a fixed order, within and across ranks.
#pragma once
#include <cstdint>
#include <memory>

#include "halftape/autograd/tensor.h"

namespace halftape::distributed {

/// One of `count` equal pieces of a batch.
struct Shard {
  int64_t index, count;  // the number of this one, from 0, and of all
  /// This shard's rows of a batch that every rank has whole: (N, …) → (N / count, …). Throws when
  /// count does not divide N.
  Tensor of(const Tensor& batch) const;
};

/// This rank's shards of one step:
///
///     DistributedDataParallel ddp(*model, {.shards = 8});
///     for (const distributed::Shard shard : ddp.shards(step)) {
///       const Tensor loss = F::cross_entropy(model->forward(shard.of(x)), shard.of(y));
///       scaler.scale(loss).backward();
///     }
///     scaler.step(optimizer);
///
/// Each shard begins without gradients, with the buffers (running statistics) that the step began
/// with, and with random numbers of its own, by seed, step and shard. After the loop gradients and
/// floating buffers are the mean over all shards, summed in a tree in float32 (float64), and the
/// default generators are as before the loop. So 1, 2, 4 and 8 processes with 8 shards have the
/// same weights after every step, bit for bit, on the same kind of device.
///
/// A loop that is left early leaves no gradients, and the other ranks wait in vain: let the program
/// end, by an exception, say.
class Shards {
 public:
  class Loop;
  class iterator {  // over this rank's shards
   public:
    Shard operator*() const;
    /// Takes in what the shard has given.
    iterator& operator++();
    bool operator!=(const iterator& end) const { return left_ != end.left_; }

   private:
    friend class Shards;
    Loop* loop_ = nullptr;
    int64_t left_ = 0;
  };
  explicit Shards(std::shared_ptr<Loop> loop);
  ~Shards();
  Shards(Shards&&) noexcept;
  iterator begin();  // once; with end(), what a range-based for needs
  iterator end() { return {}; }

 private:
  std::shared_ptr<Loop> loop_;
};

}  // namespace halftape::distributed
