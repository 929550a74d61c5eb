// What halftape-lab saw of one training. The page and the files are made from this alone.
#pragma once
#include <halftape/halftape.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

struct LabRun {
  /// How the page says it was made: "command", "data", "seed" and so on, with their texts.
  std::vector<std::pair<std::string, std::string>> settings;
  std::string training;                        // "digits"
  halftape::Dtype dtype = halftape::kFloat16;  // of autocast; float32: no autocast
  bool scaled = true;                          // by a GradScaler
  double loss_weight = 1;
  int64_t planned_steps = 0;  // more than `steps` after Ctrl-C

  struct Step {
    double loss = 0;   // without weight and scale
    double scale = 1;  // of this step
    bool skipped = false;
  };
  std::vector<Step> steps;

  struct Measure {
    int64_t step;  // after which it was taken
    double value;
  };
  std::string measure;  // "test accuracy in percent"
  std::vector<Measure> measures;

  // As an Inspector has them.
  std::vector<halftape::amp::LedgerPlace> places;
  std::vector<halftape::amp::ClassCounts> totals;  // of each place
  std::vector<halftape::amp::LedgerRow> rows;
  std::vector<halftape::amp::Overflow> overflows;
  std::vector<halftape::amp::Alarm> alarms;

  /// One batch at many scales, in the middle of the training and at its end.
  struct Trials {
    int64_t step;      // after which they were made
    double scale = 1;  // where the scaler stood
    halftape::amp::ScaleTrials at;
  };
  std::vector<Trials> trials;

  /// The scale after the last step; 1 before the first.
  double last_scale() const { return trials.empty() ? 1 : trials.back().scale; }
};
