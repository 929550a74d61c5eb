// One training of a small network in a chosen precision, and what it leaves behind.
#pragma once

#include <halftape/halftape.h>

#include <optional>
#include <string>
#include <vector>

#include "digits.h"
#include "report.h"

using sample::Dataset;
using sample::Samples;

/// How the arithmetic is done.
struct Precision {
  std::string name, title;                  // "amp", "fp16 + GradScaler"
  std::optional<halftape::Dtype> autocast;  // of the matrix products; none: float32 throughout
  bool scaler = false;                      // scales the loss
};
/// float32, fp16, amp and bf16.
const std::vector<Precision>& precisions();

struct Settings {
  int epochs = 60;
  int64_t batch_size = 128, hidden = 64;
  double lr = 1e-3;
  double loss_weight = 1e-5;
  int64_t growth_interval = 20;  // of the scale, in steps; the library's 2000 outlasts a short run
  uint64_t seed = 0;
  halftape::Device device;
};

struct Outcome {
  report::Run run;
  /// The gradients of the layers' outputs, from the weighted loss on the first batch of the
  /// training images, computed in float32 with the weights after `gradients_epoch`; and the same
  /// times the scale of then.
  std::vector<report::Histogram> gradients, scaled_gradients;
  int gradients_epoch = 0;
  double scale_shown = 1;
  uint64_t hash = 0;  // FNV-1a of the bytes of all trained parameters
};

/// Trains from the same first weights and on the same batches for equal `settings`, and shows the
/// progress. A loss that diverges is a result, not an error.
Outcome train(const Dataset& data, const Precision& precision, const Settings& settings);
