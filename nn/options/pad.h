// Options of padding, for functions (nn/functional/pad.h) and modules (nn/modules/image/pad.h).
#pragma once
#include <utility>
#include <vector>

#include "halftape/autograd/ops/layout/shape.h"
#include "halftape/core/expanding_array.h"
#include "halftape/core/options.h"
#include "halftape/nn/options/ranked.h"

namespace halftape::nn {

/// `padding`: two numbers for each of the last D dimensions, from the last one on; or one for all.
template <size_t D>
class PadOptions {
 public:
  PadOptions(ExpandingArray<D * 2> padding) : padding_(padding) {}  // NOLINT: as LibTorch
  HALFTAPE_ARG(ExpandingArray<D * 2>, padding);
};
HALFTAPE_RANKED_OPTIONS(ReflectionPad, PadOptions);
HALFTAPE_RANKED_OPTIONS(ReplicationPad, PadOptions);
HALFTAPE_RANKED_OPTIONS(ZeroPad, PadOptions);
HALFTAPE_RANKED_OPTIONS(CircularPad, PadOptions);

template <size_t D>
class ConstantPadOptions {
 public:
  ConstantPadOptions(ExpandingArray<D * 2> padding, double value)
      : padding_(padding), value_(value) {}
  HALFTAPE_ARG(ExpandingArray<D * 2>, padding);
  HALFTAPE_ARG(double, value);
};
HALFTAPE_RANKED_OPTIONS(ConstantPad, ConstantPadOptions);

namespace functional {

/// `pad`: two numbers for each dimension, from the last one on.
class PadFuncOptions {
 public:
  PadFuncOptions(std::vector<int64_t> pad) : pad_(std::move(pad)) {}  // NOLINT: as LibTorch
  HALFTAPE_ARG(std::vector<int64_t>, pad);
  HALFTAPE_ARG(PadMode, mode) = kConstant;
  HALFTAPE_ARG(double, value) = 0;
};

}  // namespace functional
}  // namespace halftape::nn
