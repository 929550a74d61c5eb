// Data-parallel training: every process has the whole model and a share of each batch, and the
// gradients become those of the mean loss. Spelled as torch.nn.parallel.
//
//     auto group = distributed::init_process_group();
//     Net model;                                          // equal on all ranks, by its class
//     distributed::DistributedDataParallel ddp(*model);   // … and by its weights, from here on
//     …
//     scaler.scale(loss).backward();                      // ends when the gradients are reduced
//     scaler.step(optimizer);
//     scaler.update();
#pragma once
#include <memory>
#include <vector>

#include "halftape/distributed/data_parallel/shards.h"
#include "halftape/distributed/process_group.h"
#include "halftape/nn/module.h"

namespace halftape::amp {
class GradScaler;
class AsyncGradScaler;
}  // namespace halftape::amp

namespace halftape::distributed {

struct DataParallelOptions {
  /// Gradients are reduced in buckets, each of which is full when it has so many bytes or more:
  /// 25 MiB, as in PyTorch. One of 4 MiB or more is a bucket of its own, without a copy.
  int64_t bucket_bytes = int64_t{25} << 20;
  /// Of the bucket that is reduced first: a small one begins early.
  int64_t first_bucket_bytes = int64_t{1} << 20;
  /// A bucket is reduced as soon as its gradients are there, while backward() goes on. Turn it off
  /// for models that add to a gradient twice in one backward(), as a hook that calls backward()
  /// may.
  bool overlap = true;
  /// Floating buffers, such as running statistics, become their mean over the ranks at the end of
  /// each reduced backward(); others become those of rank 0.
  bool average_buffers = true;
  /// Into how many shards a batch is cut, for shards(); 0: one for each rank.
  int64_t shards = 0;
};

/// Keeps the model's parameters alike on all ranks: they and the buffers are taken from rank 0 at
/// the start, and each backward() that reaches one of the parameters ends with gradients that are
/// the mean over all ranks, bit for bit the same on each. All else works as in one process:
/// autocast, clipping, any optimizer, flatten(), Graph (on the CPU, and over NCCL after one step
/// outside of it). A parameter that got no gradient on any rank keeps none; one that got it on some
/// counts as zero on the others.
///
/// A GradScaler or AsyncGradScaler that steps an optimizer of these parameters comes to the same
/// verdict on all ranks: the largest of their flags for a bad loss and for inf counts. Its scale,
/// options and trackers must be the same on all ranks, and the step throws where they are not;
/// broadcast_scaler() makes them so.
///
/// backward() throws for a parameter that was frozen when this was made and requires grad now, and
/// for one that another DistributedDataParallel reduces, too. Until its end, gradients are this
/// rank's alone, and a step within it, as by a hook, throws.
///
/// Each rank draws its own random numbers: seed them by the rank, or use shards(). Those of
/// Weights::Stochastic are the same on all ranks.
///
/// With a SyncBatchNorm, and parameters that only some ranks use, turn `overlap` off: buckets would
/// be sent before that layer's sums on one rank, and behind them on another.
class DistributedDataParallel {
 public:
  /// Throws on all ranks when the models differ, naming the first parameter or buffer that does:
  /// names, shapes, dtypes, order and options are compared. The default group is init_process_
  /// group()'s.
  explicit DistributedDataParallel(const nn::Module& module, DataParallelOptions options = {},
                                   std::shared_ptr<ProcessGroup> group = nullptr);
  ~DistributedDataParallel();
  DistributedDataParallel(const DistributedDataParallel&) = delete;
  DistributedDataParallel& operator=(const DistributedDataParallel&) = delete;

  /// While it lives, backward() only adds gradients up on this rank, without a message. The next
  /// backward() reduces all that has come together. Clipping and steps throw until then, unless a
  /// call of your own, such as an all_reduce(), has written to the gradients.
  class [[nodiscard]] NoSync {
   public:
    ~NoSync();
    NoSync(const NoSync&) = delete;
    NoSync& operator=(const NoSync&) = delete;

   private:
    friend class DistributedDataParallel;
    explicit NoSync(DistributedDataParallel& ddp);
    DistributedDataParallel& ddp_;
  };
  NoSync no_sync() { return NoSync(*this); }

  /// This rank's shards of the batch of one step; see Shards.
  Shards shards(uint64_t step, uint64_t seed = 0);

  /// Makes gradients whole of which each rank has a part alone, for a ZeroRedundancyOptimizer that
  /// was given this object: between scaler.unscale_() and clipping, say. Nothing else has to be
  /// changed, and whole gradients stay as they are. Each rank receives the parts of the others, as
  /// many bytes as the parameters have. Called by all ranks.
  void gather_gradients();

  /// Throws on all ranks when parameters or buffers are not the same, bit for bit, everywhere,
  /// naming the first that differs. Reads them all: for tests, and before a checkpoint.
  void check_weights() const;
  /// Takes parameters and buffers from that rank, as the constructor does: after a checkpoint was
  /// loaded on one rank alone.
  void broadcast_weights(int src = 0);
  /// Takes the scaler's state_dict() from that rank: its scale, law and statistics. Before the
  /// first step, or after update(), since it begins anew as load_state_dict() does. A scaler that
  /// is disabled on some ranks alone is refused there.
  void broadcast_scaler(amp::GradScaler& scaler, int src = 0);
  void broadcast_scaler(amp::AsyncGradScaler& scaler, int src = 0);

  ProcessGroup& group() const;  // over whose ranks gradients are averaged
  /// The numbers of the parameters in each bucket, in the order in which buckets are reduced.
  std::vector<std::vector<size_t>> buckets() const;

  class Impl;

 private:
  friend class StateShards;
  std::shared_ptr<Impl> impl_;
  std::shared_ptr<void> agreement_;  // of scalers
};

}  // namespace halftape::distributed
