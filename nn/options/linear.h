// Options of linear layers, Flatten and Unflatten (nn/modules/linear.h).
#pragma once
#include <utility>
#include <vector>

#include "halftape/core/options.h"

namespace halftape::nn {

class LinearOptions {
 public:
  LinearOptions(int64_t in_features, int64_t out_features)
      : in_features_(in_features), out_features_(out_features) {}
  HALFTAPE_ARG(int64_t, in_features);
  HALFTAPE_ARG(int64_t, out_features);
  HALFTAPE_ARG(bool, bias) = true;
};
class BilinearOptions {
 public:
  BilinearOptions(int64_t in1_features, int64_t in2_features, int64_t out_features)
      : in1_features_(in1_features), in2_features_(in2_features), out_features_(out_features) {}
  HALFTAPE_ARG(int64_t, in1_features);
  HALFTAPE_ARG(int64_t, in2_features);
  HALFTAPE_ARG(int64_t, out_features);
  HALFTAPE_ARG(bool, bias) = true;
};
class FlattenOptions {
 public:
  HALFTAPE_ARG(int64_t, start_dim) = 1;
  HALFTAPE_ARG(int64_t, end_dim) = -1;
};
class UnflattenOptions {
 public:
  UnflattenOptions(int64_t dim, std::vector<int64_t> sizes) : dim_(dim), sizes_(std::move(sizes)) {}
  HALFTAPE_ARG(int64_t, dim);
  HALFTAPE_ARG(std::vector<int64_t>, sizes);
};

}  // namespace halftape::nn
