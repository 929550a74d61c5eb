// The six calls of a training step, in any order, with a scale multiplied by hand and with
// GradScaler.
#pragma once
#include <array>
#include <cmath>

#include "course.h"

namespace course {

using namespace halftape;

enum Call { Scale, Backward, Unscale, Clip, Step, Update };
constexpr const char* kCallNames[] = {"scale", "backward", "unscale_", "clip", "step", "update"};
using Order = std::array<Call, 6>;

/// How far one step of SGD with lr 1 moves the first of the weights (3, -4): the gradient of Σw² is
/// (6, -8), and is clipped to a norm of 0.5. NaN: the order was refused.
inline double moved(const Order& order, bool by_hand) {
  const Tensor w = tensor({3.0, -4.0}, requires_grad());
  optim::SGD optimizer({w}, optim::SGDOptions(1.0));
  amp::GradScaler scaler({.init_scale = 1024});
  const Tensor loss = (w * w).sum();
  Tensor scaled = loss;
  try {
    for (const Call call : order) {
      if (call == Scale) scaled = by_hand ? loss * 1024 : scaler.scale(loss);
      if (call == Backward) scaled.backward({}, true);
      if (call == Clip) nn::utils::clip_grad_norm_({w}, 0.5);
      if (by_hand && call == Unscale && w.grad().defined()) w.grad().div_(1024);
      if (by_hand && call == Step) optimizer.step();
      if (!by_hand && call == Unscale) scaler.unscale_(optimizer);
      if (!by_hand && call == Step) scaler.step(optimizer);
      if (!by_hand && call == Update) scaler.update();
    }
  } catch (const Error&) {
    return NAN;
  }
  return 3 - w.to_vector()[0];
}

enum Outcome { Clipped, Unclipped, Nothing, Refused, Wrong };

/// A step moves the weight by 0.3 if it is clipped, and by 6 if not.
inline Outcome judge(double moved) {
  const auto near = [&](double wanted) { return std::abs(moved - wanted) < 1e-5; };
  if (std::isnan(moved)) return Refused;
  return near(0) ? Nothing : near(6) ? Unclipped : near(0.3) ? Clipped : Wrong;
}

}  // namespace course
