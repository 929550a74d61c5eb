// What the page trains: a small network, a few steps at a time, and where its gradients lie
// meanwhile. Without a page, too: native.cpp runs it in a terminal.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "halftape/amp/grad_scaler.h"
#include "halftape/amp/tools/exponents.h"
#include "halftape/autograd/tensor.h"
#include "halftape/nn/modules/linear.h"
#include "halftape/optim/algorithms/first_order.h"

namespace lab {

enum class Data : uint8_t { Digits, Spirals };
enum class Precision : uint8_t { Float32, Fp16, ScaledFp16, Bfloat16 };

struct Settings {
  Data data = Data::Digits;
  Precision precision = Precision::ScaledFp16;
  double loss_weight = 1e-5;
  bool fixed_scale = false;
  double scale = 65536;  // the first one
  int64_t growth_interval = 20;
  double lr = 1e-3;
  uint64_t seed = 0;
  int64_t batch = 128;
  std::vector<int64_t> widths{64, 64};  // of the hidden layers, at most kMostLayers
  static constexpr size_t kMostLayers = 4;
  /// Throws halftape::Error, which names the setting, if one makes no sense.
  void check() const;
};

/// A batch or a whole set: (n, features) of float32 and (n) of int64.
struct Samples {
  halftape::Tensor inputs, labels;
};
struct Dataset {
  Samples train, test;
  int64_t features, classes;
  double mean = 0, deviation = 1;  // the inputs are (value − mean) / deviation
};
/// `seed` draws the spirals' noise; the digits are always the same.
Dataset make_dataset(Data data, uint64_t seed);

/// The gradients of one linear layer in one backward pass.
struct LayerLedger {
  halftape::amp::ExponentCounts stored;  // of its outputs, times the scale, in the dtype they had
  halftape::amp::ExponentCounts exact;   // the same in a float32 pass, not scaled
  halftape::amp::ExponentCounts weight;  // of its weight: float32 numbers, times the scale
  double error;  // of the weight's gradient: ‖g / scale − exact‖ / ‖exact‖; inf if not finite
};
struct Ledger {
  int64_t step;  // the pass is the one of this step, the first is 0
  double scale;
  std::vector<LayerLedger> layers;
};

struct Step {
  double loss;   // before its weight
  double scale;  // that it was multiplied by
  bool applied;  // false: skipped, because a gradient was not finite
};

class Lab {
 public:
  /// Throws as Settings::check().
  explicit Lab(const Settings& settings);
  Step step();
  int64_t steps() const { return steps_; }
  int64_t skipped() const { return skipped_; }
  double scale() const { return scaler_.get_scale(); }
  size_t layers() const { return layers_.size(); }
  const Dataset& data() const { return data_; }
  /// Percent of the test samples, in the precision of the training.
  double accuracy() const;
  /// FNV-1a of all parameters, 16 hexadecimal digits; all NaN count as one.
  std::string hash() const;
  /// (n, classes): probabilities of (n, features) inputs as they are in the dataset's own units.
  halftape::Tensor probabilities(const halftape::Tensor& values) const;

  /// The gradients that the next step will have, or at another scale would have. Changes nothing.
  Ledger ledger();
  Ledger ledger_at(double scale);

 private:
  struct Pass {
    std::vector<halftape::Tensor> outputs, weights;  // gradients, by layer
  };
  halftape::Tensor forward(const halftape::Tensor& x,
                           std::vector<halftape::Tensor>* outputs = nullptr) const;
  std::optional<halftape::Dtype> lower() const;
  const Samples& batch();
  Pass backward(std::optional<halftape::Dtype> dtype, double scale);
  const Pass& exact();

  Settings settings_;
  Dataset data_;
  std::vector<halftape::nn::Linear> layers_;
  std::unique_ptr<halftape::optim::Adam> optimizer_;
  halftape::amp::GradScaler scaler_;
  halftape::Tensor order_;
  std::optional<Samples> batch_;  // of the next step, once somebody asked for it
  std::optional<Pass> exact_;     // its float32 gradients
  int64_t at_ = 0, steps_ = 0, skipped_ = 0;
};

/// A drawing as the embedded digits are made: its ink is fitted into 32x32 cells, and each of 8x8
/// numbers counts the dark ones of 16. All zeros for an empty drawing.
std::array<uint8_t, 64> as_digit(const uint8_t* ink, int width, int height);

}  // namespace lab
