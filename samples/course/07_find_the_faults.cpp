// Chapter 7: a small loss scaler with one of six faults, in a training that looks well all the
// same, and in tests of ten lines.
#include <fmt/format.h>

#include <array>
#include <cmath>

#include "figure.h"

using namespace halftape;
using course::Look;

namespace {

enum class Fault {
  None,
  GrowsLate,
  LooksAtScale,
  OldDivisor,
  StopsEarly,
  FirstGroup,
  LosesVerdict
};
constexpr std::pair<Fault, const char*> kFaults[] = {
    {Fault::None, "none"},
    {Fault::GrowsLate, "grows a step late"},
    {Fault::LooksAtScale, "growth tests the scale"},
    {Fault::OldDivisor, "divides by the next scale"},
    {Fault::StopsEarly, "stops at the first inf"},
    {Fault::FirstGroup, "checks the first group"},
    {Fault::LosesVerdict, "forgets the verdict"}};
constexpr int kInterval = 20;

/// A loss scaler in thirty lines. Gradients are divided and checked by hand.
struct Scaler {
  Fault fault;
  double scale = 65536;
  int good = 0;

  /// True if a gradient is not finite. Divides all of them by the scale.
  bool unscale(std::vector<optim::OptimizerParamGroup>& groups) const {
    const bool grows = fault == Fault::OldDivisor && good + 1 == kInterval;
    bool found = false;
    for (size_t group = 0; group < groups.size(); ++group)
      for (const Tensor& p : groups[group].params()) {
        p.mutable_grad().div_(grows ? 2 * scale : scale);
        const bool bad = !isfinite(p.grad()).all().item<bool>();
        if (fault != Fault::FirstGroup || group == 0) found |= bad;
        if (found && fault == Fault::StopsEarly) return true;
      }
    return found && fault != Fault::LosesVerdict;
  }
  void update(bool found) {
    good = found ? 0 : good + 1;
    const int needed = fault == Fault::GrowsLate ? kInterval + 1 : kInterval;
    const bool grows =
        fault == Fault::LooksAtScale ? std::fmod(scale, kInterval) == 0 : good >= needed;
    if (found) scale /= 2;
    if (!found && grows) scale *= 2, good = 0;
  }
  bool step(optim::Optimizer& optimizer) {
    const bool found = unscale(optimizer.param_groups());
    if (!found) optimizer.step();
    update(found);
    return !found;
  }
};

/// Accuracy, skips and log2 of the last scale of 60 epochs. The last layer is a group of its own,
/// the first one.
std::array<double, 3> train(Fault fault, uint64_t seed) {
  course::Training t({.seed = seed});
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

/// Three parameters in two groups, with gradients of 64.
struct Bench {
  std::vector<Tensor> w{ones({2}, requires_grad()), ones({2}, requires_grad()),
                        ones({2}, requires_grad())};
  std::vector<optim::OptimizerParamGroup> groups{{{w[0]}}, {{w[1], w[2]}}};
  Bench() {
    for (const Tensor& p : w) p.mutable_grad() = full({2}, 64.0);
  }
};

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
    Bench bench;
    bench.w[0].mutable_grad() = full({2}, INFINITY);
    Scaler{fault, 64, good}.unscale(bench.groups);
    if (!bench.w[1].grad().equal(ones({2})) || !bench.w[2].grad().equal(ones({2}))) return false;
  }
  return true;
}
bool sees_every_gradient(Fault fault) {
  for (size_t i = 0; i < 3; ++i) {
    Bench bench;
    bench.w[i].mutable_grad() = tensor({1.0, INFINITY});
    if (!Scaler{fault}.unscale(bench.groups)) return false;
  }
  return true;
}

void body(const course::Arguments& arguments) {
  course::Table table({{"fault"},
                       {"accuracy", "{:.1f} %"},
                       {"skips", "{:.0f}"},
                       {"last log2(scale)", "{:.0f}"},
                       {"law"},
                       {"division"},
                       {"verdict"}});
  course::Figure figure("Who finds the fault?",
                        "Seven rows, for a right scaler and six faulty ones. The accuracy of a "
                        "training betrays two of the six faults, three short tests all of them.",
                        400);
  figure.legend(Look::Orange, "found");
  course::Panel& panel = figure.panel();
  panel.x_axis(0, 8, "a check finds it",
               {{4.5, "accuracy"}, {5.5, "law"}, {6.5, "division"}, {7.5, "verdict"}});
  panel.y_axis(7, 0, "fault", {});
  double right = 0, row = 0;
  for (const auto& [fault, name] : kFaults) {
    const auto [accuracy, skips, scale] = train(fault, arguments.seed);
    if (fault == Fault::None) right = accuracy;
    const bool found[] = {accuracy < right - 2, !moves_as_the_law_says(fault), !divides_all(fault),
                          !sees_every_gradient(fault)};
    const auto word = [](bool is_found) { return std::string(is_found ? "fails" : "passes"); };
    table.add({name, accuracy, skips, scale, word(found[1]), word(found[2]), word(found[3])});
    panel.text(0.1, row + 0.65, name);
    for (int i = 0; i < 4; ++i)
      if (found[i]) panel.bar(4.1 + i, 4.9 + i, row + 0.15, row + 0.85, Look::Orange);
    ++row;
  }
  table.print();
  course::write(arguments, figure, table);
}

}  // namespace

int main(int argc, char** argv) {
  return course::run(argc, argv, "07_find_the_faults",
                     "Six faults of a scaler, and who finds them.", course::Seed::Taken, body);
}
