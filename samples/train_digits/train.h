// One training of a small network in a chosen precision, and what it leaves behind.
#pragma once

#include <halftape/halftape.h>

#include <optional>
#include <string>
#include <vector>

#include "report.h"

/// Images as normalised rows of float32, and their classes as int64.
struct Samples {
  halftape::Tensor images;  // (N, pixels)
  halftape::Tensor labels;  // (N)
  int64_t size() const { return labels.size(0); }
};

/// (pixels − mean) / deviation, with the mean and deviation of the training images in both parts.
struct Dataset {
  Samples train, test;
  int64_t pixels = 0, classes = 0;
  std::string text;  // "digits, 8x8 pixels: 1442 images to train on, 355 to test on"
};
Dataset make_dataset(const halftape::data::Split& split, const std::string& name,
                     halftape::Device device);

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

/// pixels → hidden → hidden → classes, with ReLU between.
halftape::nn::Sequential make_model(const Dataset& data, const Settings& settings);
/// The share of test images that the network classifies correctly, in percent.
double test_accuracy(const halftape::nn::Sequential& model, const Samples& test,
                     const Precision& precision);

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
