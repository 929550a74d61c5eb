// Activations as modules. What they compute stands in autograd/ops/unary.h, softmax.h, pointwise.h
// and binary.h.
#pragma once
#include "halftape/nn/module.h"
#include "halftape/nn/options/activation.h"

namespace halftape::nn {

class TanhImpl : public Module {
 public:
  Tensor forward(const Tensor& x) const;
  void pretty_print(std::ostream& out) const override;
};
HALFTAPE_MODULE(Tanh);

class SigmoidImpl : public Module {
 public:
  Tensor forward(const Tensor& x) const;
  void pretty_print(std::ostream& out) const override;
};
HALFTAPE_MODULE(Sigmoid);

class SiLUImpl : public Module {
 public:
  Tensor forward(const Tensor& x) const;
  void pretty_print(std::ostream& out) const override;
};
HALFTAPE_MODULE(SiLU);

class MishImpl : public Module {
 public:
  Tensor forward(const Tensor& x) const;
  void pretty_print(std::ostream& out) const override;
};
HALFTAPE_MODULE(Mish);

class SoftsignImpl : public Module {
 public:
  Tensor forward(const Tensor& x) const;
  void pretty_print(std::ostream& out) const override;
};
HALFTAPE_MODULE(Softsign);

class TanhshrinkImpl : public Module {
 public:
  Tensor forward(const Tensor& x) const;
  void pretty_print(std::ostream& out) const override;
};
HALFTAPE_MODULE(Tanhshrink);

class LogSigmoidImpl : public Module {
 public:
  Tensor forward(const Tensor& x) const;
  void pretty_print(std::ostream& out) const override;
};
HALFTAPE_MODULE(LogSigmoid);

class HardsigmoidImpl : public Module {
 public:
  Tensor forward(const Tensor& x) const;
  void pretty_print(std::ostream& out) const override;
};
HALFTAPE_MODULE(Hardsigmoid);

class HardswishImpl : public Module {
 public:
  Tensor forward(const Tensor& x) const;
  void pretty_print(std::ostream& out) const override;
};
HALFTAPE_MODULE(Hardswish);

class ReLUImpl : public Module {
 public:
  explicit ReLUImpl(const ReLUOptions& o = {}) : options(o) {}
  Tensor forward(const Tensor& x) const;
  void pretty_print(std::ostream& out) const override;
  ReLUOptions options;
};
HALFTAPE_MODULE(ReLU);

class ReLU6Impl : public Module {
 public:
  explicit ReLU6Impl(const ReLU6Options& o = {}) : options(o) {}
  Tensor forward(const Tensor& x) const;
  void pretty_print(std::ostream& out) const override;
  ReLU6Options options;
};
HALFTAPE_MODULE(ReLU6);

class ELUImpl : public Module {
 public:
  explicit ELUImpl(const ELUOptions& o = {}) : options(o) {}
  Tensor forward(const Tensor& x) const;
  void pretty_print(std::ostream& out) const override;
  ELUOptions options;
};
HALFTAPE_MODULE(ELU);

class SELUImpl : public Module {
 public:
  explicit SELUImpl(const SELUOptions& o = {}) : options(o) {}
  Tensor forward(const Tensor& x) const;
  void pretty_print(std::ostream& out) const override;
  SELUOptions options;
};
HALFTAPE_MODULE(SELU);

class CELUImpl : public Module {
 public:
  explicit CELUImpl(const CELUOptions& o = {}) : options(o) {}
  Tensor forward(const Tensor& x) const;
  void pretty_print(std::ostream& out) const override;
  CELUOptions options;
};
HALFTAPE_MODULE(CELU);

class LeakyReLUImpl : public Module {
 public:
  explicit LeakyReLUImpl(const LeakyReLUOptions& o = {}) : options(o) {}
  Tensor forward(const Tensor& x) const;
  void pretty_print(std::ostream& out) const override;
  LeakyReLUOptions options;
};
HALFTAPE_MODULE(LeakyReLU);

class HardtanhImpl : public Module {
 public:
  explicit HardtanhImpl(const HardtanhOptions& o = {}) : options(o) {}
  Tensor forward(const Tensor& x) const;
  void pretty_print(std::ostream& out) const override;
  HardtanhOptions options;
};
HALFTAPE_MODULE(Hardtanh);

class ThresholdImpl : public Module {
 public:
  ThresholdImpl(double threshold, double value) : options(threshold, value) {}
  explicit ThresholdImpl(const ThresholdOptions& o) : options(o) {}
  Tensor forward(const Tensor& x) const;
  void pretty_print(std::ostream& out) const override;
  ThresholdOptions options;
};
HALFTAPE_MODULE(Threshold);

class HardshrinkImpl : public Module {
 public:
  explicit HardshrinkImpl(const HardshrinkOptions& o = {}) : options(o) {}
  Tensor forward(const Tensor& x) const;
  void pretty_print(std::ostream& out) const override;
  HardshrinkOptions options;
};
HALFTAPE_MODULE(Hardshrink);

class SoftshrinkImpl : public Module {
 public:
  explicit SoftshrinkImpl(const SoftshrinkOptions& o = {}) : options(o) {}
  Tensor forward(const Tensor& x) const;
  void pretty_print(std::ostream& out) const override;
  SoftshrinkOptions options;
};
HALFTAPE_MODULE(Softshrink);

class SoftplusImpl : public Module {
 public:
  explicit SoftplusImpl(const SoftplusOptions& o = {}) : options(o) {}
  Tensor forward(const Tensor& x) const;
  void pretty_print(std::ostream& out) const override;
  SoftplusOptions options;
};
HALFTAPE_MODULE(Softplus);

class GELUImpl : public Module {
 public:
  explicit GELUImpl(const GELUOptions& o = {}) : options(o) {}
  Tensor forward(const Tensor& x) const;
  void pretty_print(std::ostream& out) const override;
  GELUOptions options;
};
HALFTAPE_MODULE(GELU);

class GLUImpl : public Module {
 public:
  explicit GLUImpl(const GLUOptions& o = {}) : options(o) {}
  Tensor forward(const Tensor& x) const;
  void pretty_print(std::ostream& out) const override;
  GLUOptions options;
};
HALFTAPE_MODULE(GLU);

class SoftmaxImpl : public Module {
 public:
  explicit SoftmaxImpl(const SoftmaxOptions& o) : options(o) {}
  Tensor forward(const Tensor& x) const;
  void pretty_print(std::ostream& out) const override;
  SoftmaxOptions options;
};
HALFTAPE_MODULE(Softmax);

class LogSoftmaxImpl : public Module {
 public:
  explicit LogSoftmaxImpl(const LogSoftmaxOptions& o) : options(o) {}
  Tensor forward(const Tensor& x) const;
  void pretty_print(std::ostream& out) const override;
  LogSoftmaxOptions options;
};
HALFTAPE_MODULE(LogSoftmax);

class SoftminImpl : public Module {
 public:
  explicit SoftminImpl(const SoftminOptions& o) : options(o) {}
  Tensor forward(const Tensor& x) const;
  void pretty_print(std::ostream& out) const override;
  SoftminOptions options;
};
HALFTAPE_MODULE(Softmin);

/// x, weight·x where x ≤ 0; the weight is learned. x: (N, num_parameters, …), or any shape for one.
/// He et al. 2015, arXiv:1502.01852.
class PReLUImpl : public Module {
 public:
  explicit PReLUImpl(const PReLUOptions& o = {});
  Tensor forward(const Tensor& x) const;
  void pretty_print(std::ostream& out) const override;
  PReLUOptions options;
  Tensor weight;  // (num_parameters)
};
HALFTAPE_MODULE(PReLU);

}  // namespace halftape::nn
