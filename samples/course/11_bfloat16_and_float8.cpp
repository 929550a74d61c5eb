// Chapter 11: the gradients of one layer, rounded to float16, bfloat16 and two kinds of float8, at
// all scales. Rounding is done by hand on float32 numbers: nothing is trained in float8.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "figure.h"

using namespace halftape;
namespace F = nn::functional;
using course::Look;

namespace {

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
double rounded(double x, const Format& to) {
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
Layer record(const nn::Sequential& model, const sample::Samples& batch) {
  const std::vector<Tensor> p = model->parameters();
  const Tensor h = relu(F::linear(batch.images, p[0], p[1]));
  const Tensor y = F::linear(h, p[2], p[3]);
  y.retain_grad();
  (F::cross_entropy(F::linear(relu(y), p[4], p[5]), batch.labels) * 1e-5).backward();
  return {h.detach(), y.grad()};
}

/// In percent: gradients that become 0 at that scale, and the error of the weight gradient.
std::pair<double, double> damage(const Layer& layer, const Format& format, double scale) {
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

/// The error of the same weight's gradient when all of a step runs in a 16-bit type, in percent.
double whole_step(const nn::Sequential& model, const sample::Samples& batch, Dtype type) {
  const auto loss = [&] {
    const amp::autocast region(kCPU, type);
    return F::cross_entropy(model->forward(batch.images), batch.labels) * 1e-5;
  };
  return 100 * amp::try_scales(*model, loss, 16, 16).trials[0].errors[2];
}

/// How many scales were too large for E4M3, each chosen so that the largest of the `history`
/// numbers before it fits, with a factor of 2^spare to spare.
double too_large(const std::vector<double>& amax, size_t history, int spare) {
  double count = 0;
  for (size_t i = 1; i < amax.size(); ++i) {
    const double most = *std::max_element(&amax[i - std::min(i, history)], &amax[i]);
    const double scale = std::exp2(std::floor(std::log2(448 / most)) - spare);
    count += amax[i] * scale > 448;
  }
  return count;
}

void body(const course::Arguments& arguments) {
  course::Training t({.dtype = kFloat32, .loss_weight = 1e-5, .seed = arguments.seed});
  std::vector<double> amax;
  Layer layer;
  for (int step = 0; step < 330; ++step) {
    layer = record(t.model, t.next_batch());
    amax.push_back(layer.gradient.abs().max().item<double>());
    t.optimizer.zero_grad();
    t.loss().backward();
    t.optimizer.step();
  }

  course::Figure figure("Error of a weight gradient, in four formats",
                        "The error over the loss scale. Each format but bfloat16 has a valley: the "
                        "more digits it has, the deeper; the more exponents, the wider. bfloat16 "
                        "is flat.");
  course::Panel& panel = figure.panel();
  panel.x_axis(-4, 48, "loss scale S", course::powers_of_two(-4, 48, 4));
  panel.y_axis(-4, 0.2, "error of the weight gradient", course::powers_of_ten(-4, 0, true));
  std::vector<course::Table::Column> columns{{"S"}};
  for (const char* name : {"fp16", "bf16", "E4M3", "E5M2"}) {
    columns.push_back({fmt::format("{} lost", name), "{:.1f} %"});
    columns.push_back({fmt::format("{} off", name), "{:.2f} %"});
  }
  course::Table all(columns), shown(columns);
  report::Points errors[4];
  for (int e = -4; e <= 48; ++e) {
    std::vector<course::Table::Cell> row{fmt::format("2^{}", e)};
    for (int i = 0; i < 4; ++i) {
      const auto [zeros, error] = damage(layer, kFormats[i], std::exp2(e));
      row.insert(row.end(), {zeros, error});
      errors[i].emplace_back(e, std::isinf(error) ? NAN : std::log10(error / 100));
    }
    if (e >= 0 && e % 8 == 0) shown.add(row);
    if (e % 2 == 0) all.add(row);
  }
  for (int i = 0; i < 4; ++i) panel.line(errors[i], kFormats[i].look, kFormats[i].name, false);
  shown.print();

  fmt::print("\na whole step at S = 2^16, the same weight's gradient, mean of 12 batches\n");
  double half = 0, brain = 0;
  for (int i = 0; i < 12; ++i) {
    const sample::Samples& batch = t.next_batch();
    half += whole_step(t.model, batch, kFloat16) / 12;
    brain += whole_step(t.model, batch, kBFloat16) / 12;
  }
  fmt::print("float16 is off by {:.2f} %, bfloat16 by {:.2f} %\n", half, brain);

  fmt::print("\nE4M3, scale from the largest gradient of the last steps: {} scales\n",
             amax.size() - 1);
  course::Table delayed(
      {{"steps looked at", "{:.0f}"}, {"too large", "{:.0f}"}, {"with 2^1 to spare", "{:.0f}"}});
  for (const size_t n : {1, 4, 16, 64})
    delayed.add({static_cast<double>(n), too_large(amax, n, 0), too_large(amax, n, 1)});
  delayed.print();
  course::write(arguments, figure, all);
}

}  // namespace

int main(int argc, char** argv) {
  return course::run(argc, argv, "11_bfloat16_and_float8", "Fewer digits, or a shorter range.",
                     course::Seed::Taken, body);
}
