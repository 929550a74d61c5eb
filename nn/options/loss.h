// Options of losses, for functions (nn/functional/loss.h) and modules (nn/modules/loss.h).
#pragma once
#include "halftape/autograd/ops/loss.h"
#include "halftape/core/options.h"

namespace halftape {
inline constexpr Reduction kNone = Reduction::None, kMean = Reduction::Mean, kSum = Reduction::Sum;
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

}  // namespace halftape::nn
