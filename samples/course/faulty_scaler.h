// A small loss scaler that has one of six faults, and a bench to test it on.
#pragma once
#include <cmath>
#include <utility>
#include <vector>

#include "course.h"

namespace course {

using namespace halftape;

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
  bool unscale(const std::vector<optim::OptimizerParamGroup>& groups) const {
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

/// Three parameters in two groups, with gradients of 64; that of one parameter has an inf.
struct Bench {
  std::vector<Tensor> w;
  std::vector<optim::OptimizerParamGroup> groups;
  explicit Bench(size_t with_inf) {
    for (size_t i = 0; i < 3; ++i) {
      w.push_back(ones({2}, requires_grad()));
      w[i].mutable_grad() = tensor({64.0, i == with_inf ? INFINITY : 64.0});
    }
    groups = {{{w[0]}}, {{w[1], w[2]}}};
  }
};

}  // namespace course
