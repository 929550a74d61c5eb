// Options of losses, for functions (nn/functional/loss.h) and modules (nn/modules/loss/loss.h).
#pragma once
#include <optional>

#include "halftape/autograd/ops/loss/ctc.h"
#include "halftape/autograd/ops/loss/margin_loss.h"
#include "halftape/core/options.h"

namespace halftape {
inline constexpr Reduction kNone = Reduction::None, kMean = Reduction::Mean, kSum = Reduction::Sum,
                           kBatchMean = Reduction::BatchMean;
}

namespace halftape::nn {

class CrossEntropyLossOptions {
 public:
  HALFTAPE_ARG(Tensor, weight) = {};
  HALFTAPE_ARG(Reduction, reduction) = kMean;
  HALFTAPE_ARG(int64_t, ignore_index) = -100;
  HALFTAPE_ARG(double, label_smoothing) = 0;
};
class NLLLossOptions {
 public:
  HALFTAPE_ARG(Tensor, weight) = {};
  HALFTAPE_ARG(Reduction, reduction) = kMean;
  HALFTAPE_ARG(int64_t, ignore_index) = -100;
};

class MSELossOptions {
 public:
  MSELossOptions(Reduction reduction = kMean) : reduction_(reduction) {}  // NOLINT: as LibTorch
  HALFTAPE_ARG(Reduction, reduction);
};
class L1LossOptions {
 public:
  L1LossOptions(Reduction reduction = kMean) : reduction_(reduction) {}  // NOLINT: as LibTorch
  HALFTAPE_ARG(Reduction, reduction);
};
class SmoothL1LossOptions {
 public:
  SmoothL1LossOptions(Reduction reduction = kMean) : reduction_(reduction) {}  // NOLINT: the same
  HALFTAPE_ARG(Reduction, reduction);
  HALFTAPE_ARG(std::optional<double>, beta) = {};  // 1
};
class HuberLossOptions {
 public:
  HuberLossOptions(Reduction reduction = kMean) : reduction_(reduction) {}  // NOLINT: the same
  HALFTAPE_ARG(Reduction, reduction);
  HALFTAPE_ARG(double, delta) = 1;
};
class KLDivLossOptions {
 public:
  KLDivLossOptions(Reduction reduction = kMean) : reduction_(reduction) {}  // NOLINT: the same
  HALFTAPE_ARG(Reduction, reduction);  // kBatchMean: the divergence itself, by sample
  HALFTAPE_ARG(bool, log_target) = false;
};
class PoissonNLLLossOptions {
 public:
  HALFTAPE_ARG(bool, log_input) = true;
  HALFTAPE_ARG(bool, full) = false;
  HALFTAPE_ARG(double, eps) = 1e-8;
  HALFTAPE_ARG(Reduction, reduction) = kMean;
};
class GaussianNLLLossOptions {
 public:
  HALFTAPE_ARG(bool, full) = false;
  HALFTAPE_ARG(double, eps) = 1e-6;
  HALFTAPE_ARG(Reduction, reduction) = kMean;
};
class BCELossOptions {
 public:
  HALFTAPE_ARG(Tensor, weight) = {};
  HALFTAPE_ARG(Reduction, reduction) = kMean;
};
class BCEWithLogitsLossOptions {
 public:
  HALFTAPE_ARG(Tensor, weight) = {};
  HALFTAPE_ARG(Tensor, pos_weight) = {};
  HALFTAPE_ARG(Reduction, reduction) = kMean;
};

class HingeEmbeddingLossOptions {
 public:
  HALFTAPE_ARG(double, margin) = 1;
  HALFTAPE_ARG(Reduction, reduction) = kMean;
};
class SoftMarginLossOptions {
 public:
  SoftMarginLossOptions(Reduction reduction = kMean) : reduction_(reduction) {}  // NOLINT: the same
  HALFTAPE_ARG(Reduction, reduction);
};
class MarginRankingLossOptions {
 public:
  HALFTAPE_ARG(double, margin) = 0;
  HALFTAPE_ARG(Reduction, reduction) = kMean;
};
class CosineEmbeddingLossOptions {
 public:
  HALFTAPE_ARG(double, margin) = 0;
  HALFTAPE_ARG(Reduction, reduction) = kMean;
};
class CTCLossOptions {
 public:
  HALFTAPE_ARG(int64_t, blank) = 0;
  HALFTAPE_ARG(Reduction, reduction) = kMean;
  HALFTAPE_ARG(bool, zero_infinity) = false;
};
class MultiMarginLossOptions {
 public:
  HALFTAPE_ARG(int64_t, p) = 1;  // or 2
  HALFTAPE_ARG(double, margin) = 1;
  HALFTAPE_ARG(Tensor, weight) = {};
  HALFTAPE_ARG(Reduction, reduction) = kMean;
};
class MultiLabelMarginLossOptions {
 public:
  MultiLabelMarginLossOptions(Reduction reduction = kMean)  // NOLINT: as LibTorch
      : reduction_(reduction) {}
  HALFTAPE_ARG(Reduction, reduction);
};
class MultiLabelSoftMarginLossOptions {
 public:
  HALFTAPE_ARG(Tensor, weight) = {};
  HALFTAPE_ARG(Reduction, reduction) = kMean;
};
class TripletMarginLossOptions {
 public:
  HALFTAPE_ARG(double, margin) = 1;
  HALFTAPE_ARG(double, p) = 2;
  HALFTAPE_ARG(double, eps) = 1e-6;
  HALFTAPE_ARG(bool, swap) = false;
  HALFTAPE_ARG(Reduction, reduction) = kMean;
};
class TripletMarginWithDistanceLossOptions {
 public:
  using reduction_t = Reduction;
  using distance_function_t = DistanceFunction;
  HALFTAPE_ARG(std::optional<distance_function_t>, distance_function) = {};  // pairwise_distance
  HALFTAPE_ARG(double, margin) = 1;
  HALFTAPE_ARG(bool, swap) = false;
  HALFTAPE_ARG(Reduction, reduction) = kMean;
};

}  // namespace halftape::nn
