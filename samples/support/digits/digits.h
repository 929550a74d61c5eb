// Pictures as rows of numbers, the network that several samples train on them, and its test.
#pragma once
#include <halftape/halftape.h>

#include <cstdint>
#include <optional>
#include <string>

namespace sample {

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

/// pixels → hidden → … → classes, with ReLU between, on the device of the data.
halftape::nn::Sequential make_mlp(const Dataset& data, int64_t hidden, int64_t hidden_layers = 2);

/// The share of test images that the network classifies correctly, in percent, with matrix products
/// in the dtype `autocast`.
double test_accuracy(const halftape::nn::Sequential& model, const Samples& test,
                     std::optional<halftape::Dtype> autocast);

}  // namespace sample
