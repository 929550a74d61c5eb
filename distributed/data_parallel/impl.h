// The state of a DistributedDataParallel, which its hooks and its loops over shards share.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "halftape/autograd/tape/engine.h"
#include "halftape/autograd/tape/grad_tag.h"
#include "halftape/distributed/data_parallel/bucket.h"
#include "halftape/distributed/data_parallel/data_parallel.h"
#include "halftape/optim/optimizer.h"

namespace halftape::distributed {

/// The values of all buffers, one after the other; undefined where there are none of the kind.
struct BufferValues {
  Array floats, integers;  // float64 and int64
};

/// The gradients of all buckets on their way.
struct Reduction {
  bool partial = false;  // each rank gets the sum of its part alone
  ReduceOp op = ReduceOp::Avg;
  std::vector<Array> sums = {};  // of the buckets that have begun, in a Bucket's form
  std::vector<Work> works = {};
};

class DistributedDataParallel::Impl : public std::enable_shared_from_this<Impl> {
 public:
  Impl(const nn::Module& module, const DataParallelOptions& options,
       std::shared_ptr<ProcessGroup> group);
  /// Listens to gradients; apart from the constructor, since hooks hold a weak pointer.
  void listen();

  /// Returns a number that rank 0 has made of its default generator's state.
  uint64_t check_same_model() const;
  void broadcast_weights(int src);
  void check_weights() const;

  /// Whether any rank has the gradient of each parameter. Where calls queue on a device, the host
  /// asks once, since it would have to wait for the answer; afterwards the flags must stay.
  std::vector<bool> any_rank(const std::vector<bool>& flags);
  /// Floating buffers ← their mean over the ranks, computed in float64; others ← rank 0's.
  void average_buffers();
  BufferValues buffer_values() const;
  /// (2, n), the numbers and their negatives, of which the largest say where all are equal. A sum
  /// of equal float64 numbers, divided by their count, may be another number; undefined where no
  /// buffer is float64, as shorter numbers are exact.
  Tensor ends_of(const Array& floats) const;
  /// Means of numbers that are equal on all ranks ← that number.
  void keep_equal(const Array& means, const Tensor& ends) const;
  void set_buffers(const BufferValues& values);
  /// Throws after a loop over shards that was left early.
  void check_usable() const;

  /// Begins to reduce the next bucket.
  void reduce(Reduction& under_way, const Array& gathered) const;
  /// Waits for all buckets, and divides their sums. Gives gradients to the parameters that have one
  /// anywhere, with the marks that they had, or those of others where they had none.
  void finish(Reduction& under_way, const std::vector<bool>& defined,
              const std::vector<bool>& anywhere, const std::vector<GradMark>& marks,
              int64_t divide_by = 1) const;

  using ParamGroups = std::vector<optim::OptimizerParamGroup>;
  /// From now on each rank gets its part of the gradients alone, for an optimizer with these
  /// groups; until the end of the returned object.
  std::shared_ptr<const ParamGroups> attach(const ParamGroups& groups);
  /// Whether there is such an optimizer.
  bool has_sharded_optimizer() const;
  /// Throws for a gradient of which each rank has a part, if none of these optimizers uses it.
  void check_all_updated() const;
  /// Makes such gradients whole.
  void gather_gradients() const;

  DataParallelOptions options;
  std::shared_ptr<ProcessGroup> group;
  std::vector<Tensor> params, buffers;
  std::vector<Tensor> all;         // params, those that are frozen, and buffers
  std::vector<std::string> names;  // of all
  std::vector<Bucket> buckets;
  int no_sync = 0;       // guards alive
  bool in_loop = false;  // over shards: gradients are taken at the end of each
  bool left_early = false;

 private:
  /// What is known of one backward().
  struct Pass {
    const void* backward = autograd::current_backward();
    std::vector<bool> arrived;    // of each parameter
    std::vector<size_t> missing;  // of each bucket: gradients that have not arrived
    Reduction reduction;
    std::vector<GradMark> marks;  // of each gradient, before it was reduced
  };
  void arrived(size_t param);
  void before_adding(size_t param);
  void check_there(size_t param, bool is_there) const;
  void check_trained() const;
  void begin_pass();
  void launch_complete(Pass& pass);
  void launch(Pass& pass);
  void end_pass(Pass& pass);
  void mark_local();
  void give_up(Pass& pass);
  void keep_part(const Array& gathered) const;
  std::string describe(size_t i) const;

  std::vector<std::weak_ptr<const ParamGroups>> optimizers_;  // sharded ones
  std::vector<size_t> bucket_of_;                             // of each parameter
  size_t frozen_end_ = 0;             // of `all`: from params.size() to here are frozen parameters
  std::vector<bool> asked_, agreed_;  // the flags of any_rank(), where it asks once
  std::weak_ptr<Pass> pass_;          // of the backward() that runs
  std::vector<Work> lost_;            // calls of one that failed, which may still run
};

/// The mark that a gradient has, without that of no_sync().
GradMark shared_mark(const Tensor& grad);

/// The text of one rank, on all ranks.
std::string text_of(ProcessGroup& group, const std::string& own, int rank,
                    const std::string& label);

/// Registers that these parameters belong to the group, for scalers and, with a seed that all ranks
/// share, for Weights::Stochastic; until the end of the returned object.
std::shared_ptr<void> agree_over(std::shared_ptr<ProcessGroup> group,
                                 const std::vector<Tensor>& params,
                                 std::optional<uint64_t> seed = {});
/// Which of these another DistributedDataParallel that lives has, too: the first one.
std::optional<size_t> reduced_twice(const std::vector<Tensor>& params);

uint64_t hash_bytes(const void* bytes, size_t n);

}  // namespace halftape::distributed
