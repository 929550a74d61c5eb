// Options of padding, for functions (nn/functional/pad.h) and modules (nn/modules/image/pad.h).
#pragma once
#include <utility>
#include <vector>

#include "halftape/autograd/ops/layout/shape.h"
#include "halftape/core/expanding_array.h"
#include "halftape/core/options.h"

namespace halftape::nn {

/// `padding`: two numbers for each of the last D dimensions, from the last one on, or one for all.
template <size_t D>
class PadOptions {
 public:
  PadOptions(ExpandingArray<D * 2> padding) : padding_(padding) {}  // NOLINT: as LibTorch
  HALFTAPE_ARG(ExpandingArray<D * 2>, padding);
};
using ReflectionPad1dOptions = PadOptions<1>;
using ReflectionPad2dOptions = PadOptions<2>;
using ReflectionPad3dOptions = PadOptions<3>;
using ReplicationPad1dOptions = PadOptions<1>;
using ReplicationPad2dOptions = PadOptions<2>;
using ReplicationPad3dOptions = PadOptions<3>;
using ZeroPad1dOptions = PadOptions<1>;
using ZeroPad2dOptions = PadOptions<2>;
using ZeroPad3dOptions = PadOptions<3>;
using CircularPad1dOptions = PadOptions<1>;
using CircularPad2dOptions = PadOptions<2>;
using CircularPad3dOptions = PadOptions<3>;

template <size_t D>
class ConstantPadOptions {
 public:
  ConstantPadOptions(ExpandingArray<D * 2> padding, double value)
      : padding_(padding), value_(value) {}
  HALFTAPE_ARG(ExpandingArray<D * 2>, padding);
  HALFTAPE_ARG(double, value);
};
using ConstantPad1dOptions = ConstantPadOptions<1>;
using ConstantPad2dOptions = ConstantPadOptions<2>;
using ConstantPad3dOptions = ConstantPadOptions<3>;

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
