// Networks that learn the digits, for exercises that measure. Without tensors, so that a test which
// includes this compiles fast.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace course {

/// A network, and how its loss is computed.
struct Net {
  std::string name;
  std::vector<int64_t> hidden = {64, 64};
  int64_t batch = 128;
  double factor =
      1;  // of the loss, before any loss weight: the number of images turns a mean into a sum
};

/// Numbers by powers of two: counts[i] of them have 2^(i − 80) ≤ |x| < 2^(i − 79).
struct Histogram {
  static constexpr int kLeast = -80;
  std::array<int64_t, 100> counts{};
  int64_t zeros = 0;
};

/// The gradients of the outputs of all layers in float32, at loss weight 1, from some steps of a
/// training.
Histogram activation_gradients(const Net& net);

/// In percent: after a training with float16 products and no scaler, with this weight of the loss.
double accuracy_in_float16(const Net& net, double loss_weight);

/// What the weight gradient of a linear layer is made of, in float32: g[o][i] = Σ_b delta[b][o] ·
/// input[b][i].
struct Layer {
  int64_t batch = 0, in = 0, out = 0;
  std::vector<float> input;  // (batch, in)
  std::vector<float> delta;  // (batch, out): the gradients of the layer's outputs
};

/// Layer number `index` of the net in a step of a training, at this weight of the loss.
Layer recorded_layer(const Net& net, size_t index, double loss_weight);

/// A line of the log of a training with a GradScaler.
struct LogLine {
  int step = 0;
  double loss = 0;           // without weight and scale
  double scale = 1;          // in this step
  bool skipped = false;      // a gradient or the loss was infinite or NaN
  std::string first_bad;     // the first parameter whose gradient was, if the step was skipped
  double gradient_norm = 0;  // of all parameters, divided by scale and weight
  double zeros = 0;          // share of the activation gradients that are 0
};
using Log = std::vector<LogLine>;

enum class Cause {
  Healthy,           // maybe with some skipped steps at first, until the scale fits
  GradientsVanish,   // float16 turns them into 0
  LearningRate,      // too high
  BadData,           // a few samples hold numbers that are not finite
  ForwardOverflow,   // values of the network leave float16's range on the way to the loss
  GradientInfinite,  // a rule divides by 0: at no scale are all gradients finite
};

struct RecordedRun {
  Cause cause = Cause::Healthy;
  Log log;
};
/// Twelve trainings, two of each cause, in an order and with settings that depend on the seed.
std::vector<RecordedRun> recorded_runs(uint64_t seed);

}  // namespace course
