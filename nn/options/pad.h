// Options of pad().
#pragma once
#include <utility>
#include <vector>

#include "halftape/autograd/ops/shape.h"
#include "halftape/core/options.h"

namespace halftape::nn::functional {

/// `pad`: two numbers for each dimension, from the last one on.
class PadFuncOptions {
 public:
  PadFuncOptions(std::vector<int64_t> pad) : pad_(std::move(pad)) {}  // NOLINT: as LibTorch
  HALFTAPE_ARG(std::vector<int64_t>, pad);
  HALFTAPE_ARG(PadMode, mode) = kConstant;
  HALFTAPE_ARG(double, value) = 0;
};

}  // namespace halftape::nn::functional
