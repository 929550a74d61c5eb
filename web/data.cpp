// The two sets, and the drawing that is to look like one of the digits.
#include <algorithm>
#include <cmath>

#include "halftape/autograd/ops/creation/create.h"
#include "halftape/core/random/mt19937.h"
#include "halftape/io/data/sets/image_sets.h"
#include "lab.h"

using namespace halftape;

namespace lab {
namespace {

Samples samples(const std::vector<float>& inputs, const std::vector<int64_t>& labels) {
  const auto n = static_cast<int64_t>(labels.size());
  return {tensor(inputs, kFloat32).reshape({n, -1}), tensor(labels, kInt64)};
}

Dataset digits() {
  const data::Split split = data::digits();
  Dataset d{{}, {}, 64, 10};
  const auto n = static_cast<double>(split.train.pixels.size());
  double squares = 0;
  for (const uint8_t p : split.train.pixels) d.mean += p / n;
  for (const uint8_t p : split.train.pixels) squares += (p - d.mean) * (p - d.mean) / n;
  d.deviation = std::sqrt(squares);
  const auto scaled = [&](const data::Images& images) {
    std::vector<float> x;
    for (const uint8_t p : images.pixels)
      x.push_back(static_cast<float>((p - d.mean) / d.deviation));
    return samples(x, {images.labels.begin(), images.labels.end()});
  };
  d.train = scaled(split.train);
  d.test = scaled(split.test);
  return d;
}

/// Two arms of a spiral around the origin, 1¼ turns each, with a little noise; within ±2.
Dataset spirals(uint64_t seed) {
  Mt19937 draw(static_cast<uint32_t>(seed));
  const auto points = [&](int n) {
    std::vector<float> x;
    std::vector<int64_t> labels;
    for (int i = 0; i < n; ++i) {
      const int arm = i % 2;
      const double along = std::sqrt(draw.uniform()), turn = 2.5 * M_PI * along + M_PI * arm;
      for (const double c : {std::cos(turn), std::sin(turn)})
        x.push_back(
            static_cast<float>(1.8 * along * c + 0.1 * (draw.uniform() + draw.uniform() - 1)));
      labels.push_back(arm);
    }
    return samples(x, labels);
  };
  Dataset d{{}, {}, 2, 2};
  d.train = points(1024);
  d.test = points(512);
  return d;
}

}  // namespace

Dataset make_dataset(Data data, uint64_t seed) {
  return data == Data::Digits ? digits() : spirals(seed);
}

std::array<uint8_t, 64> as_digit(const uint8_t* ink, int width, int height) {
  std::array<uint8_t, 64> digit{};
  int left = width, right = -1, top = height, bottom = -1;
  for (int y = 0; y < height; ++y)
    for (int x = 0; x < width; ++x)
      if (ink[y * width + x] >= 128) {
        left = std::min(left, x), right = std::max(right, x);
        top = std::min(top, y), bottom = std::max(bottom, y);
      }
  if (right < 0) return digit;
  // The digits of the set fill the height of their 32 cells, and at most 26 of the width.
  const double w = right - left + 1, h = bottom - top + 1;
  const double size = std::max(h / 32, w / 26);  // of a cell, in pixels
  const double x0 = left + w / 2 - 16 * size, y0 = top + h / 2 - 16 * size;
  for (int row = 0; row < 32; ++row)
    for (int column = 0; column < 32; ++column) {
      const int x = static_cast<int>(std::floor(x0 + (column + 0.5) * size));
      const int y = static_cast<int>(std::floor(y0 + (row + 0.5) * size));
      if (x < 0 || y < 0 || x >= width || y >= height || ink[y * width + x] < 128) continue;
      ++digit[static_cast<size_t>(row / 4 * 8 + column / 4)];
    }
  return digit;
}

}  // namespace lab
