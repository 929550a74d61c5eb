// Activations: options, functions and modules; (…) → (…) in the dtype of x, unless said otherwise.
// Computed by autograd/ops/elementwise/unary.h, pointwise.h, binary.h and reduction/softmax.h.
// `inplace`: the result replaces the input; throws for a leaf that requires grad.
#pragma once
#include <optional>
#include <string>

#include "halftape/autograd/ops/creation/random.h"
#include "halftape/autograd/ops/elementwise/binary.h"
#include "halftape/autograd/ops/elementwise/pointwise.h"
#include "halftape/autograd/ops/elementwise/unary.h"
#include "halftape/autograd/ops/reduction/softmax.h"
#include "halftape/core/dtype.h"
#include "halftape/core/options.h"
#include "halftape/nn/modules/common.h"

namespace halftape::nn {

struct ReLUOptions {
  ReLUOptions(bool inplace = false) : inplace_(inplace) {}  // NOLINT: as LibTorch
  HALFTAPE_ARG(bool, inplace);
};
using ReLU6Options = ReLUOptions;
using SELUOptions = ReLUOptions;

struct ELUOptions {
  HALFTAPE_ARG(double, alpha) = 1;
  HALFTAPE_ARG(bool, inplace) = false;
};
using CELUOptions = ELUOptions;

struct LeakyReLUOptions {
  HALFTAPE_ARG(double, negative_slope) = 0.01;
  HALFTAPE_ARG(bool, inplace) = false;
};
struct RReLUOptions {
  HALFTAPE_ARG(double, lower) = 1.0 / 8;
  HALFTAPE_ARG(double, upper) = 1.0 / 3;
  HALFTAPE_ARG(bool, inplace) = false;
};
struct HardtanhOptions {
  HALFTAPE_ARG(double, min_val) = -1;
  HALFTAPE_ARG(double, max_val) = 1;
  HALFTAPE_ARG(bool, inplace) = false;
};
struct ThresholdOptions {
  ThresholdOptions(double threshold, double value) : threshold_(threshold), value_(value) {}
  HALFTAPE_ARG(double, threshold);
  HALFTAPE_ARG(double, value);
  HALFTAPE_ARG(bool, inplace) = false;
};
struct HardshrinkOptions {
  HardshrinkOptions(double lambda = 0.5) : lambda_(lambda) {}  // NOLINT: as LibTorch
  HALFTAPE_ARG(double, lambda);
};
using SoftshrinkOptions = HardshrinkOptions;

struct SoftplusOptions {
  HALFTAPE_ARG(double, beta) = 1;
  HALFTAPE_ARG(double, threshold) = 20;  // from beta·x on, y = x
};
struct GELUOptions {
  HALFTAPE_ARG(std::string, approximate) = "none";  // or "tanh"
};
struct GLUOptions {
  GLUOptions(int64_t dim = -1) : dim_(dim) {}  // NOLINT: as LibTorch
  HALFTAPE_ARG(int64_t, dim);
};
struct SoftmaxOptions {
  SoftmaxOptions(int64_t dim) : dim_(dim) {}  // NOLINT: as LibTorch
  HALFTAPE_ARG(int64_t, dim);
};
using LogSoftmaxOptions = SoftmaxOptions;
using SoftminOptions = SoftmaxOptions;

/// num_parameters: one slope for each channel (the second dimension), or 1 for all.
struct PReLUOptions {
  HALFTAPE_ARG(int64_t, num_parameters) = 1;
  HALFTAPE_ARG(double, init) = 0.25;
};

namespace functional {

struct RReLUFuncOptions {
  HALFTAPE_ARG(double, lower) = 1.0 / 8;
  HALFTAPE_ARG(double, upper) = 1.0 / 3;
  HALFTAPE_ARG(bool, training) = false;
  HALFTAPE_ARG(bool, inplace) = false;
};
/// `dtype`: the input is converted first.
struct SoftmaxFuncOptions {
  SoftmaxFuncOptions(int64_t dim) : dim_(dim) {}  // NOLINT: as LibTorch
  HALFTAPE_ARG(int64_t, dim);
  HALFTAPE_ARG(std::optional<Dtype>, dtype) = {};
};
using LogSoftmaxFuncOptions = SoftmaxFuncOptions;
using SoftminFuncOptions = SoftmaxFuncOptions;
struct GumbelSoftmaxFuncOptions {
  HALFTAPE_ARG(double, tau) = 1;
  HALFTAPE_ARG(bool, hard) = false;
  HALFTAPE_ARG(int64_t, dim) = -1;
};

using halftape::gelu;
using halftape::hardsigmoid;
using halftape::hardswish;
using halftape::log_softmax;
using halftape::mish;
using halftape::prelu;
using halftape::relu;
using halftape::sigmoid;
using halftape::silu;
using halftape::softmax;
using halftape::softmin;
using halftape::softplus;
using halftape::softsign;
using halftape::tanh;
using halftape::tanhshrink;

using ReLUFuncOptions = ReLUOptions;
using ReLU6FuncOptions = ReLU6Options;
using ELUFuncOptions = ELUOptions;
using SELUFuncOptions = SELUOptions;
using CELUFuncOptions = CELUOptions;
using LeakyReLUFuncOptions = LeakyReLUOptions;
using HardtanhFuncOptions = HardtanhOptions;
using ThresholdFuncOptions = ThresholdOptions;
using HardshrinkFuncOptions = HardshrinkOptions;
using SoftshrinkFuncOptions = SoftshrinkOptions;
using SoftplusFuncOptions = SoftplusOptions;
using GELUFuncOptions = GELUOptions;
using GLUFuncOptions = GLUOptions;

// x by value where `inplace` may write to its tensor.
inline Tensor relu(Tensor x, const ReLUFuncOptions& o) {
  return o.inplace() ? relu_(x) : halftape::relu(x);
}
inline Tensor relu6(Tensor x, const ReLU6FuncOptions& o = {}) {
  return o.inplace() ? relu6_(x) : halftape::relu6(x);
}
inline Tensor elu(Tensor x, const ELUFuncOptions& o = {}) {
  return o.inplace() ? elu_(x, o.alpha()) : halftape::elu(x, o.alpha());
}
inline Tensor selu(Tensor x, const SELUFuncOptions& o = {}) {
  return o.inplace() ? selu_(x) : halftape::selu(x);
}
inline Tensor celu(Tensor x, const CELUFuncOptions& o = {}) {
  return o.inplace() ? celu_(x, o.alpha()) : halftape::celu(x, o.alpha());
}
/// The op of this name with these options; with `inplace`, into x.
inline Tensor leaky_relu(Tensor x, const LeakyReLUFuncOptions& o = {}) {
  const double slope = o.negative_slope();
  return o.inplace() ? leaky_relu_(x, slope) : halftape::leaky_relu(x, slope);
}
/// Draws a slope for each element where the options say training, else takes their mean.
inline Tensor rrelu(Tensor x, const RReLUFuncOptions& o = {}) {
  if (o.inplace() && !o.training() && o.lower() <= o.upper())
    return leaky_relu_(x, (o.lower() + o.upper()) / 2);
  const Tensor y = halftape::rrelu(x, o.lower(), o.upper(), o.training());
  return o.inplace() ? x.copy_(y) : y;
}
/// The op of this name with these options; with `inplace`, into x.
inline Tensor hardtanh(Tensor x, const HardtanhFuncOptions& o = {}) {
  return o.inplace() ? hardtanh_(x, o.min_val(), o.max_val())
                     : halftape::hardtanh(x, o.min_val(), o.max_val());
}
inline Tensor threshold(Tensor x, const ThresholdFuncOptions& o) {
  return o.inplace() ? threshold_(x, o.threshold(), o.value())
                     : halftape::threshold(x, o.threshold(), o.value());
}
inline Tensor hardshrink(const Tensor& x, const HardshrinkFuncOptions& o = {}) {
  return halftape::hardshrink(x, o.lambda());
}
inline Tensor softshrink(const Tensor& x, const SoftshrinkFuncOptions& o = {}) {
  return halftape::softshrink(x, o.lambda());
}
inline Tensor softplus(const Tensor& x, const SoftplusFuncOptions& o) {
  return halftape::softplus(x, o.beta(), o.threshold());
}
/// Throws unless `approximate` is "none" or "tanh".
inline Tensor gelu(const Tensor& x, const GELUFuncOptions& o) {
  return halftape::gelu(x, o.approximate());
}
/// Halves the size of dimension `dim`; throws if it is odd.
inline Tensor glu(const Tensor& x, const GLUFuncOptions& o = {}) {
  return halftape::glu(x, o.dim());
}
/// Along `dim`, after a conversion to `dtype` if one is given; so are the next two.
inline Tensor softmax(const Tensor& x, const SoftmaxFuncOptions& o) {
  return halftape::softmax(x, o.dim(), o.dtype());
}
inline Tensor log_softmax(const Tensor& x, const LogSoftmaxFuncOptions& o) {
  return halftape::log_softmax(x, o.dim(), o.dtype());
}
inline Tensor softmin(const Tensor& x, const SoftminFuncOptions& o) {
  return halftape::softmin(x, o.dim(), o.dtype());
}
/// softmax((logits + Gumbel noise)/tau); with `hard` one-hot, with the gradient of the soft one.
/// Jang et al. 2016, arXiv:1611.01144.
inline Tensor gumbel_softmax(const Tensor& logits, const GumbelSoftmaxFuncOptions& o = {}) {
  return halftape::gumbel_softmax(logits, o.tau(), o.hard(), o.dim());
}
inline Tensor logsigmoid(const Tensor& x) { return log_sigmoid(x); }

}  // namespace functional

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
  explicit HardtanhImpl(const HardtanhOptions& o = {}) : options(o) { HardtanhImpl::reset(); }
  void reset() override;
  Tensor forward(const Tensor& x) const;
  void pretty_print(std::ostream& out) const override;
  HardtanhOptions options;
};
HALFTAPE_MODULE(Hardtanh);

/// x where x > threshold, else value.
HALFTAPE_UNARY_MODULE(Threshold, detail::WithOptions<ThresholdOptions>);

/// x, weight·x where x ≤ 0; the weight is learned. x: (N, num_parameters, …), or any shape for one.
/// He et al. 2015, arXiv:1502.01852.
class PReLUImpl : public Cloneable<PReLUImpl> {
 public:
  explicit PReLUImpl(const PReLUOptions& o = {}) : options(o) { PReLUImpl::reset(); }
  void reset() override;
  Tensor forward(const Tensor& x) const;
  void pretty_print(std::ostream& out) const override;
  PReLUOptions options;
  Tensor weight;  // (num_parameters)
};
HALFTAPE_MODULE(PReLU);

}  // namespace halftape::nn
