// How the gradients of buckets are reduced: on all ranks, or, for a sharded optimizer, each rank's
// part of a bucket on that rank alone.
#include <algorithm>
#include <unordered_set>
#include <utility>

#include "halftape/autograd/tape/grad_mode.h"
#include "halftape/core/contract/backend.h"
#include "halftape/distributed/collectives.h"
#include "halftape/distributed/data_parallel/impl.h"

namespace halftape::distributed {

using Impl = DistributedDataParallel::Impl;

void Impl::reduce(Reduction& under_way, const Array& gathered) const {
  const CollectiveOptions how{.async_op = true,
                              .label = "bucket " + std::to_string(under_way.works.size()),
                              .raises_versions = false};
  under_way.sums.push_back(gathered);
  if (!under_way.partial) {
    under_way.works.push_back(group->all_reduce(Tensor(gathered), under_way.op, how));
    return;
  }
  const std::vector<Tensor> parts = parts_for(*group, gathered);
  under_way.works.push_back(
      group->reduce_scatter(parts[static_cast<size_t>(group->rank())], parts, under_way.op, how));
}

void Impl::finish(Reduction& under_way, const std::vector<bool>& defined,
                  const std::vector<bool>& anywhere, const std::vector<GradMark>& marks,
                  int64_t divide_by) const {
  // A gradient that came from other ranks alone has the mark that the others have.
  const auto marked =
      std::find_if(marks.begin(), marks.end(), [](const GradMark& mark) { return mark.known; });
  for (size_t b = 0; b < buckets.size(); ++b) {
    under_way.works[b].wait();
    const Array& sum = under_way.sums[b];
    if (divide_by != 1) divide(sum, divide_by);
    // Zeros elsewhere: so each element is judged by one rank, after the reduction, and the largest
    // of the ranks' verdicts is the verdict on the whole gradients.
    if (under_way.partial) keep_part(sum);
    for (size_t k = 0; k < buckets[b].numbers().size(); ++k) {
      const size_t i = buckets[b].numbers()[k];
      if (!anywhere[i]) continue;
      buckets[b].put(k, sum);
      const Tensor& g = params[i].grad();
      const GradMark* mark = defined[i] ? &marks[i] : marked != marks.end() ? &*marked : nullptr;
      if (mark && mark->known) set_mark(g, mark->tag);
      set_partial(g, under_way.partial);
    }
  }
}

/// Fills all but this rank's part with zeros.
void Impl::keep_part(const Array& gathered) const {
  const Array own = parts_of(gathered, group->size())[static_cast<size_t>(group->rank())];
  const int64_t begin = own.offset() - gathered.offset(), end = begin + own.numel();
  for (const Array& other : {gathered.slice(0, 0, begin), gathered.slice(0, end, gathered.numel())})
    if (other.numel() > 0) backend(other.device()).fill(other, 0);
}

std::shared_ptr<const Impl::ParamGroups> Impl::attach(const ParamGroups& groups) {
  std::shared_ptr<const ParamGroups> held(std::make_shared<char>(), &groups);
  std::erase_if(optimizers_, [](const auto& one) { return one.expired(); });
  optimizers_.push_back(held);
  return held;
}

bool Impl::has_sharded_optimizer() const {
  return std::any_of(optimizers_.begin(), optimizers_.end(),
                     [](const auto& one) { return !one.expired(); });
}

void Impl::check_all_updated() const {
  std::unordered_set<const halftape::detail::TensorImpl*> updated;
  for (const auto& one : optimizers_)
    if (const auto groups = one.lock())
      for (const Tensor& p : optim::parameters_of(*groups)) updated.insert(p.impl());
  for (size_t i = 0; i < params.size(); ++i)
    HALFTAPE_CHECK(
        !is_partial(params[i].grad()) || updated.count(params[i].impl()) > 0,
        "ZeroRedundancyOptimizer: ", names[i],
        " has a gradient and is in no group, so it would stay as it is; add_param_group(), or "
        "set_requires_grad(false) before backward()");
}

void Impl::gather_gradients() const {
  const NoGradGuard no_grad;
  for (const Bucket& bucket : buckets) {
    const auto partial = [](const Tensor& p) { return is_partial(p.grad()); };
    if (std::none_of(bucket.params().begin(), bucket.params().end(), partial)) continue;
    std::vector<GradMark> marks;
    for (const Tensor& p : bucket.params()) marks.push_back(mark_of(p.grad()));
    const Array gathered = bucket.gathered();
    const std::vector<Tensor> parts = parts_for(*group, gathered);
    group->all_gather(parts, parts[static_cast<size_t>(group->rank())],
                      {.label = "gradients", .raises_versions = false});
    for (size_t k = 0; k < marks.size(); ++k) {
      const Tensor& g = bucket.params()[k].grad();
      if (!g.defined()) continue;
      bucket.put(k, gathered);
      if (marks[k].known) set_mark(g, marks[k].tag);
      set_partial(g, false);
    }
  }
}

}  // namespace halftape::distributed
