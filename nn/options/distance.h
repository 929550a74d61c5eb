// Options of distances between vectors, for functions (nn/functional/distance.h) and modules.
#pragma once
#include <cstdint>

#include "halftape/core/options.h"

namespace halftape::nn {

class CosineSimilarityOptions {
 public:
  HALFTAPE_ARG(int64_t, dim) = 1;
  HALFTAPE_ARG(double, eps) = 1e-8;
};
class PairwiseDistanceOptions {
 public:
  HALFTAPE_ARG(double, p) = 2;
  HALFTAPE_ARG(double, eps) = 1e-6;
  HALFTAPE_ARG(bool, keepdim) = false;
};

}  // namespace halftape::nn
