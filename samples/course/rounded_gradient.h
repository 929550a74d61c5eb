// The gradient of one layer, rounded by hand to formats that no hardware need have.
#pragma once
#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "figure.h"

namespace course {

using namespace halftape;
namespace F = nn::functional;

struct Format {
  const char* name;
  int digits, lowest;      // binary digits after the point; exponent of the smallest normal number
  double largest, beyond;  // which numbers above the largest become
  Look look;
};
constexpr Format kFormats[] = {{"float16", 10, -14, 65504, INFINITY, Look::Blue},
                               {"bfloat16", 7, -126, 0x1.fep127, INFINITY, Look::Orange},
                               {"E4M3", 3, -6, 448, 448, Look::Green},
                               {"E5M2", 2, -14, 57344, 57344, Look::Purple}};

/// To nearest, ties to even.
inline double rounded(double x, const Format& to) {
  if (x == 0) return 0;
  const double ulp = std::ldexp(1.0, std::max(std::ilogb(x), to.lowest) - to.digits);
  const double near = std::nearbyint(x / ulp) * ulp;
  return std::abs(near) > to.largest ? std::copysign(to.beyond, x) : near;
}

/// The middle layer: its weight gradient is gradientᵀ · input.
struct Layer {
  Tensor input, gradient;
  double largest() const { return gradient.abs().max().item<double>(); }
};
inline Layer record(const nn::Sequential& model, const sample::Samples& batch) {
  const std::vector<Tensor> p = model->parameters();
  const Tensor h = relu(F::linear(batch.images, p[0], p[1]));
  const Tensor y = F::linear(h, p[2], p[3]);
  y.retain_grad();
  (F::cross_entropy(F::linear(relu(y), p[4], p[5]), batch.labels) * 1e-5).backward();
  return {h.detach(), y.grad()};
}

/// In percent: gradients that become 0 at that scale, and the error of the weight gradient.
inline std::pair<double, double> damage(const Layer& layer, const Format& format, double scale) {
  std::vector<double> g = (layer.gradient * scale).to_vector();
  double lost = 0, numbers = 0;
  for (double& x : g) {
    const double before = std::exchange(x, rounded(x, format));
    numbers += before != 0, lost += before != 0 && x == 0;
  }
  const Tensor rough = tensor(g).to(kFloat32).view(layer.gradient.sizes()) / scale,
               exact = matmul(layer.gradient.t(), layer.input),
               off = matmul(rough.t(), layer.input) - exact;
  const double error = (off.norm() / exact.norm()).item<double>();
  return {100 * lost / numbers, std::isfinite(error) ? 100 * error : INFINITY};
}

}  // namespace course
