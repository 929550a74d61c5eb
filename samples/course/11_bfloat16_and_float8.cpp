// Chapter 11: the gradients of one layer, rounded to float16, bfloat16 and two kinds of float8, at
// all scales. Rounding is done by hand on float32 numbers: nothing is trained in float8.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "figure.h"
#include "rounded_gradient.h"

using namespace course;
using namespace halftape;

namespace {

/// The error of the same weight's gradient when all of a step runs in a 16-bit type, in percent.
double whole_step(const Training& t, Dtype type) {
  const auto at_2_16 = amp::try_scales(
      *t.model, [&] { return t.loss(type); }, 16, 16);
  return 100 * at_2_16.trials[0].errors[2];
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

void body(const Arguments& arguments) {
  Training t({.dtype = kFloat32, .loss_weight = 1e-5, .seed = arguments.seed});
  std::vector<double> amax;
  Layer layer;
  for (int step = 0; step < 330; ++step) {
    layer = record(t.model, t.next_batch());
    amax.push_back(layer.largest());
    t.optimizer.zero_grad();
    t.loss().backward();
    t.optimizer.step();
  }

  Figure figure("Error of a weight gradient, in four formats",
                "The error over the loss scale. Each format but bfloat16 has a valley: the more "
                "digits it has, the deeper; the more exponents, the wider. bfloat16 is flat.");
  Panel& panel = figure.panel();
  panel.x_axis(-4, 48, "loss scale S", powers_of_two(-4, 48, 4));
  panel.y_axis(-4, 0.2, "error of the weight gradient", powers_of_ten(-4, 0, true));
  std::vector<Table::Column> columns{{"S"}};
  for (const char* name : {"fp16", "bf16", "E4M3", "E5M2"}) {
    columns.push_back({fmt::format("{} lost", name), "{:.1f} %"});
    columns.push_back({fmt::format("{} off", name), "{:.2f} %"});
  }
  Table all(columns), shown(columns);
  report::Points errors[4];
  for (int e = -4; e <= 48; ++e) {
    std::vector<Table::Cell> row{fmt::format("2^{}", e)};
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
    t.next_batch();
    half += whole_step(t, kFloat16) / 12;
    brain += whole_step(t, kBFloat16) / 12;
  }
  fmt::print("float16 is off by {:.2f} %, bfloat16 by {:.2f} %\n", half, brain);

  fmt::print("\nE4M3, scale from the largest gradient of the last steps: {} scales\n",
             amax.size() - 1);
  Table delayed(
      {{"steps looked at", "{:.0f}"}, {"too large", "{:.0f}"}, {"with 2^1 to spare", "{:.0f}"}});
  for (const size_t n : {1, 4, 16, 64})
    delayed.add({static_cast<double>(n), too_large(amax, n, 0), too_large(amax, n, 1)});
  delayed.print();
  write(arguments, figure, all);
}

}  // namespace

int main(int argc, char** argv) {
  return run(argc, argv, "11_bfloat16_and_float8", "Fewer digits, or a shorter range.", Seed::Taken,
             body);
}
