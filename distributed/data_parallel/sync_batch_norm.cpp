#include "halftape/distributed/data_parallel/sync_batch_norm.h"

#include "halftape/autograd/autograd.h"
#include "halftape/autograd/tape/record.h"

namespace halftape::distributed {

Tensor sync_sum(const Tensor& x, ProcessGroup& group) {
  HALFTAPE_CHECK(x.defined() && x.is_floating_point(), "sync_sum: needs a floating tensor");
  const Tensor sum(x.array().clone());
  group.all_reduce(sum, ReduceOp::Sum, {.label = "sync_sum"});
  // The graph keeps a shared group, which its module may not outlive.
  return record("sync_sum", sum.array(), {&x},
                [&group, owner = group.weak_from_this().lock()](Node&, const Tensor& g) -> Grads {
                  return {sync_sum(g, group)};
                });
}

SyncBatchNormImpl::SyncBatchNormImpl(const nn::BatchNormOptions& o,
                                     std::shared_ptr<ProcessGroup> group)
    : Cloneable({"SyncBatchNorm", 0}, o), group_(std::move(group)) {}

void SyncBatchNormImpl::pretty_print(std::ostream& out) const {
  out << "SyncBatchNorm(" << options.num_features() << ", eps=" << options.eps() << ")";
}

Tensor SyncBatchNormImpl::forward(const Tensor& x) {
  HALFTAPE_CHECK(x.defined() && x.dim() >= 2 && x.size(1) == options.num_features(),
                 "SyncBatchNorm: expected (N, C, …) with C = num_features ", options.num_features(),
                 ", got ", x.defined() ? x.sizes() : Shape{});
  if (!is_training())
    return halftape::batch_norm(x, running_mean, running_var, weight, bias, !running_mean.defined(),
                                0, options.eps());
  if (!group_) group_ = default_group();
  const PolicyScope plain(nullptr);
  const Tensor wide = x.to(compute_dtype(x.dtype()));
  Dims others = {0};
  Shape row = {1, x.size(1)};
  for (int64_t d = 2; d < x.dim(); ++d) others.push_back(static_cast<int>(d)), row.push_back(1);
  const int64_t channels = x.size(1);
  // The number of values travels with their sums.
  const int64_t values = x.numel() / channels;
  const Tensor own = full({1}, static_cast<double>(values), wide.dtype());
  const Tensor sums = sync_sum(cat({sum(wide, others), own.to(x.device())}), *group_);
  const Tensor count = sums.slice(0, channels, channels + 1).detach();
  HALFTAPE_CHECK(count.item<double>() > 1, "SyncBatchNorm: expected more than 1 value per channel ",
                 "over all ranks in training, got input of shape ", x.sizes());
  const Tensor mean = sums.slice(0, 0, channels) / count;
  const Tensor deviation = wide - mean.reshape(row);
  const Tensor variance = sync_sum(sum(deviation * deviation, others), *group_) / count;
  if (running_mean.defined()) follow(mean.detach(), variance.detach(), count);
  Tensor y = deviation * rsqrt(variance + options.eps()).reshape(row);
  if (weight.defined()) y = y * weight.reshape(row) + bias.reshape(row);
  return y.to(x.dtype());
}

/// Moves the running statistics, unless one of the new ones is not finite.
void SyncBatchNormImpl::follow(const Tensor& mean, const Tensor& variance, const Tensor& count) {
  const NoGradGuard no_grad;
  const Tensor finite = options.skip_nonfinite() ? isfinite(mean + variance).all()
                                                 : ones({}, kBool).to(mean.device());
  num_batches_tracked.add_(finite.to(kInt64));
  const Tensor share = options.momentum()
                           ? full({}, *options.momentum(), mean.dtype()).to(mean.device())
                           : 1 / num_batches_tracked.to(mean.dtype());
  const Tensor unbiased = variance * (count / (count - 1));
  for (const auto& [running, now] :
       {std::pair(running_mean, mean), std::pair(running_var, unbiased)})
    running.copy_(where(finite, running + (now.to(running.dtype()) - running) * share, running));
}

}  // namespace halftape::distributed
