// Frames around the last D dimensions, as modules; pad() in autograd/ops/layout/shape.h says how
// each mode fills them.
#pragma once
#include "halftape/nn/functional/pad.h"
#include "halftape/nn/modules/common.h"

namespace halftape::nn {

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
