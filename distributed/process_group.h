// Processes that compute together, and the collective calls between them. Spelled as
// torch.distributed (c10d).
//
//     auto group = distributed::init_process_group();   // by torchrun, mpirun, srun, or variables
//     group->all_reduce(gradient, ReduceOp::Avg);
//
// Every process of the group makes the same calls in the same order.
#pragma once
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "halftape/autograd/tensor.h"
#include "halftape/distributed/engine/engine.h"
#include "halftape/distributed/environment.h"
#include "halftape/distributed/store/failure_news.h"
#include "halftape/distributed/store/watch.h"

namespace halftape::distributed {

/// A collective call, as c10d::Work. Copies are the same call.
class Work {
 public:
  /// True once it has ended, well or not.
  bool is_completed() const;
  /// True once it has ended well.
  bool is_success() const;
  /// Why it failed; null if it did not, or still runs.
  std::exception_ptr exception() const;
  /// Waits for the end, and throws if the call failed. Never longer than the call's timeout, plus
  /// that of calls before it.
  void wait() const;

  class State;
  explicit Work(std::shared_ptr<State> state) : state_(std::move(state)) {}
  const std::shared_ptr<State>& state() const { return state_; }

 private:
  std::shared_ptr<State> state_;
};

struct CollectiveOptions {
  /// Returns before the call has ended. The tensors must be left alone until wait().
  bool async_op = false;
  /// 0: the group's.
  milliseconds timeout{0};
  /// Follows the call's name in errors: "bucket 3". Equal on all ranks.
  std::string label = {};
  /// False: the caller has raised the versions of what is written. Parts of one buffer, as
  /// gradients in flat storage are, have versions of their own, and a call sees the whole.
  bool raises_versions = true;
};

/// How sums are computed.
enum class Summation : uint8_t {
  /// By Halftape, in a tree over the ranks: neighbours first, ((0 + 1) + (2 + 3)) + …; in float32
  /// (float64, int64), rounded once. The same bits on all ranks, however a tensor is cut.
  Tree,
  /// By the engine, where it can: equal on all ranks, but bits depend on sizes and on the engine.
  /// An average in 16 bits stays with the tree under Gloo.
  Engine,
};

struct GroupOptions {
  /// Of every collective call.
  milliseconds timeout{60000};
  Summation summation = Summation::Tree;  // of all_reduce()
};

/// A group of processes. Calls come from one thread at a time; they run one after the other, on a
/// thread of the group. After a call has failed, all later ones fail, with the first reason: the
/// group is of no further use, and the program should end and resume from its last checkpoint.
///
/// Tensors may have any strides, but must not overlap themselves. No call records a history. Calls
/// throw Error when their tensors do not fit, before anything is sent; what happens on the way is
/// thrown by Work::wait(), and at once where async_op is false.
class ProcessGroup : public std::enable_shared_from_this<ProcessGroup> {
 public:
  /// One process of a group. Null for the engine: a group of one. The watch, which tells `news`,
  /// may be null, too: then a lost process is noticed by the timeout alone.
  ProcessGroup(std::unique_ptr<Engine> engine, int rank, int size, GroupOptions options = {},
               std::unique_ptr<Watch> watch = nullptr, std::shared_ptr<FailureNews> news = nullptr,
               std::shared_ptr<Store> store = nullptr);
  /// Ends calls that run, and leaves the group.
  ~ProcessGroup();
  ProcessGroup(const ProcessGroup&) = delete;
  ProcessGroup& operator=(const ProcessGroup&) = delete;

  int rank() const;  // of this process, from 0
  int size() const;  // how many processes
  /// The engine's name; "none" for a group of one process.
  std::string backend() const;
  /// Small values that all ranks see. Null in a group of one that has none.
  std::shared_ptr<Store> store() const;
  Summation summation() const;  // as the group was made
  /// True if calls return before a device has done them: with NCCL.
  bool queues() const;

  /// Each element becomes its reduction over all ranks. Avg: floating dtypes alone. For bool, Sum
  /// and Max are "or", Product and Min "and".
  Work all_reduce(const Tensor& tensor, ReduceOp op = ReduceOp::Sum, CollectiveOptions how = {});
  /// The tensor of rank `src` replaces those of the others.
  Work broadcast(const Tensor& tensor, int src = 0, CollectiveOptions how = {});
  /// outputs[r] ← the input of rank r; all of one dtype. Sizes may differ by r, if all ranks know
  /// them.
  Work all_gather(const std::vector<Tensor>& outputs, const Tensor& input,
                  CollectiveOptions how = {});
  /// The same with one output: the inputs lie one after the other along the first dimension.
  /// Only its number of elements is checked.
  Work all_gather_into_tensor(const Tensor& output, const Tensor& input,
                              CollectiveOptions how = {});
  /// output ← the reduction over all ranks of their inputs[rank()], which may be output itself.
  /// Sizes may differ by rank, if all ranks know them.
  Work reduce_scatter(const Tensor& output, const std::vector<Tensor>& inputs,
                      ReduceOp op = ReduceOp::Sum, CollectiveOptions how = {});
  /// The same with one input of size() parts of output's size, along the first dimension.
  Work reduce_scatter_tensor(const Tensor& output, const Tensor& input, ReduceOp op = ReduceOp::Sum,
                             CollectiveOptions how = {});
  /// outputs[r] ← inputs[rank()] of rank r. What rank a sends to b has the size and
  /// the dtype that b expects.
  Work all_to_all(const std::vector<Tensor>& outputs, const std::vector<Tensor>& inputs,
                  CollectiveOptions how = {});
  /// The same with one output and one input, each of size() equal parts along the first dimension.
  Work all_to_all_single(const Tensor& output, const Tensor& input, CollectiveOptions how = {});
  /// Ends when all ranks have called it.
  Work barrier(CollectiveOptions how = {});

 private:
  friend void destroy_process_group();
  /// Says goodbye to the others, whoever still holds this; calls that come later throw.
  void leave();
  class Impl;
  std::unique_ptr<Impl> impl_;
};

/// All that init_process_group() would else read from the environment.
struct ProcessGroupOptions {
  /// The engine: "gloo" (host memory; that of GPUs is copied there), "nccl" (GPUs); empty: nccl
  /// where a GPU and NCCL are, else gloo.
  std::string backend = {};
  /// Of every collective call, and of the silence after which a process counts as lost.
  milliseconds timeout{60000};
  Summation summation = Summation::Tree;  // of all_reduce()
  /// "tcp://host:port": rank 0 listens there; "file:///folder": a folder that all see, empty at the
  /// start of a run.
  std::string init_method = {};
  int rank = -1, world_size = -1;     // both, or neither; with them, rank chooses the GPU
  std::shared_ptr<Store> store = {};  // in place of init_method
  /// This machine's address as the others reach it; empty: that on its way to the host of
  /// tcp://host, else that of its name.
  std::string host = {};
};

/// Meets the other processes, and returns the group of all of them, which is also the default
/// group. With one process, or none launched, that is a group of one, which needs no engine. Throws
/// Error when the others do not come within the timeout, when WORLD_SIZE says that there are others
/// and no engine can be loaded, and when there is a default group already.
std::shared_ptr<ProcessGroup> init_process_group(const ProcessGroupOptions& options = {});
/// A group that is not the default one. At one place, groups must not meet at the same time.
std::shared_ptr<ProcessGroup> new_process_group(const ProcessGroupOptions& options);
/// True between init_process_group() and destroy_process_group().
bool is_initialized();
/// The default group; throws if there is none.
std::shared_ptr<ProcessGroup> default_group();
/// Says goodbye to the others, and forgets the default group; who still holds it can make no more
/// calls. The end of the program does it, too, by return or exit().
/// Until then rank 0 serves the meeting place "tcp://host:port", and the port is taken.
void destroy_process_group();
/// Of the default group; 0 and 1 without one.
int get_rank();
int get_world_size();

}  // namespace halftape::distributed
