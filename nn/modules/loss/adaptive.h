// A softmax over many classes, of which few are frequent.
#pragma once
#include <concepts>
#include <cstdint>
#include <utility>
#include <vector>

#include "halftape/autograd/ops/creation/create.h"
#include "halftape/core/options.h"
#include "halftape/nn/modules/container/module_list.h"
#include "halftape/nn/modules/container/sequential.h"
#include "halftape/nn/modules/linear.h"

namespace halftape::nn {

/// `cutoffs`: where the clusters begin, increasing, from 1 to n_classes − 1. Cluster i has
/// in_features/div_valueⁱ features.
struct AdaptiveLogSoftmaxWithLossOptions {
  AdaptiveLogSoftmaxWithLossOptions(int64_t in_features, int64_t n_classes,
                                    std::vector<int64_t> cutoffs)
      : in_features_(in_features), n_classes_(n_classes), cutoffs_(std::move(cutoffs)) {}
  HALFTAPE_ARG(int64_t, in_features);
  HALFTAPE_ARG(int64_t, n_classes);
  HALFTAPE_ARG(std::vector<int64_t>, cutoffs);
  HALFTAPE_ARG(double, div_value) = 4;
  HALFTAPE_ARG(bool, head_bias) = false;
};

/// A loss with backward() that converts to a double, as LibTorch's is one; the conversion waits for
/// the device.
class AdaptiveLoss : public Tensor {
 public:
  explicit AdaptiveLoss(Tensor loss) : Tensor(std::move(loss)) {}
  operator double() const { return item<double>(); }  // NOLINT: as LibTorch
};

/// The result of the adaptive softmax: ln p of each target, and the mean of −ln p.
struct ASMoutput {
  Tensor output;      // ln p of each target: (N), or () for one
  AdaptiveLoss loss;  // (): the mean of −ln p
};

/// ln p of `n_classes` classes. A linear layer decides the classes before the first cutoff; two
/// smaller layers for each further cluster decide the rest, for the samples in that cluster only.
/// x: (N, in) with targets (N), int64; or (in) with one target. Grave et al. 2016,
/// arXiv:1609.04309. Throws for cutoffs that do not increase or lie outside the classes, and for
/// targets outside them. forward() waits for the device, as the samples in each cluster must be
/// counted.
class AdaptiveLogSoftmaxWithLossImpl : public Cloneable<AdaptiveLogSoftmaxWithLossImpl> {
 public:
  AdaptiveLogSoftmaxWithLossImpl(int64_t in_features, int64_t n_classes,
                                 std::vector<int64_t> begins)
      : AdaptiveLogSoftmaxWithLossImpl(
            AdaptiveLogSoftmaxWithLossOptions(in_features, n_classes, std::move(begins))) {}
  explicit AdaptiveLogSoftmaxWithLossImpl(AdaptiveLogSoftmaxWithLossOptions o)
      : options(std::move(o)) {
    AdaptiveLogSoftmaxWithLossImpl::reset();
  }
  void reset() override;
  void reset_parameters();
  ASMoutput forward(const Tensor& x, const Tensor& target);
  /// ln p of every class: (N, n_classes).
  Tensor log_prob(const Tensor& x);
  /// The most probable class of each sample: log_prob(x).argmax(1), and faster for frequent ones.
  Tensor predict(const Tensor& x);
  void pretty_print(std::ostream& out) const override;

  AdaptiveLogSoftmaxWithLossOptions options;
  std::vector<int64_t> cutoffs;  // where each cluster ends: n_classes is the last
  /// Classes before the first cutoff; clusters behind it; the sum of both, which the head decides.
  int64_t shortlist_size = 0, n_clusters = 0, head_size = 0;
  Linear head{nullptr};  // the frequent classes, and one more for each cluster
  ModuleList tail{nullptr};

 private:
  Tensor cluster(size_t i, const Tensor& x);
  Tensor full_log_prob(const Tensor& x, const Tensor& head_output);
};
HALFTAPE_MODULE(AdaptiveLogSoftmaxWithLoss);

}  // namespace halftape::nn

namespace halftape {
/// A tensor of the number, as from LibTorch's double. A template, so that braced lists do not
/// match.
template <std::same_as<nn::AdaptiveLoss> Loss>
Tensor tensor(const Loss& loss, const TensorOptions& options = {}) {
  return tensor(static_cast<double>(loss), options);
}
}  // namespace halftape
