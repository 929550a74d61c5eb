// Activations as modules. What they compute stands in autograd/ops/elementwise/unary.h, softmax.h,
// pointwise.h and binary.h.
#pragma once
#include "halftape/nn/cloneable.h"
#include "halftape/nn/options/activation.h"

namespace halftape::nn {

class TanhImpl : public Cloneable<TanhImpl> {
 public:
  Tensor forward(const Tensor& x) const;
  void pretty_print(std::ostream& out) const override;
};
HALFTAPE_MODULE(Tanh);

class SigmoidImpl : public Cloneable<SigmoidImpl> {
 public:
  Tensor forward(const Tensor& x) const;
  void pretty_print(std::ostream& out) const override;
};
HALFTAPE_MODULE(Sigmoid);

class SiLUImpl : public Cloneable<SiLUImpl> {
 public:
  Tensor forward(const Tensor& x) const;
  void pretty_print(std::ostream& out) const override;
};
HALFTAPE_MODULE(SiLU);

class MishImpl : public Cloneable<MishImpl> {
 public:
  Tensor forward(const Tensor& x) const;
  void pretty_print(std::ostream& out) const override;
};
HALFTAPE_MODULE(Mish);

class SoftsignImpl : public Cloneable<SoftsignImpl> {
 public:
  Tensor forward(const Tensor& x) const;
  void pretty_print(std::ostream& out) const override;
};
HALFTAPE_MODULE(Softsign);

class TanhshrinkImpl : public Cloneable<TanhshrinkImpl> {
 public:
  Tensor forward(const Tensor& x) const;
  void pretty_print(std::ostream& out) const override;
};
HALFTAPE_MODULE(Tanhshrink);

class LogSigmoidImpl : public Cloneable<LogSigmoidImpl> {
 public:
  Tensor forward(const Tensor& x) const;
  void pretty_print(std::ostream& out) const override;
};
HALFTAPE_MODULE(LogSigmoid);

class HardsigmoidImpl : public Cloneable<HardsigmoidImpl> {
 public:
  Tensor forward(const Tensor& x) const;
  void pretty_print(std::ostream& out) const override;
};
HALFTAPE_MODULE(Hardsigmoid);

class HardswishImpl : public Cloneable<HardswishImpl> {
 public:
  Tensor forward(const Tensor& x) const;
  void pretty_print(std::ostream& out) const override;
};
HALFTAPE_MODULE(Hardswish);

class ReLUImpl : public Cloneable<ReLUImpl> {
 public:
  explicit ReLUImpl(const ReLUOptions& o = {}) : options(o) {}
  Tensor forward(const Tensor& x) const;
  void pretty_print(std::ostream& out) const override;
  ReLUOptions options;
};
HALFTAPE_MODULE(ReLU);

class ReLU6Impl : public Cloneable<ReLU6Impl> {
 public:
  explicit ReLU6Impl(const ReLU6Options& o = {}) : options(o) {}
  Tensor forward(const Tensor& x) const;
  void pretty_print(std::ostream& out) const override;
  ReLU6Options options;
};
HALFTAPE_MODULE(ReLU6);

class ELUImpl : public Cloneable<ELUImpl> {
 public:
  explicit ELUImpl(const ELUOptions& o = {}) : options(o) {}
  Tensor forward(const Tensor& x) const;
  void pretty_print(std::ostream& out) const override;
  ELUOptions options;
};
HALFTAPE_MODULE(ELU);

class SELUImpl : public Cloneable<SELUImpl> {
 public:
  explicit SELUImpl(const SELUOptions& o = {}) : options(o) {}
  Tensor forward(const Tensor& x) const;
  void pretty_print(std::ostream& out) const override;
  SELUOptions options;
};
HALFTAPE_MODULE(SELU);

class CELUImpl : public Cloneable<CELUImpl> {
 public:
  explicit CELUImpl(const CELUOptions& o = {}) : options(o) {}
  Tensor forward(const Tensor& x) const;
  void pretty_print(std::ostream& out) const override;
  CELUOptions options;
};
HALFTAPE_MODULE(CELU);

class LeakyReLUImpl : public Cloneable<LeakyReLUImpl> {
 public:
  explicit LeakyReLUImpl(const LeakyReLUOptions& o = {}) : options(o) {}
  Tensor forward(const Tensor& x) const;
  void pretty_print(std::ostream& out) const override;
  LeakyReLUOptions options;
};
HALFTAPE_MODULE(LeakyReLU);

class HardtanhImpl : public Cloneable<HardtanhImpl> {
 public:
  explicit HardtanhImpl(const HardtanhOptions& o = {});
  /// Throws unless min_val < max_val.
  void reset() override;
  Tensor forward(const Tensor& x) const;
  void pretty_print(std::ostream& out) const override;
  HardtanhOptions options;
};
HALFTAPE_MODULE(Hardtanh);

/// x, r·x where x ≤ 0: r is drawn from U(lower, upper) for each element in training, and their mean
/// in evaluation. Xu et al. 2015, arXiv:1505.00853.
class RReLUImpl : public Cloneable<RReLUImpl> {
 public:
  explicit RReLUImpl(const RReLUOptions& o = {}) : options(o) {}
  Tensor forward(const Tensor& x) const;
  void pretty_print(std::ostream& out) const override;
  RReLUOptions options;
};
HALFTAPE_MODULE(RReLU);

class ThresholdImpl : public Cloneable<ThresholdImpl> {
 public:
  ThresholdImpl(double threshold, double value) : options(threshold, value) {}
  explicit ThresholdImpl(const ThresholdOptions& o) : options(o) {}
  Tensor forward(const Tensor& x) const;
  void pretty_print(std::ostream& out) const override;
  ThresholdOptions options;
};
HALFTAPE_MODULE(Threshold);

class HardshrinkImpl : public Cloneable<HardshrinkImpl> {
 public:
  explicit HardshrinkImpl(const HardshrinkOptions& o = {}) : options(o) {}
  Tensor forward(const Tensor& x) const;
  void pretty_print(std::ostream& out) const override;
  HardshrinkOptions options;
};
HALFTAPE_MODULE(Hardshrink);

class SoftshrinkImpl : public Cloneable<SoftshrinkImpl> {
 public:
  explicit SoftshrinkImpl(const SoftshrinkOptions& o = {}) : options(o) {}
  Tensor forward(const Tensor& x) const;
  void pretty_print(std::ostream& out) const override;
  SoftshrinkOptions options;
};
HALFTAPE_MODULE(Softshrink);

class SoftplusImpl : public Cloneable<SoftplusImpl> {
 public:
  explicit SoftplusImpl(const SoftplusOptions& o = {}) : options(o) {}
  Tensor forward(const Tensor& x) const;
  void pretty_print(std::ostream& out) const override;
  SoftplusOptions options;
};
HALFTAPE_MODULE(Softplus);

class GELUImpl : public Cloneable<GELUImpl> {
 public:
  explicit GELUImpl(const GELUOptions& o = {}) : options(o) {}
  Tensor forward(const Tensor& x) const;
  void pretty_print(std::ostream& out) const override;
  GELUOptions options;
};
HALFTAPE_MODULE(GELU);

class GLUImpl : public Cloneable<GLUImpl> {
 public:
  explicit GLUImpl(const GLUOptions& o = {}) : options(o) {}
  Tensor forward(const Tensor& x) const;
  void pretty_print(std::ostream& out) const override;
  GLUOptions options;
};
HALFTAPE_MODULE(GLU);

class SoftmaxImpl : public Cloneable<SoftmaxImpl> {
 public:
  explicit SoftmaxImpl(const SoftmaxOptions& o) : options(o) {}
  Tensor forward(const Tensor& x) const;
  void pretty_print(std::ostream& out) const override;
  SoftmaxOptions options;
};
HALFTAPE_MODULE(Softmax);

class LogSoftmaxImpl : public Cloneable<LogSoftmaxImpl> {
 public:
  explicit LogSoftmaxImpl(const LogSoftmaxOptions& o) : options(o) {}
  Tensor forward(const Tensor& x) const;
  void pretty_print(std::ostream& out) const override;
  LogSoftmaxOptions options;
};
HALFTAPE_MODULE(LogSoftmax);

class SoftminImpl : public Cloneable<SoftminImpl> {
 public:
  explicit SoftminImpl(const SoftminOptions& o) : options(o) {}
  Tensor forward(const Tensor& x) const;
  void pretty_print(std::ostream& out) const override;
  SoftminOptions options;
};
HALFTAPE_MODULE(Softmin);

/// Softmax over the channels of every place. x: (N, C, H, W) or (C, H, W).
class Softmax2dImpl : public Cloneable<Softmax2dImpl> {
 public:
  Tensor forward(const Tensor& x) const;
  void pretty_print(std::ostream& out) const override;
};
HALFTAPE_MODULE(Softmax2d);

/// x, weight·x where x ≤ 0; the weight is learned. x: (N, num_parameters, …), or any shape for one.
/// He et al. 2015, arXiv:1502.01852.
class PReLUImpl : public Cloneable<PReLUImpl> {
 public:
  explicit PReLUImpl(const PReLUOptions& o = {});
  void reset() override;
  Tensor forward(const Tensor& x) const;
  void pretty_print(std::ostream& out) const override;
  PReLUOptions options;
  Tensor weight;  // (num_parameters)
};
HALFTAPE_MODULE(PReLU);

}  // namespace halftape::nn
