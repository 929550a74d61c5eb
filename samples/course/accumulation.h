// One batch in four parts, right and with four mistakes, with a scale multiplied by hand and with
// GradScaler.
#pragma once
#include <utility>

#include "course.h"

namespace course {

using namespace halftape;

enum How { Whole, Right, NotDivided, ClipsEach, UnscalesEach, UpdatesEach };
constexpr std::pair<How, const char*> kHows[] = {{Right, "mean of the parts, unscaled once"},
                                                 {NotDivided, "sum of the parts"},
                                                 {ClipsEach, "clipped after each part"},
                                                 {UnscalesEach, "unscaled after each part"},
                                                 {UpdatesEach, "a new scale after each part"}};

/// The gradients with which a step of 128 digits is taken, in one row.
inline Tensor accumulated(How how, bool by_hand, bool clips) {
  manual_seed(0);
  const nn::Sequential model = sample::make_mlp(digits(), 64);
  optim::SGD optimizer(model->parameters(), optim::SGDOptions(1.0));
  amp::GradScaler scaler({.init_scale = 1024});
  double scale = 1024;
  const int64_t parts = how == Whole ? 1 : 4, size = 128 / parts;
  const auto unscale = [&] {
    if (!by_hand) return scaler.unscale_(optimizer);
    for (const Tensor& p : model->parameters()) p.grad().div_(scale);
  };
  for (int64_t part = 0; part < parts; ++part) {
    const sample::Samples samples =
        select(digits().train, arange(part * size, (part + 1) * size, kInt64));
    Tensor loss;
    {
      const amp::autocast region(kCPU, kFloat16);
      loss = nn::functional::cross_entropy(model->forward(samples.images), samples.labels);
    }
    if (how != NotDivided) loss = loss / static_cast<double>(parts);
    (by_hand ? loss * scale : scaler.scale(loss)).backward();
    if (how == UnscalesEach) unscale();
    if (how == ClipsEach) nn::utils::clip_grad_norm_(model->parameters(), 0.1);
    if (how == UpdatesEach && part + 1 < parts) by_hand ? void(scale *= 2) : scaler.update();
  }
  if (how != UnscalesEach) unscale();
  if (clips) nn::utils::clip_grad_norm_(model->parameters(), 0.1);
  return row_of(model, [](const Tensor& p) { return p.grad(); });
}

}  // namespace course
