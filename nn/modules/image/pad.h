// Frames around the last D dimensions, as modules. What they are filled with stands in
// autograd/ops/layout/shape.h, pad().
#pragma once
#include "halftape/nn/cloneable.h"
#include "halftape/nn/functional/pad.h"

namespace halftape::nn {

/// A frame that is made from the inside, or of zeros.
template <size_t D>
class PadModule : public CloneableModule {
 public:
  PadModule(const char* name, PadMode mode, const PadOptions<D>& o)
      : options(o), name_(name), mode_(mode) {}
  Tensor forward(const Tensor& x) const;
  void pretty_print(std::ostream& out) const override;
  PadOptions<D> options;

 private:
  const char* name_;
  PadMode mode_;
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

#define HALFTAPE_PAD_MODULE(Name, mode, D)                                  \
  class Name##D##dImpl : public Cloneable<Name##D##dImpl, PadModule<D>> {   \
   public:                                                                  \
    Name##D##dImpl(ExpandingArray<D * 2> padding) /* NOLINT: as LibTorch */ \
        : Name##D##dImpl(PadOptions<D>(padding)) {}                         \
    explicit Name##D##dImpl(const PadOptions<D>& o)                         \
        : Cloneable<Name##D##dImpl, PadModule<D>>(#Name, mode, o) {}        \
  };                                                                        \
  HALFTAPE_MODULE(Name##D##d)
HALFTAPE_PAD_MODULE(ReflectionPad, kReflect, 1);
HALFTAPE_PAD_MODULE(ReflectionPad, kReflect, 2);
HALFTAPE_PAD_MODULE(ReflectionPad, kReflect, 3);
HALFTAPE_PAD_MODULE(ReplicationPad, kReplicate, 1);
HALFTAPE_PAD_MODULE(ReplicationPad, kReplicate, 2);
HALFTAPE_PAD_MODULE(ReplicationPad, kReplicate, 3);
HALFTAPE_PAD_MODULE(CircularPad, kCircular, 1);
HALFTAPE_PAD_MODULE(CircularPad, kCircular, 2);
HALFTAPE_PAD_MODULE(CircularPad, kCircular, 3);
HALFTAPE_PAD_MODULE(ZeroPad, kConstant, 1);
HALFTAPE_PAD_MODULE(ZeroPad, kConstant, 2);
HALFTAPE_PAD_MODULE(ZeroPad, kConstant, 3);
#undef HALFTAPE_PAD_MODULE

class ConstantPad1dImpl : public Cloneable<ConstantPad1dImpl, ConstantPadImpl<1>> {
 public:
  using Cloneable::Cloneable;
};
class ConstantPad2dImpl : public Cloneable<ConstantPad2dImpl, ConstantPadImpl<2>> {
 public:
  using Cloneable::Cloneable;
};
class ConstantPad3dImpl : public Cloneable<ConstantPad3dImpl, ConstantPadImpl<3>> {
 public:
  using Cloneable::Cloneable;
};
HALFTAPE_MODULE(ConstantPad1d);
HALFTAPE_MODULE(ConstantPad2d);
HALFTAPE_MODULE(ConstantPad3d);

}  // namespace halftape::nn
