// Bytes to tensors, the network and its test.
#include "digits.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <utility>
#include <vector>

using namespace halftape;

namespace sample {
namespace {

using Levels = std::array<double, 256>;

/// The normalised value of each pixel value: mean 0 and standard deviation 1 over all of `images`.
Levels normalisation(const data::Images& images) {
  Levels count{};
  for (const uint8_t p : images.pixels) ++count[p];
  const auto n = static_cast<double>(images.pixels.size());
  double mean = 0, variance = 0;
  for (size_t v = 0; v < count.size(); ++v) mean += count[v] / n * static_cast<double>(v);
  for (size_t v = 0; v < count.size(); ++v)
    variance += count[v] / n * std::pow(static_cast<double>(v) - mean, 2);
  Levels level;
  for (size_t v = 0; v < level.size(); ++v)  // images of one grey stay at 0
    level[v] = (static_cast<double>(v) - mean) / std::sqrt(variance > 0 ? variance : 1);
  return level;
}

Samples samples(const data::Images& images, const Levels& level, Device device) {
  Samples s;
  s.images = empty({images.count, images.rows * images.cols});
  auto* x = s.images.data_ptr<float>();
  for (size_t i = 0; i < images.pixels.size(); ++i)
    x[i] = static_cast<float>(level[images.pixels[i]]);
  s.labels = tensor(std::vector<int64_t>(images.labels.begin(), images.labels.end()), kInt64);
  s.images = s.images.to(device);
  s.labels = s.labels.to(device);
  return s;
}

}  // namespace

Dataset make_dataset(const data::Split& split, const std::string& name, Device device) {
  const Levels level = normalisation(split.train);
  return {
      .train = samples(split.train, level, device),
      .test = samples(split.test, level, device),
      .pixels = split.train.rows * split.train.cols,
      .classes = split.train.classes,
      .text = fmt::format("{}, {}x{} pixels: {} images to train on, {} to test on", name,
                          split.train.rows, split.train.cols, split.train.count, split.test.count)};
}

nn::Sequential make_mlp(const Dataset& data, int64_t hidden, int64_t hidden_layers) {
  nn::Sequential model;
  int64_t width = data.pixels;
  for (int64_t i = 1; i <= hidden_layers; ++i) {
    model->push_back(fmt::format("fc{}", i), nn::Linear(std::exchange(width, hidden), hidden));
    model->push_back(fmt::format("relu{}", i), nn::ReLU());
  }
  model->push_back(fmt::format("fc{}", hidden_layers + 1), nn::Linear(width, data.classes));
  model->to(data.train.images.device());
  return model;
}

double test_accuracy(const nn::Sequential& model, const Samples& test,
                     std::optional<Dtype> autocast) {
  const NoGradGuard no_grad;
  const amp::autocast region(test.images.device().type(), autocast, autocast.has_value());
  constexpr int64_t kBatch = 1024;
  double right = 0;
  for (int64_t i = 0; i < test.size(); i += kBatch) {
    const Tensor guess = model->forward(test.images.slice(0, i, i + kBatch)).argmax(1);
    right += (guess == test.labels.slice(0, i, i + kBatch)).sum().item();
  }
  return 100 * right / static_cast<double>(test.size());
}

}  // namespace sample
