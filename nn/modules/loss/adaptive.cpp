#include "halftape/nn/modules/loss/adaptive.h"

#include <cmath>

#include "halftape/autograd/ops/elementwise/binary.h"
#include "halftape/autograd/ops/indexing/index.h"
#include "halftape/autograd/ops/layout/shape.h"
#include "halftape/autograd/ops/layout/view.h"
#include "halftape/autograd/ops/reduction/reduce.h"
#include "halftape/autograd/ops/reduction/softmax.h"

namespace halftape::nn {

void AdaptiveLogSoftmaxWithLossImpl::reset() {
  const auto& o = options;
  HALFTAPE_CHECK(!o.cutoffs().empty(), "AdaptiveLogSoftmaxWithLoss: no cutoffs; give one at least");
  int64_t before = 0;
  for (const int64_t c : o.cutoffs()) {
    HALFTAPE_CHECK(c > before && c < o.n_classes(),
                   "AdaptiveLogSoftmaxWithLoss: cutoffs should be a sequence of unique, positive "
                   "integers sorted in an increasing order, where each value is between 1 and "
                   "n_classes-1; ",
                   c, " follows ", before, " of ", o.n_classes(), " classes");
    before = c;
  }
  HALFTAPE_CHECK(o.div_value() > 0, "AdaptiveLogSoftmaxWithLoss: div_value ", o.div_value(),
                 " must be positive");
  const auto features = [&](size_t cluster) {
    return static_cast<double>(o.in_features()) /
           std::pow(o.div_value(), static_cast<double>(cluster));
  };
  HALFTAPE_CHECK(features(o.cutoffs().size()) < 1e9, "AdaptiveLogSoftmaxWithLoss: with div_value ",
                 o.div_value(), " the last cluster has ", features(o.cutoffs().size()),
                 " features; a div_value above 1 makes rare classes cheaper");
  cutoffs = o.cutoffs();
  cutoffs.push_back(o.n_classes());
  shortlist_size = cutoffs[0];
  n_clusters = static_cast<int64_t>(cutoffs.size()) - 1;
  head_size = shortlist_size + n_clusters;
  head = register_module("head",
                         Linear(LinearOptions(o.in_features(), head_size).bias(o.head_bias())));
  tail = register_module("tail", ModuleList());
  for (size_t i = 1; i < cutoffs.size(); ++i) {
    const auto hidden = static_cast<int64_t>(features(i));
    tail->push_back(
        Sequential{Linear(LinearOptions(o.in_features(), hidden).bias(false)),
                   Linear(LinearOptions(hidden, cutoffs[i] - cutoffs[i - 1]).bias(false))});
  }
}

void AdaptiveLogSoftmaxWithLossImpl::reset_parameters() {
  head->reset_parameters();
  for (const auto& layers : *tail)
    for (const auto& layer : layers->children()) layer->as<Linear>()->reset_parameters();
}

Tensor AdaptiveLogSoftmaxWithLossImpl::cluster(size_t i, const Tensor& x) {
  return log_softmax(tail[i]->as<Sequential>()->forward(x), 1);
}

ASMoutput AdaptiveLogSoftmaxWithLossImpl::forward(const Tensor& x_in, const Tensor& target_in) {
  const PlaceScope scope(*this);
  const bool single = target_in.dim() == 0;
  HALFTAPE_CHECK(target_in.dim() <= 1 && x_in.dim() == target_in.dim() + 1 &&
                     (single || x_in.size(0) == target_in.size(0)) &&
                     x_in.size(-1) == options.in_features(),
                 "AdaptiveLogSoftmaxWithLoss: input ", x_in.sizes(), " and target ",
                 target_in.sizes(), "; expected (N, ", options.in_features(), ") and (N), or (",
                 options.in_features(), ") and one number");
  const Tensor x = single ? x_in.unsqueeze(0) : x_in,
               target = single ? target_in.unsqueeze(0) : target_in;
  Tensor in_head = target;  // the class in the head: of a frequent one its own, else its cluster's
  TensorList rows, values;
  int64_t found = (target >= 0).logical_and(target < shortlist_size).sum().item<int64_t>();
  for (size_t i = 0; i + 1 < cutoffs.size(); ++i) {
    const Tensor inside = (target >= cutoffs[i]).logical_and(target < cutoffs[i + 1]);
    const Tensor where = inside.nonzero().squeeze(1);
    if (where.numel() == 0) continue;
    found += where.numel();
    const Tensor relative = target.index_select(0, where) - cutoffs[i];
    rows.push_back(where);
    values.push_back(
        cluster(i, x.index_select(0, where)).gather(1, relative.unsqueeze(1)).squeeze(1));
    in_head = in_head.masked_fill(inside, shortlist_size + static_cast<int64_t>(i));
  }
  HALFTAPE_CHECK(found == target.numel(),
                 "AdaptiveLogSoftmaxWithLoss: Target values should be in "
                 "[0, ",
                 options.n_classes() - 1, "], but values in range [", target.amin().item<int64_t>(),
                 ", ", target.amax().item<int64_t>(), "] were found");
  Tensor output = log_softmax(head(x), 1).gather(1, in_head.unsqueeze(1)).squeeze(1);
  if (!rows.empty()) output = output.index_add(0, cat(rows), cat(values).to(output.dtype()));
  AdaptiveLoss loss((-output).mean());
  return {single ? output.squeeze(0) : output, std::move(loss)};
}

Tensor AdaptiveLogSoftmaxWithLossImpl::full_log_prob(const Tensor& x, const Tensor& head_output) {
  const Tensor of_head = log_softmax(head_output, 1);
  TensorList parts{of_head.slice(1, 0, shortlist_size)};
  for (int64_t i = 0; i < n_clusters; ++i)
    parts.push_back(cluster(static_cast<size_t>(i), x) +
                    of_head.select(1, shortlist_size + i).unsqueeze(1));
  return cat(parts, 1);
}

Tensor AdaptiveLogSoftmaxWithLossImpl::log_prob(const Tensor& x) {
  const PlaceScope scope(*this);
  return full_log_prob(x, head(x));
}

Tensor AdaptiveLogSoftmaxWithLossImpl::predict(const Tensor& x) {
  const PlaceScope scope(*this);
  const Tensor head_output = head(x);
  Tensor best = head_output.argmax(1);
  const Tensor rare = (best >= shortlist_size).nonzero().squeeze(1);
  if (rare.numel() == 0) return best;
  const Tensor all = full_log_prob(x.index_select(0, rare), head_output.index_select(0, rare));
  return best.index_copy(0, rare, all.argmax(1));
}

void AdaptiveLogSoftmaxWithLossImpl::pretty_print(std::ostream& out) const {
  out << "halftape::nn::AdaptiveLogSoftmaxWithLoss";
}

}  // namespace halftape::nn
