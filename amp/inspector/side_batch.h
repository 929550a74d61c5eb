// One batch computed beside the training: its gradients with autocast at any loss scale, and in
// float32; internal to the tools.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "halftape/amp/inspector/value_counter.h"
#include "halftape/core/random/random.h"
#include "halftape/nn/module.h"

namespace halftape::amp {

/// Keeps a model's buffers and all random generators as they are: what happens while it lives
/// begins with other random numbers, and is undone.
class [[nodiscard]] StateKeeper {
 public:
  [[nodiscard]] StateKeeper(const nn::Module& model, const RandomState& begin);
  ~StateKeeper();
  StateKeeper(const StateKeeper&) = delete;
  StateKeeper& operator=(const StateKeeper&) = delete;

 private:
  struct Kept {
    Tensor tensor;
    Array value, copy;
    uint64_t version;
  };
  void keep(const Tensor& t);
  RandomScope random_;
  std::vector<Kept> kept_;
};

/// The loss of a batch, computed once as it is, and once with autocast to float32 if `float32` is
/// set. Until it is destroyed, buffers are as the former left them.
class SideBatch {
 public:
  /// What one backward pass gave.
  struct Result {
    std::vector<ClassCounts> classes;  // of each place
    std::vector<ExponentCounts> bins;  // of each place
    std::vector<ExponentCounts> parameter_bins;
    std::vector<double> errors;  // of each parameter; empty without float32
    bool overflows = false;      // a parameter's gradient is not finite
  };

  /// Both losses are computed with the random numbers that follow `begin`.
  SideBatch(const nn::Module& model, const std::function<Tensor()>& loss, const RandomState& begin,
            bool float32);
  /// Gradients that are stored in 16 bits and have their like in float32.
  const std::vector<LedgerPlace>& places() const { return places_; }
  const std::vector<ExponentCounts>& float32() const { return float32_; }
  const std::vector<std::string>& parameters() const { return names_; }
  const std::vector<ExponentCounts>& float32_parameters() const { return float32_parameters_; }
  bool loss_is_finite() const;
  /// One backward pass with the loss multiplied by `scale`.
  Result at(double scale, bool bins);
  /// The same without counting anything: true if all gradients of parameters are finite.
  bool passes(double scale);

 private:
  /// The n-th gradient that arrives at an output of the n-th such op of a pass.
  struct Seen {
    std::string key;
    size_t event;
  };
  static std::vector<Seen> gradients_of(const ValueCounter& counter, bool stored16);
  TensorList backward(const Tensor& loss, double scale, ValueWatcher* watcher);
  std::vector<ExponentCounts> bins_of_parameters(const ValueCounter& counter) const;
  void pair_up();

  ValueCounter counter_, float32_counter_;
  std::vector<std::string> names_;
  TensorList parameters_, true_gradients_;  // undefined where a parameter has none
  Tensor loss_;
  std::vector<std::string> keys_;  // of places_
  std::vector<LedgerPlace> places_;
  std::vector<ExponentCounts> float32_, float32_parameters_;
  // To the end: a checkpoint computes forward again in backward.
  std::optional<StateKeeper> keeper_;
};

}  // namespace halftape::amp
