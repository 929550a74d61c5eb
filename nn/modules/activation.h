// Activations as modules. What they compute stands in autograd/ops/unary.h and softmax.h.
#pragma once
#include "halftape/core/options.h"
#include "halftape/nn/module.h"

namespace halftape::nn {

class ReLUImpl : public Module {
 public:
  Tensor forward(const Tensor& x) const;
  void pretty_print(std::ostream& out) const override;
};
HALFTAPE_MODULE(ReLU);

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

class GELUOptions {
 public:
  HALFTAPE_ARG(std::string, approximate) = "none";  // or "tanh"
};

class GELUImpl : public Module {
 public:
  explicit GELUImpl(GELUOptions o = {}) : options(std::move(o)) {}
  Tensor forward(const Tensor& x) const;
  void pretty_print(std::ostream& out) const override;
  GELUOptions options;
};
HALFTAPE_MODULE(GELU);

class SoftmaxOptions {
 public:
  SoftmaxOptions(int64_t dim) : dim_(dim) {}  // NOLINT: as LibTorch
  HALFTAPE_ARG(int64_t, dim);
};

class SoftmaxImpl : public Module {
 public:
  explicit SoftmaxImpl(const SoftmaxOptions& o) : options(o) {}
  Tensor forward(const Tensor& x) const;
  void pretty_print(std::ostream& out) const override;
  SoftmaxOptions options;
};
HALFTAPE_MODULE(Softmax);

using LogSoftmaxOptions = SoftmaxOptions;
class LogSoftmaxImpl : public Module {
 public:
  explicit LogSoftmaxImpl(const LogSoftmaxOptions& o) : options(o) {}
  Tensor forward(const Tensor& x) const;
  void pretty_print(std::ostream& out) const override;
  LogSoftmaxOptions options;
};
HALFTAPE_MODULE(LogSoftmax);

}  // namespace halftape::nn
