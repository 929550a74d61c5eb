// Chapter 3: from which weight of the loss on does float16 need a scale?
#include <fmt/format.h>

#include <cmath>

#include "figure.h"

using namespace course;

namespace {

double accuracy(halftape::Dtype dtype, double loss_weight, bool scaled, uint64_t seed,
                int64_t hidden_layers = 2) {
  Training training({.dtype = dtype,
                     .loss_weight = loss_weight,
                     .scaler = {.growth_interval = 20, .enabled = scaled},
                     .seed = seed,
                     .hidden_layers = hidden_layers});
  training.run();
  return training.accuracy();
}

void compare(const Arguments& arguments) {
  Table table({{"loss weight"},
               {"float32", "{:.1f} %"},
               {"float16 alone", "{:.1f} %"},
               {"with GradScaler", "{:.1f} %"},
               {"bfloat16", "{:.1f} %"}});
  report::Points exact, alone, scaled, bfloat16;
  for (int e = 0; e >= -7; --e) {
    const double w = std::pow(10.0, e);
    exact.push_back({-e, accuracy(halftape::kFloat32, w, false, arguments.seed)});
    alone.push_back({-e, accuracy(halftape::kFloat16, w, false, arguments.seed)});
    scaled.push_back({-e, accuracy(halftape::kFloat16, w, true, arguments.seed)});
    bfloat16.push_back({-e, accuracy(halftape::kBFloat16, w, false, arguments.seed)});
    table.add({w, exact.back().second, alone.back().second, scaled.back().second,
               bfloat16.back().second});
  }
  fmt::print("accuracy on the test digits after 60 epochs, seed {}\n", arguments.seed);
  table.print();

  Table deep({{"hidden layers"},
              {"float32", "{:.1f} %"},
              {"float16 alone", "{:.1f} %"},
              {"with GradScaler", "{:.1f} %"}});
  for (const int64_t layers : {2, 6, 12, 16, 24})
    deep.add({static_cast<double>(layers),
              accuracy(halftape::kFloat32, 1, false, arguments.seed, layers),
              accuracy(halftape::kFloat16, 1, false, arguments.seed, layers),
              accuracy(halftape::kFloat16, 1, true, arguments.seed, layers)});
  fmt::print("\nat weight 1\n");
  deep.print();

  Figure figure("Accuracy after 60 epochs, by the weight of the loss",
                "Four curves from weight 1 to 1e-7. float16 alone falls off a cliff; the others "
                "lie on one line near 98 %.");
  Panel& panel = figure.panel();
  Ticks weights = powers_of_ten(-7, 0);
  for (auto& tick : weights) tick.first = -tick.first;
  panel.x_axis(-0.2, 7.2, "weight of the loss", weights);
  panel.y_axis(0, 104, "test accuracy", numbers(0, 100, 20, " %"));
  panel.line(exact, Look::Ink, "float32");
  panel.line(bfloat16, Look::Green, "bfloat16");
  panel.line(scaled, Look::Blue, "float16 with GradScaler");
  panel.line(alone, Look::Orange, "float16 alone");
  write(arguments, figure, table);
}

}  // namespace

int main(int argc, char** argv) {
  return run(argc, argv, "03_loss_weight",
             "From which weight of the loss on does float16 need a scale?", Seed::Taken, compare);
}
