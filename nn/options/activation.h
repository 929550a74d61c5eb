// Options of activations, for functions (nn/functional/activation.h) and modules
// (nn/modules/activation.h). `inplace`: the result replaces the input, which must not be a leaf
// that requires grad.
#pragma once
#include <optional>
#include <string>

#include "halftape/core/dtype.h"
#include "halftape/core/options.h"

namespace halftape::nn {

class ReLUOptions {
 public:
  ReLUOptions(bool inplace = false) : inplace_(inplace) {}  // NOLINT: as LibTorch
  HALFTAPE_ARG(bool, inplace);
};
using ReLU6Options = ReLUOptions;
using SELUOptions = ReLUOptions;

class ELUOptions {
 public:
  HALFTAPE_ARG(double, alpha) = 1;
  HALFTAPE_ARG(bool, inplace) = false;
};
using CELUOptions = ELUOptions;

class LeakyReLUOptions {
 public:
  HALFTAPE_ARG(double, negative_slope) = 0.01;
  HALFTAPE_ARG(bool, inplace) = false;
};
class RReLUOptions {
 public:
  HALFTAPE_ARG(double, lower) = 1.0 / 8;
  HALFTAPE_ARG(double, upper) = 1.0 / 3;
  HALFTAPE_ARG(bool, inplace) = false;
};
class HardtanhOptions {
 public:
  HALFTAPE_ARG(double, min_val) = -1;
  HALFTAPE_ARG(double, max_val) = 1;
  HALFTAPE_ARG(bool, inplace) = false;
};
class ThresholdOptions {
 public:
  ThresholdOptions(double threshold, double value) : threshold_(threshold), value_(value) {}
  HALFTAPE_ARG(double, threshold);
  HALFTAPE_ARG(double, value);
  HALFTAPE_ARG(bool, inplace) = false;
};
class HardshrinkOptions {
 public:
  HardshrinkOptions(double lambda = 0.5) : lambda_(lambda) {}  // NOLINT: as LibTorch
  HALFTAPE_ARG(double, lambda);
};
using SoftshrinkOptions = HardshrinkOptions;

class SoftplusOptions {
 public:
  HALFTAPE_ARG(double, beta) = 1;
  HALFTAPE_ARG(double, threshold) = 20;  // from beta·x on, y = x
};
class GELUOptions {
 public:
  HALFTAPE_ARG(std::string, approximate) = "none";  // or "tanh"
};
class GLUOptions {
 public:
  GLUOptions(int64_t dim = -1) : dim_(dim) {}  // NOLINT: as LibTorch
  HALFTAPE_ARG(int64_t, dim);
};
class SoftmaxOptions {
 public:
  SoftmaxOptions(int64_t dim) : dim_(dim) {}  // NOLINT: as LibTorch
  HALFTAPE_ARG(int64_t, dim);
};
using LogSoftmaxOptions = SoftmaxOptions;
using SoftminOptions = SoftmaxOptions;

/// num_parameters: one slope for each channel (the second dimension), or 1 for all.
class PReLUOptions {
 public:
  HALFTAPE_ARG(int64_t, num_parameters) = 1;
  HALFTAPE_ARG(double, init) = 0.25;
};

namespace functional {

class RReLUFuncOptions {
 public:
  HALFTAPE_ARG(double, lower) = 1.0 / 8;
  HALFTAPE_ARG(double, upper) = 1.0 / 3;
  HALFTAPE_ARG(bool, training) = false;
  HALFTAPE_ARG(bool, inplace) = false;
};
/// `dtype`: the input is converted first.
class SoftmaxFuncOptions {
 public:
  SoftmaxFuncOptions(int64_t dim) : dim_(dim) {}  // NOLINT: as LibTorch
  HALFTAPE_ARG(int64_t, dim);
  HALFTAPE_ARG(std::optional<Dtype>, dtype) = {};
};
using LogSoftmaxFuncOptions = SoftmaxFuncOptions;
using SoftminFuncOptions = SoftmaxFuncOptions;
class GumbelSoftmaxFuncOptions {
 public:
  HALFTAPE_ARG(double, tau) = 1;
  HALFTAPE_ARG(bool, hard) = false;
  HALFTAPE_ARG(int64_t, dim) = -1;
};

}  // namespace functional

}  // namespace halftape::nn
