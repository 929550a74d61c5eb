// Options of the adaptive softmax.
#pragma once
#include <cstdint>
#include <utility>
#include <vector>

#include "halftape/core/options.h"

namespace halftape::nn {

/// `cutoffs`: where the clusters begin, increasing, from 1 to n_classes − 1. Cluster i has
/// in_features/div_valueⁱ features.
class AdaptiveLogSoftmaxWithLossOptions {
 public:
  AdaptiveLogSoftmaxWithLossOptions(int64_t in_features, int64_t n_classes,
                                    std::vector<int64_t> cutoffs)
      : in_features_(in_features), n_classes_(n_classes), cutoffs_(std::move(cutoffs)) {}
  HALFTAPE_ARG(int64_t, in_features);
  HALFTAPE_ARG(int64_t, n_classes);
  HALFTAPE_ARG(std::vector<int64_t>, cutoffs);
  HALFTAPE_ARG(double, div_value) = 4;
  HALFTAPE_ARG(bool, head_bias) = false;
};

}  // namespace halftape::nn
