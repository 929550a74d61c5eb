// Frames around the last D dimensions: options, function and modules. pad() in
// autograd/ops/layout/shape.h says how each mode fills them.
#pragma once
#include <utility>
#include <vector>

#include "halftape/autograd/ops/layout/shape.h"
#include "halftape/core/expanding_array.h"
#include "halftape/core/options.h"
#include "halftape/nn/modules/common.h"

namespace halftape::nn {

/// `padding`: two numbers for each of the last D dimensions, from the last one on; or one for all.
template <size_t D>
struct PadOptions {
  PadOptions(ExpandingArray<D * 2> padding) : padding_(padding) {}  // NOLINT: as LibTorch
  HALFTAPE_ARG(ExpandingArray<D * 2>, padding);
};
HALFTAPE_RANKED_OPTIONS(ReflectionPad, PadOptions);
HALFTAPE_RANKED_OPTIONS(ReplicationPad, PadOptions);
HALFTAPE_RANKED_OPTIONS(ZeroPad, PadOptions);
HALFTAPE_RANKED_OPTIONS(CircularPad, PadOptions);

template <size_t D>
struct ConstantPadOptions {
  ConstantPadOptions(ExpandingArray<D * 2> padding, double value)
      : padding_(padding), value_(value) {}
  HALFTAPE_ARG(ExpandingArray<D * 2>, padding);
  HALFTAPE_ARG(double, value);
};
HALFTAPE_RANKED_OPTIONS(ConstantPad, ConstantPadOptions);

namespace functional {

/// `pad`: two numbers for each dimension, from the last one on.
struct PadFuncOptions {
  PadFuncOptions(std::vector<int64_t> pad) : pad_(std::move(pad)) {}  // NOLINT: as LibTorch
  HALFTAPE_ARG(std::vector<int64_t>, pad);
  HALFTAPE_ARG(PadMode, mode) = kConstant;
  HALFTAPE_ARG(double, value) = 0;
};

/// A frame around x: `pad` has two numbers a dimension, from the last one on; a negative one cuts
/// off. kReflect, kReplicate and kCircular fill it from x, kConstant with `value`.
inline Tensor pad(const Tensor& x, const PadFuncOptions& o) {
  return halftape::pad(x, o.pad(), o.mode(), o.value());
}

}  // namespace functional

/// A frame of values from the inside (kReflect, kReplicate, kCircular), or of zeros (kConstant).
template <size_t D, PadMode mode>
class PadModule : public CloneableModule {
 public:
  PadModule(ExpandingArray<D * 2> padding) : PadModule(PadOptions<D>(padding)) {}  // NOLINT
  explicit PadModule(const PadOptions<D>& o) : options(o) {}
  Tensor forward(const Tensor& x) const;
  void pretty_print(std::ostream& out) const override;
  PadOptions<D> options;
};

/// A frame of one number.
template <size_t D>
class ConstantPadImpl : public CloneableModule {
 public:
  ConstantPadImpl(ExpandingArray<D * 2> padding, double value)
      : ConstantPadImpl(ConstantPadOptions<D>(padding, value)) {}
  explicit ConstantPadImpl(const ConstantPadOptions<D>& o) : options(o) {}
  Tensor forward(const Tensor& x) const;
  void pretty_print(std::ostream& out) const override;
  ConstantPadOptions<D> options;
};

template <size_t D>
using ReflectionPadImpl = PadModule<D, kReflect>;
template <size_t D>
using ReplicationPadImpl = PadModule<D, kReplicate>;
template <size_t D>
using CircularPadImpl = PadModule<D, kCircular>;
template <size_t D>
using ZeroPadImpl = PadModule<D, kConstant>;
HALFTAPE_RANKED_MODULE(ReflectionPad);
HALFTAPE_RANKED_MODULE(ReplicationPad);
HALFTAPE_RANKED_MODULE(CircularPad);
HALFTAPE_RANKED_MODULE(ZeroPad);
HALFTAPE_RANKED_MODULE(ConstantPad);

}  // namespace halftape::nn
