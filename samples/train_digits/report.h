// What the runs of train_digits leave behind, and the HTML page that shows them side by side.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <halftape/halftape.h>

namespace report {

/// How the elements of one layer's gradient are spread over the powers of two.
struct Histogram {
  std::string layer;                     // "fc1"
  halftape::amp::ExponentCounts counts;  // of the gradient of its output
};

/// One training of the network in one precision.
struct Run {
  std::string name;                    // "float32", "fp16", "amp" or "bf16"; chooses the colour
  std::string title;                   // "fp16 + GradScaler"
  std::vector<double> loss;            // training loss per step, unweighted; may be nan or inf
  std::vector<double> test_accuracy;   // per epoch, percent
  std::vector<double> scale;           // per step; empty when the run has no scaler
  std::vector<int64_t> skipped_steps;  // counted from 0, as the indices of `loss`
  double seconds = 0;
};

/// Everything the page shows.
struct Report {
  std::string command, data, model, seed;
  double loss_weight = 1;
  int64_t steps_per_epoch = 0;
  std::vector<Run> runs;
  std::vector<Histogram> before;  // of the weighted loss, not scaled
  std::vector<Histogram> after;   // the same, multiplied by the scale
  double scale_shown = 1;         // the scale used in `after`
  std::string gradients;          // their origin: "gradients of … after epoch 3"
};

/// Mean training loss over the last epoch of `run`; nan when a step of it was not finite.
double last_loss(const Run& run);

/// Writes the page. The file appears whole or not at all. Throws std::runtime_error with path and
/// reason.
void write_html(const std::string& path, const Report& report);

}  // namespace report
