// Gradient clipping, under LibTorch's names. With a GradScaler, call scaler.unscale_(optimizer)
// first: gradients that are still scaled throw, and so do sums of gradients of different scales.
#pragma once
#include <ostream>
#include <utility>

#include "halftape/autograd/tensor.h"
#include "halftape/core/array_ref.h"

namespace halftape::nn::utils {

/// Whether to clip gradients that a GradScaler has yet to unscale. With Allow, the caller has
/// multiplied the norm (or value) by the scale.
enum class ScaledGrads : uint8_t { Refuse, Allow };

/// The result of clip_grad_norm_: a number, as LibTorch returns, that is still on its device. It
/// also converts to the tensor of one element that it is. Only a conversion to double, item() and
/// printing wait for the device.
class TotalNorm {
 public:
  explicit TotalNorm(Tensor norm) : norm_(std::move(norm)) {}
  operator double() const { return norm_.item<double>(); }  // NOLINT: as LibTorch
  operator const Tensor&() const { return norm_; }          // NOLINT: both are wanted
  template <class T = double>
  T item() const {
    return norm_.item<T>();
  }
  friend std::ostream& operator<<(std::ostream& out, const TotalNorm& norm) {
    return out << static_cast<double>(norm);
  }

 private:
  Tensor norm_;
};

/// Scales all gradients so that their joint norm is at most max_norm; returns the norm before, as a
/// one-element float32 (float64) tensor. norm_type: 2, 1, infinity, or any positive number. Does
/// not wait for the device. An infinite or NaN norm leaves the gradients unchanged (torch turns
/// them into 0 or NaN), or throws with error_if_nonfinite, which waits. Throws unless max_norm > 0,
/// and on scaled gradients.
TotalNorm clip_grad_norm_(ArrayRef<Tensor> parameters, double max_norm, double norm_type = 2,
                          bool error_if_nonfinite = false,
                          ScaledGrads scaled = ScaledGrads::Refuse);
/// Clamps every gradient element to [−clip_value, clip_value]. Throws on scaled gradients.
void clip_grad_value_(ArrayRef<Tensor> parameters, double clip_value,
                      ScaledGrads scaled = ScaledGrads::Refuse);

}  // namespace halftape::nn::utils
