// The trainings that the lab can look at: one batch at a time.
#pragma once
#include <halftape/halftape.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace lab {

struct TrainingOptions {
  halftape::Dtype dtype = halftape::kFloat16;  // of autocast; float32: no autocast
  double loss_weight = 1;
  std::optional<double> lr;              // none: as the sample has it
  std::optional<int64_t> epochs, steps;  // of one of them; none: as the sample has it
  uint64_t seed = 0;
  halftape::Device device;
};

class Training {
 public:
  virtual ~Training() = default;

  virtual halftape::nn::Module& model() = 0;
  virtual halftape::optim::Optimizer& optimizer() = 0;
  virtual int64_t steps() const = 0;
  /// Good steps in a row after which the scale grows, as the sample has it.
  virtual int64_t growth_interval() const = 0;

  /// Begins a step: draws its batch, and sets the learning rate.
  virtual void next_batch() = 0;
  /// The weighted loss of the batch, under autocast; each call computes it again.
  virtual halftape::Tensor loss() = 0;
  /// The same of a batch that is always the same one, so that two moments can be compared.
  virtual halftape::Tensor loss_of_fixed_batch() = 0;
  /// After backward(): what the sample does between that and the step, such as clipping.
  virtual void before_step(halftape::amp::GradScaler&) {}
  /// How good the model is now.
  virtual double measure() = 0;
  /// What measure() gives: "test accuracy in percent".
  virtual std::string measure_name() const = 0;
  /// Steps after which it is worth to measure.
  virtual bool measures_after(int64_t step) const = 0;

  virtual std::string data_text() const = 0, model_text() const = 0;
};

/// Handwritten digits, as samples/train_digits.
std::unique_ptr<Training> train_digits(const TrainingOptions& options);
/// A small GPT on sentences of a grammar, as samples/char_gpt.
std::unique_ptr<Training> train_char_gpt(const TrainingOptions& options);

/// The number of elements of all parameters.
int64_t count_parameters(const halftape::nn::Module& model);

}  // namespace lab
