// Keeps the figures of a training for the progress line, the table and the report.
#pragma once

#include <chrono>

#include "progress.h"
#include "train.h"

class Record {
 public:
  Record(const Precision& precision, const Dataset& data, const Settings& settings);

  /// The loss without its weight, and the scale of this step.
  void step(double loss, double scale, bool applied);
  /// The test accuracy at the end of an epoch, in percent.
  void epoch(double accuracy);
  /// Takes the histograms of Outcome from the model as it is now.
  void gradients(const halftape::nn::Sequential& model, double scale);
  Outcome finish(const halftape::nn::Sequential& model);

 private:
  double seconds() const;

  const Precision& precision_;
  const Dataset& data_;
  const Settings& settings_;
  Outcome outcome_;
  Status status_;
  Progress progress_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};
