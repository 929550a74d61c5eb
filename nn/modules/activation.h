// Activations as modules: (…) → (…) in the dtype of x, unless said otherwise. Computed by
// autograd/ops/elementwise/unary.h, pointwise.h, binary.h and reduction/softmax.h; options are in
// nn/options/activation.h.
#pragma once
#include "halftape/nn/modules/common.h"
#include "halftape/nn/options/activation.h"

namespace halftape::nn {

HALFTAPE_UNARY_MODULE(Tanh, CloneableModule);
/// 1/(1 + e^−x).
HALFTAPE_UNARY_MODULE(Sigmoid, CloneableModule);
/// x·sigmoid(x).
HALFTAPE_UNARY_MODULE(SiLU, CloneableModule);
/// x·tanh(ln(1 + e^x)).
HALFTAPE_UNARY_MODULE(Mish, CloneableModule);
/// x/(1 + |x|).
HALFTAPE_UNARY_MODULE(Softsign, CloneableModule);
/// x − tanh(x).
HALFTAPE_UNARY_MODULE(Tanhshrink, CloneableModule);
/// ln(sigmoid(x)).
HALFTAPE_UNARY_MODULE(LogSigmoid, CloneableModule);
/// min(max(x + 3, 0), 6)/6.
HALFTAPE_UNARY_MODULE(Hardsigmoid, CloneableModule);
/// x·Hardsigmoid(x).
HALFTAPE_UNARY_MODULE(Hardswish, CloneableModule);
/// max(x, 0).
HALFTAPE_UNARY_MODULE(ReLU, detail::WithOptions<ReLUOptions>);
/// min(max(x, 0), 6).
HALFTAPE_UNARY_MODULE(ReLU6, detail::WithOptions<ReLU6Options>);
/// x, alpha·(e^x − 1) where x ≤ 0.
HALFTAPE_UNARY_MODULE(ELU, detail::WithOptions<ELUOptions>);
/// ELU scaled so that layers keep mean 0 and variance 1. Klambauer et al. 2017, arXiv:1706.02515.
HALFTAPE_UNARY_MODULE(SELU, detail::WithOptions<SELUOptions>);
/// x, alpha·(e^(x/alpha) − 1) where x ≤ 0.
HALFTAPE_UNARY_MODULE(CELU, detail::WithOptions<CELUOptions>);
/// x, negative_slope·x where x ≤ 0.
HALFTAPE_UNARY_MODULE(LeakyReLU, detail::WithOptions<LeakyReLUOptions>);
/// x, r·x where x ≤ 0: r is drawn from U(lower, upper) for each element in training, and their mean
/// in evaluation. Xu et al. 2015, arXiv:1505.00853.
HALFTAPE_UNARY_MODULE(RReLU, detail::WithOptions<RReLUOptions>);
/// x, 0 where |x| ≤ lambda.
HALFTAPE_UNARY_MODULE(Hardshrink, detail::WithOptions<HardshrinkOptions>);
/// x moved towards 0 by lambda, 0 where |x| ≤ lambda.
HALFTAPE_UNARY_MODULE(Softshrink, detail::WithOptions<SoftshrinkOptions>);
/// ln(1 + e^(beta·x))/beta.
HALFTAPE_UNARY_MODULE(Softplus, detail::WithOptions<SoftplusOptions>);
/// x·Φ(x). Hendrycks & Gimpel 2016, arXiv:1606.08415.
HALFTAPE_UNARY_MODULE(GELU, detail::WithOptions<GELUOptions>);
/// a·sigmoid(b) for the halves a and b of x along dim, whose size must be even.
HALFTAPE_UNARY_MODULE(GLU, detail::WithOptions<GLUOptions>);
/// e^x divided by its sum along dim.
HALFTAPE_UNARY_MODULE(Softmax, detail::WithOptions<SoftmaxOptions>);
/// ln(softmax(x)) along dim.
HALFTAPE_UNARY_MODULE(LogSoftmax, detail::WithOptions<LogSoftmaxOptions>);
/// softmax(−x) along dim.
HALFTAPE_UNARY_MODULE(Softmin, detail::WithOptions<SoftminOptions>);
/// Softmax over the channels at every pixel. x: (N, C, H, W) or (C, H, W).
HALFTAPE_UNARY_MODULE(Softmax2d, CloneableModule);

/// x between min_val and max_val, else the nearer of the two. Throws unless min_val < max_val.
class HardtanhImpl : public Cloneable<HardtanhImpl> {
 public:
  explicit HardtanhImpl(const HardtanhOptions& o = {});
  void reset() override;
  Tensor forward(const Tensor& x) const;
  void pretty_print(std::ostream& out) const override;
  HardtanhOptions options;
};
HALFTAPE_MODULE(Hardtanh);

/// x where x > threshold, else value.
class ThresholdImpl : public Cloneable<ThresholdImpl> {
 public:
  ThresholdImpl(double threshold, double value) : options(threshold, value) {}
  explicit ThresholdImpl(const ThresholdOptions& o) : options(o) {}
  Tensor forward(const Tensor& x) const;
  void pretty_print(std::ostream& out) const override;
  ThresholdOptions options;
};
HALFTAPE_MODULE(Threshold);

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
