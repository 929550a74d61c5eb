// Chapter 7: a small loss scaler with one of six faults, in a training that looks well all the
// same, and in tests of ten lines.
#include <fmt/format.h>

#include <array>
#include <cmath>

#include "faulty_scaler.h"
#include "figure.h"

using namespace course;
using namespace halftape;

namespace {

/// Accuracy, skips and log2 of the last scale of 60 epochs. The last layer is a group of its own,
/// the first one.
std::array<double, 3> train(Fault fault, uint64_t seed) {
  Training t({.seed = seed});
  const std::vector<Tensor> p = t.model->parameters();
  optim::Adam optimizer({{{p[4], p[5]}}, {{p[0], p[1], p[2], p[3]}}}, optim::AdamOptions(1e-3));
  Scaler scaler{fault};
  double skips = 0;
  for (int64_t i = 0; i < t.steps(); ++i) {
    t.next_batch();
    optimizer.zero_grad();
    (t.loss() * scaler.scale).backward();
    skips += !scaler.step(optimizer);
  }
  return {t.accuracy(), skips, std::log2(scaler.scale)};
}

// The tests: true if the scaler is right.
bool moves_as_the_law_says(Fault fault) {
  Scaler scaler{fault};
  ScaleState state;
  const ScaleLaw law{.growth_interval = kInterval};
  for (int i = 0; i < 100; ++i) {
    scaler.update(i == 50);
    state = next(state, i == 50, law);
    if (scaler.scale != state.scale) return false;
  }
  return true;
}
bool divides_all(Fault fault) {
  for (int good = 0; good < kInterval; ++good) {
    const Bench bench(0);
    Scaler{fault, 64, good}.unscale(bench.groups);
    if (!bench.w[1].grad().equal(ones({2})) || !bench.w[2].grad().equal(ones({2}))) return false;
  }
  return true;
}
bool sees_every_gradient(Fault fault) {
  for (size_t i = 0; i < 3; ++i)
    if (!Scaler{fault}.unscale(Bench(i).groups)) return false;
  return true;
}

void body(const Arguments& arguments) {
  Table table({{"fault"},
               {"accuracy", "{:.1f} %"},
               {"skips", "{:.0f}"},
               {"last log2(scale)", "{:.0f}"},
               {"law"},
               {"division"},
               {"verdict"}});
  Figure figure("Who finds the fault?",
                "Seven rows, for a right scaler and six faulty ones. The accuracy of a training "
                "betrays two of the six faults, three short tests all of them.",
                400);
  figure.legend(Look::Orange, "found");
  Panel& panel = figure.panel();
  panel.x_axis(0, 8, "a check finds it",
               {{4.5, "accuracy"}, {5.5, "law"}, {6.5, "division"}, {7.5, "verdict"}});
  panel.y_axis(7, 0, "fault", {});
  const auto word = [](bool found) { return found ? "fails" : "passes"; };
  double right = 0, row = 0;
  for (const auto& [fault, name] : kFaults) {
    const auto [accuracy, skips, scale] = train(fault, arguments.seed);
    if (fault == Fault::None) right = accuracy;
    const bool found[] = {accuracy < right - 2, !moves_as_the_law_says(fault), !divides_all(fault),
                          !sees_every_gradient(fault)};
    table.add({name, accuracy, skips, scale, word(found[1]), word(found[2]), word(found[3])});
    panel.text(0.1, row + 0.65, name);
    for (int i = 0; i < 4; ++i)
      if (found[i]) panel.bar(4.1 + i, 4.9 + i, row + 0.15, row + 0.85, Look::Orange);
    ++row;
  }
  table.print();
  write(arguments, figure, table);
}

}  // namespace

int main(int argc, char** argv) {
  return run(argc, argv, "07_find_the_faults", "Six faults of a scaler, and who finds them.",
             Seed::Taken, body);
}
