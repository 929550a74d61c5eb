// Runs a training with an Inspector on.
#pragma once
#include <filesystem>

#include "lab_run.h"
#include "training.h"

namespace lab {

struct ObserveOptions {
  halftape::amp::GradScalerOptions scaler;
  int64_t every = 20, shadow_every = 20;         // steps, as in InspectorOptions
  std::filesystem::path steps_file;              // a line for each step, also if the program dies
  int first_exponent = -10, last_exponent = 40;  // scales to try: 2^first … 2^last
};

/// Trains until the last step or Ctrl-C, and shows the progress. Fills what depends on the steps;
/// the caller fills settings, training, dtype, scaled and loss_weight before.
void observe(Training& training, const ObserveOptions& options, LabRun& run);

}  // namespace lab
