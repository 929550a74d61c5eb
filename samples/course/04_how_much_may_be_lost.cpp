// Chapter 4: how many gradients may become zero before the weights' gradients feel it?
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "figure.h"

using namespace course;

namespace {

constexpr int kFirst = -4, kLast = 44, kBatches = 12;
const std::vector<std::string> kLayers{"fc1", "fc3"};  // fc2 lies between them

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return (values[(values.size() - 1) / 2] + values[values.size() / 2]) / 2;
}

/// What happened at one scale in each of the batches, layer by layer.
struct AtScale {
  std::vector<double> lost[2], error[2];
  bool overflows = false;
};

void look(const Arguments& arguments) {
  Training training({.loss_weight = 1e-5, .scaler = {.enabled = true}, .seed = arguments.seed});
  training.run(324);
  std::vector<AtScale> at(kLast - kFirst + 1);
  for (int batch = 0; batch < kBatches; ++batch) {
    training.step();
    const auto trials = halftape::amp::try_scales(
        *training.model, [&] { return training.loss(); }, kFirst, kLast);
    for (size_t t = 0; t < at.size(); ++t) {
      at[t].overflows |= trials.trials[t].overflows;
      for (size_t layer = 0; layer < kLayers.size(); ++layer) {
        for (size_t i = 0; i < trials.places.size(); ++i)
          if (trials.places[i].op == "linear" && trials.places[i].module == kLayers[layer])
            at[t].lost[layer].push_back(100 * trials.lost(t, i));
        for (size_t i = 0; i < trials.parameters.size(); ++i)
          if (trials.parameters[i] == kLayers[layer] + ".weight")
            at[t].error[layer].push_back(100 * trials.trials[t].errors[i]);
      }
    }
  }

  Table table({{"scale"},
               {"fc1 lost", "{:.1f} %"},
               {"fc1 off by", "{:.2f} %"},
               {"fc3 lost", "{:.1f} %"},
               {"fc3 off by", "{:.2f} %"}});
  Table printed = table;
  report::Points lost, error;
  size_t t = 0;
  for (; t < at.size() && !at[t].overflows; ++t) {
    const int e = kFirst + static_cast<int>(t);
    table.add({fmt::format("2^{}", e), median(at[t].lost[0]), median(at[t].error[0]),
               median(at[t].lost[1]), median(at[t].error[1])});
    if (e % (e < 16 ? 2 : 4) == 0) printed.add(table.rows().back());
    lost.push_back({e, std::log10(median(at[t].lost[1]) / 100)});
    error.push_back({e, std::log10(median(at[t].error[1]) / 100)});
  }
  fmt::print("medians of {} batches after 324 steps, weight 1e-5, seed {}\n", kBatches,
             arguments.seed);
  printed.print();
  if (t < at.size())
    fmt::print("from 2^{} on a gradient overflows\n", kFirst + static_cast<int>(t));

  Figure figure("Last layer: what is lost, and what that does",
                "Two falling curves over the scale. The error of the weight gradient is at its "
                "floor from 2^12 on; the share of lost gradients goes on falling until 2^34. Near "
                "2^40 a gradient overflows.");
  Panel& panel = figure.panel();
  panel.x_axis(-4.5, 44.5, "scale", powers_of_two(-4, 44, 4));
  panel.y_axis(-4, 0.3, "share, or relative error", powers_of_ten(-4, 0, true));
  panel.zone(kFirst + static_cast<int>(t) - 0.5, 44.5, Look::Purple, "overflow");
  panel.line(lost, Look::Orange, "activation gradients lost");
  panel.line(error, Look::Blue, "error of the weight gradient");
  write(arguments, figure, table);
}

}  // namespace

int main(int argc, char** argv) {
  return run(argc, argv, "04_how_much_may_be_lost",
             "How many gradients may become zero before the weights' gradients feel it?",
             Seed::Taken, look);
}
