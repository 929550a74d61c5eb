// Gradient clipping, under LibTorch's names. With a GradScaler, call scaler.unscale_(optimizer)
// first: gradients that are still scaled are refused, and always those that are sums of gradients
// of different scales.
#pragma once
#include <compare>
#include <initializer_list>
#include <utility>
#include <vector>

#include "halftape/autograd/tensor.h"

namespace halftape::nn::utils {

/// Gradients that a GradScaler has yet to unscale: refused, or clipped on purpose, with a norm (or
/// value) that was multiplied by the scale as they are.
enum class ScaledGrads : uint8_t { Refuse, Allow };

/// What clip_grad_norm_ gives: a one-element tensor, and the number in it where one is expected, as
/// LibTorch gives a double. That alone waits for the device: `double norm = clip_grad_norm_(…)`.
class TotalNorm : public Tensor {
 public:
  explicit TotalNorm(Tensor norm) : Tensor(std::move(norm)) {}
  operator double() const { return item<double>(); }  // NOLINT: as LibTorch
  friend std::partial_ordering operator<=>(const TotalNorm& a, double b) {
    return static_cast<double>(a) <=> b;
  }
};

/// Scales all gradients so that their joint norm is at most max_norm; gives the norm before, as a
/// one-element float32 (float64) tensor. norm_type: 2, 1 or infinity, or any positive number.
/// Nothing is read back. A norm that is not finite leaves the gradients as they are (torch would
/// turn all of them into 0 or NaN), or throws with error_if_nonfinite (which waits for the device).
/// Throws unless max_norm > 0, and on scaled gradients.
TotalNorm clip_grad_norm_(const std::vector<Tensor>& parameters, double max_norm,
                          double norm_type = 2, bool error_if_nonfinite = false,
                          ScaledGrads scaled = ScaledGrads::Refuse);
/// Clamps every gradient element to [−clip_value, clip_value]. Throws on scaled gradients.
void clip_grad_value_(const std::vector<Tensor>& parameters, double clip_value,
                      ScaledGrads scaled = ScaledGrads::Refuse);

// The same for parameters in braces, and for one.
inline TotalNorm clip_grad_norm_(std::initializer_list<Tensor> parameters, double max_norm,
                                 double norm_type = 2, bool error_if_nonfinite = false,
                                 ScaledGrads scaled = ScaledGrads::Refuse) {
  return clip_grad_norm_(std::vector(parameters), max_norm, norm_type, error_if_nonfinite, scaled);
}
inline TotalNorm clip_grad_norm_(const Tensor& parameter, double max_norm, double norm_type = 2,
                                 bool error_if_nonfinite = false,
                                 ScaledGrads scaled = ScaledGrads::Refuse) {
  return clip_grad_norm_({parameter}, max_norm, norm_type, error_if_nonfinite, scaled);
}
inline void clip_grad_value_(std::initializer_list<Tensor> parameters, double clip_value,
                             ScaledGrads scaled = ScaledGrads::Refuse) {
  clip_grad_value_(std::vector(parameters), clip_value, scaled);
}
inline void clip_grad_value_(const Tensor& parameter, double clip_value,
                             ScaledGrads scaled = ScaledGrads::Refuse) {
  clip_grad_value_({parameter}, clip_value, scaled);
}

}  // namespace halftape::nn::utils
