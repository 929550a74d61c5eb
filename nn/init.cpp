#include "halftape/nn/init.h"

#include <cmath>

#include "halftape/autograd/ops/creation/create.h"
#include "halftape/autograd/ops/creation/random.h"
#include "halftape/autograd/ops/product/matmul.h"
#include "halftape/autograd/tape/grad_mode.h"

namespace halftape::nn::init {
namespace {

double kaiming_std(const Tensor& t, double a, FanMode mode, Nonlinearity nonlinearity) {
  const auto [in, out] = calculate_fan_in_and_fan_out(t);
  return calculate_gain(nonlinearity, a) /
         std::sqrt(static_cast<double>(mode == FanMode::FanIn ? in : out));
}
double xavier_std(const Tensor& t, double gain) {
  const auto [in, out] = calculate_fan_in_and_fan_out(t);
  return gain * std::sqrt(2.0 / static_cast<double>(in + out));
}

}  // namespace

Tensor uniform_(const Tensor& t, double low, double high) {
  const NoGradGuard no_grad;
  return t.uniform_(low, high);
}
Tensor normal_(const Tensor& t, double mean, double std) {
  const NoGradGuard no_grad;
  return t.normal_(mean, std);
}
Tensor constant_(const Tensor& t, Scalar value) {
  const NoGradGuard no_grad;
  return t.fill_(value);
}
Tensor ones_(const Tensor& t) { return constant_(t, 1); }
Tensor zeros_(const Tensor& t) { return constant_(t, 0); }

Tensor eye_(const Tensor& t) {
  HALFTAPE_CHECK(t.dim() == 2, "eye_: needs 2 dimensions, the tensor is ", t.sizes());
  const NoGradGuard no_grad;
  return t.copy_(eye(t.size(0), t.size(1), t.options()));
}

Tensor dirac_(const Tensor& t) {
  HALFTAPE_CHECK(3 <= t.dim() && t.dim() <= 5, "dirac_: needs 3 to 5 dimensions, the tensor is ",
                 t.sizes());
  const NoGradGuard no_grad;
  t.zero_();
  Tensor middle = t;
  for (int64_t d = t.dim() - 1; d >= 2; --d) middle = middle.select(d, t.size(d) / 2);
  middle.copy_(eye(t.size(0), t.size(1), t.options()));
  return t;
}

Tensor orthogonal_(const Tensor& t, double gain) {
  HALFTAPE_CHECK(t.dim() >= 2, "orthogonal_: needs at least 2 dimensions, the tensor is ",
                 t.sizes());
  const NoGradGuard no_grad;
  if (t.numel() == 0) return t;
  const int64_t rows = t.size(0), columns = t.numel() / rows;
  const TensorOptions o = TensorOptions(compute_dtype(t.dtype()));
  const Tensor drawn = randn({rows, columns}, o.device(t.device())).to(kFloat64);
  const Tensor q = (rows <= columns ? drawn : drawn.t()).clone();
  for (int64_t i = 0; i < q.size(0); ++i) {
    Tensor row = q.select(0, i);
    const Tensor done = q.narrow(0, 0, i);
    // Two passes: one loses digits where a row lies nearly in the span of the rows before it.
    for (int pass = 0; i > 0 && pass < 2; ++pass) row.sub_(mv(done.t(), mv(done, row)));
    row.div_(row.norm());
  }
  return t.copy_((rows <= columns ? q : q.t()).reshape(t.sizes()).mul(gain));
}

Tensor sparse_(const Tensor& t, double sparsity, double std) {
  HALFTAPE_CHECK(t.dim() == 2, "sparse_: needs 2 dimensions, the tensor is ", t.sizes());
  HALFTAPE_CHECK(0 <= sparsity && sparsity <= 1, "sparse_: the sparsity ", sparsity,
                 " is not in [0, 1]");
  const NoGradGuard no_grad;
  t.normal_(0, std);
  const auto zeros = static_cast<int64_t>(std::ceil(sparsity * static_cast<double>(t.size(0))));
  for (int64_t column = 0; column < t.size(1); ++column)
    t.select(1, column).index_fill_(
        0, randperm(t.size(0), kInt64).narrow(0, 0, zeros).to(t.device()), 0);
  return t;
}

std::pair<int64_t, int64_t> calculate_fan_in_and_fan_out(const Tensor& t) {
  HALFTAPE_CHECK(t.dim() >= 2,
                 "init: fan-in and fan-out need at least 2 dimensions, the tensor is ", t.sizes());
  int64_t field = 1;
  for (int64_t d = 2; d < t.dim(); ++d) field *= t.size(d);
  return {t.size(1) * field, t.size(0) * field};
}

double calculate_gain(Nonlinearity nonlinearity, double a) {
  switch (nonlinearity) {
    case Nonlinearity::Tanh:
      return 5.0 / 3;
    case Nonlinearity::ReLU:
      return std::sqrt(2.0);
    case Nonlinearity::LeakyReLU:
      return std::sqrt(2.0 / (1 + a * a));
    case Nonlinearity::Linear:
    case Nonlinearity::Sigmoid:
      break;
  }
  return 1;
}

Tensor kaiming_uniform_(const Tensor& t, double a, FanMode mode, Nonlinearity nonlinearity) {
  if (t.numel() == 0) return t;  // a fan of 0 has no bound
  const double bound = std::sqrt(3.0) * kaiming_std(t, a, mode, nonlinearity);
  return uniform_(t, -bound, bound);
}
Tensor kaiming_normal_(const Tensor& t, double a, FanMode mode, Nonlinearity nonlinearity) {
  return normal_(t, 0, kaiming_std(t, a, mode, nonlinearity));
}
Tensor xavier_uniform_(const Tensor& t, double gain) {
  if (t.numel() == 0) return t;
  const double bound = std::sqrt(3.0) * xavier_std(t, gain);
  return uniform_(t, -bound, bound);
}
Tensor xavier_normal_(const Tensor& t, double gain) { return normal_(t, 0, xavier_std(t, gain)); }

}  // namespace halftape::nn::init
