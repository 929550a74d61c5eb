// The processes that train together.
#pragma once
#include <halftape/halftape.h>

#include <memory>

#include "program.h"

namespace sample {

/// The ranks that a launcher has started: torchrun, mpirun, srun, or RANK and WORLD_SIZE in the
/// environment. Without one this process is alone, and no call below sends anything. All ranks
/// make the same calls in the same order.
class Ranks {
 public:
  /// Prepares the machine, each rank with a GPU of its own, and meets the other ranks. From here on
  /// stdout belongs to rank 0: what the others print is dropped.
  explicit Ranks(const Machine& machine);

  halftape::Device device() const { return device_; }
  int64_t rank() const { return group_->rank(); }
  int64_t size() const { return group_->size(); }
  /// Is this the rank that writes files?
  bool first() const { return rank() == 0; }
  /// True if the launcher has started the ranks again, after one was lost.
  bool restarted() const { return restarted_; }

  /// How much of a batch each rank takes. Throws UserError if the parts would not be equal.
  int64_t part_of(int64_t batch_size) const;
  /// Lets the ranks draw different random numbers from here on, and rank 0 the ones that it would
  /// have drawn. To be called once all have the same state: at the start, or from a checkpoint.
  void draw_apart() const;
  /// Of a number of each rank; the sum of a tensor takes its place.
  double mean(double x) const { return sum(x) / static_cast<double>(size()); }
  double sum(double x) const;
  void sum(const halftape::Tensor& x) const;
  /// Has Ctrl-C, or SIGTERM, reached any of the ranks? All get the same answer, so that they end
  /// after the same step, and all exit with its code.
  bool interrupted() const;
  /// Until all ranks are here.
  void wait() const;

 private:
  halftape::Device device_;
  std::shared_ptr<halftape::distributed::ProcessGroup> group_;
  bool restarted_ = false;
};

}  // namespace sample
