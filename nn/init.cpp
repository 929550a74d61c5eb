#include "halftape/nn/init.h"

#include <cmath>

#include "halftape/autograd/grad_mode.h"

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

Tensor uniform_(Tensor t, double low, double high) {
  const NoGradGuard no_grad;
  return t.uniform_(low, high);
}
Tensor normal_(Tensor t, double mean, double std) {
  const NoGradGuard no_grad;
  return t.normal_(mean, std);
}
Tensor constant_(Tensor t, Scalar value) {
  const NoGradGuard no_grad;
  return t.fill_(value);
}
Tensor ones_(Tensor t) { return constant_(std::move(t), 1); }
Tensor zeros_(Tensor t) { return constant_(std::move(t), 0); }

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

Tensor kaiming_uniform_(Tensor t, double a, FanMode mode, Nonlinearity nonlinearity) {
  const double bound = std::sqrt(3.0) * kaiming_std(t, a, mode, nonlinearity);
  return uniform_(std::move(t), -bound, bound);
}
Tensor kaiming_normal_(Tensor t, double a, FanMode mode, Nonlinearity nonlinearity) {
  const double std = kaiming_std(t, a, mode, nonlinearity);
  return normal_(std::move(t), 0, std);
}
Tensor xavier_uniform_(Tensor t, double gain) {
  const double bound = std::sqrt(3.0) * xavier_std(t, gain);
  return uniform_(std::move(t), -bound, bound);
}
Tensor xavier_normal_(Tensor t, double gain) {
  const double std = xavier_std(t, gain);
  return normal_(std::move(t), 0, std);
}

}  // namespace halftape::nn::init
