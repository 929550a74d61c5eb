// Options of normalisation, for functions (nn/functional/norm.h) and modules (nn/modules/norm.h).
#pragma once
#include <optional>
#include <utility>

#include "halftape/autograd/tensor.h"
#include "halftape/core/options.h"

namespace halftape::nn {

class LayerNormOptions {
 public:
  LayerNormOptions(Shape normalized_shape)  // NOLINT: as LibTorch
      : normalized_shape_(std::move(normalized_shape)) {}
  LayerNormOptions(std::initializer_list<int64_t> sizes) : normalized_shape_(sizes) {}  // NOLINT
  HALFTAPE_ARG(Shape, normalized_shape);
  HALFTAPE_ARG(double, eps) = 1e-5;
  HALFTAPE_ARG(bool, elementwise_affine) = true;
  HALFTAPE_ARG(bool, bias) = true;
};

class RMSNormOptions {
 public:
  RMSNormOptions(Shape normalized_shape)  // NOLINT: as LibTorch's LayerNormOptions
      : normalized_shape_(std::move(normalized_shape)) {}
  RMSNormOptions(std::initializer_list<int64_t> sizes) : normalized_shape_(sizes) {}  // NOLINT
  HALFTAPE_ARG(Shape, normalized_shape);
  HALFTAPE_ARG(std::optional<double>, eps) = std::nullopt;  // epsilon of float32 (float64)
  HALFTAPE_ARG(bool, elementwise_affine) = true;
};

class BatchNormOptions {
 public:
  BatchNormOptions(int64_t num_features) : num_features_(num_features) {}  // NOLINT: as LibTorch
  HALFTAPE_ARG(int64_t, num_features);
  HALFTAPE_ARG(double, eps) = 1e-5;
  /// Weight of the newest batch in the running statistics; none: the average over all batches.
  HALFTAPE_ARG(std::optional<double>, momentum) = 0.1;
  HALFTAPE_ARG(bool, affine) = true;
  HALFTAPE_ARG(bool, track_running_stats) = true;
  /// A batch with a non-finite value neither changes the running statistics nor counts.
  HALFTAPE_ARG(bool, skip_nonfinite) = true;
};
using BatchNorm1dOptions = BatchNormOptions;
using BatchNorm2dOptions = BatchNormOptions;
using BatchNorm3dOptions = BatchNormOptions;

class InstanceNormOptions {
 public:
  InstanceNormOptions(int64_t num_features)  // NOLINT: as LibTorch
      : num_features_(num_features) {}
  HALFTAPE_ARG(int64_t, num_features);
  HALFTAPE_ARG(double, eps) = 1e-5;
  HALFTAPE_ARG(double, momentum) = 0.1;
  HALFTAPE_ARG(bool, affine) = false;
  HALFTAPE_ARG(bool, track_running_stats) = false;
  HALFTAPE_ARG(bool, skip_nonfinite) = true;
};
using InstanceNorm1dOptions = InstanceNormOptions;
using InstanceNorm2dOptions = InstanceNormOptions;
using InstanceNorm3dOptions = InstanceNormOptions;

class GroupNormOptions {
 public:
  GroupNormOptions(int64_t num_groups, int64_t num_channels)
      : num_groups_(num_groups), num_channels_(num_channels) {}
  HALFTAPE_ARG(int64_t, num_groups);
  HALFTAPE_ARG(int64_t, num_channels);
  HALFTAPE_ARG(double, eps) = 1e-5;
  HALFTAPE_ARG(bool, affine) = true;
};

class LocalResponseNormOptions {
 public:
  LocalResponseNormOptions(int64_t size) : size_(size) {}  // NOLINT: as LibTorch
  HALFTAPE_ARG(int64_t, size);
  HALFTAPE_ARG(double, alpha) = 1e-4;
  HALFTAPE_ARG(double, beta) = 0.75;
  HALFTAPE_ARG(double, k) = 1;
};

using CrossMapLRN2dOptions = LocalResponseNormOptions;

}  // namespace halftape::nn

namespace halftape::nn::functional {

class LayerNormFuncOptions {
 public:
  LayerNormFuncOptions(Shape normalized_shape)  // NOLINT: as LibTorch
      : normalized_shape_(std::move(normalized_shape)) {}
  HALFTAPE_ARG(Shape, normalized_shape);
  HALFTAPE_ARG(Tensor, weight) = {};
  HALFTAPE_ARG(Tensor, bias) = {};
  HALFTAPE_ARG(double, eps) = 1e-5;
};

class RMSNormFuncOptions {
 public:
  RMSNormFuncOptions(Shape normalized_shape)  // NOLINT: as the others
      : normalized_shape_(std::move(normalized_shape)) {}
  HALFTAPE_ARG(Shape, normalized_shape);
  HALFTAPE_ARG(Tensor, weight) = {};
  HALFTAPE_ARG(std::optional<double>, eps) = std::nullopt;
};

class BatchNormFuncOptions {
 public:
  HALFTAPE_ARG(Tensor, weight) = {};
  HALFTAPE_ARG(Tensor, bias) = {};
  HALFTAPE_ARG(bool, training) = false;
  HALFTAPE_ARG(double, momentum) = 0.1;
  HALFTAPE_ARG(double, eps) = 1e-5;
  HALFTAPE_ARG(bool, skip_nonfinite) = true;
};

class InstanceNormFuncOptions {
 public:
  HALFTAPE_ARG(Tensor, running_mean) = {};
  HALFTAPE_ARG(Tensor, running_var) = {};
  HALFTAPE_ARG(Tensor, weight) = {};
  HALFTAPE_ARG(Tensor, bias) = {};
  HALFTAPE_ARG(bool, use_input_stats) = true;
  HALFTAPE_ARG(double, momentum) = 0.1;
  HALFTAPE_ARG(double, eps) = 1e-5;
  HALFTAPE_ARG(bool, skip_nonfinite) = true;
};

class GroupNormFuncOptions {
 public:
  GroupNormFuncOptions(int64_t num_groups) : num_groups_(num_groups) {}  // NOLINT: as LibTorch
  HALFTAPE_ARG(int64_t, num_groups);
  HALFTAPE_ARG(Tensor, weight) = {};
  HALFTAPE_ARG(Tensor, bias) = {};
  HALFTAPE_ARG(double, eps) = 1e-5;
};

class NormalizeFuncOptions {
 public:
  HALFTAPE_ARG(double, p) = 2;
  HALFTAPE_ARG(int64_t, dim) = 1;
  HALFTAPE_ARG(double, eps) = 1e-12;
  /// Receives the result and is returned: same shape, no history.
  HALFTAPE_ARG(std::optional<Tensor>, out) = {};
};

using LocalResponseNormFuncOptions = LocalResponseNormOptions;

}  // namespace halftape::nn::functional
