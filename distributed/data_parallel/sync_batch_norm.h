// Batch normalisation over the batches of all ranks together.
#pragma once
#include <memory>

#include "halftape/distributed/process_group.h"
#include "halftape/nn/modules/norm.h"

namespace halftape::distributed {

/// The sum of x over all ranks, with a history: the gradient is the sum of the ranks' gradients.
/// Every rank calls it, and runs backward through it, in the same order.
Tensor sync_sum(const Tensor& x, ProcessGroup& group);

/// nn::BatchNorm1d, 2d and 3d in one, (N, C, …), with statistics over the values of all ranks,
/// whose batches may differ in size. Parameters and buffers have BatchNorm's names, so checkpoints
/// of the two are the same. In evaluation it is BatchNorm. Spelled as torch.nn.SyncBatchNorm.
///
/// Two small messages in forward and two in backward. Inside a loop over
/// DistributedDataParallel::shards() use BatchNorm, whose statistics are a shard's.
class SyncBatchNormImpl : public nn::Cloneable<SyncBatchNormImpl, nn::detail::BatchNorm> {
 public:
  /// `group`: the default one unless given.
  explicit SyncBatchNormImpl(const nn::BatchNormOptions& options,
                             std::shared_ptr<ProcessGroup> group = nullptr);
  Tensor forward(const Tensor& x);
  void pretty_print(std::ostream& out) const override;

 private:
  void follow(const Tensor& mean, const Tensor& variance, const Tensor& count);
  std::shared_ptr<ProcessGroup> group_;
};
HALFTAPE_MODULE(SyncBatchNorm);

}  // namespace halftape::distributed
