// Normalisation: values brought to mean 0 and variance 1, or to length 1. Statistics in float32
// (float64), from deviations of the mean; results are rounded once. Undefined weights and biases
// mean 1 and 0; defined ones may have another floating dtype than x.
#pragma once
#include "halftape/autograd/tensor.h"

namespace halftape {

struct RunningStats;

/// (x − mean)/√(variance + eps)·weight + bias over the last dimensions, whose sizes are
/// `normalized_shape`, those of weight and bias, too. Throws when x does not end in them. Under
/// autocast: float32. Ba, Kiros & Hinton 2016, arXiv:1607.06450.
Tensor layer_norm(const Tensor& x, const Shape& normalized_shape, const Tensor& weight = {},
                  const Tensor& bias = {}, double eps = 1e-5);

/// x/√(mean(x²) + eps)·weight over the last dimensions. `eps`: epsilon of float32 (float64) unless
/// given. Under autocast: float32. Zhang & Sennrich 2019, arXiv:1910.07467.
Tensor rms_norm(const Tensor& x, const Shape& normalized_shape, const Tensor& weight = {},
                std::optional<double> eps = {});

/// (x − mean)/√(variance + eps)·weight + bias for each channel of x (N, C, …). In training mean and
/// variance are those of the batch, and running_mean ← (1 − momentum)·running_mean +
/// momentum·mean, running_var with the unbiased variance likewise; otherwise they are the running
/// ones. Running statistics (C) may be undefined in training. With `skip_nonfinite`, a batch in
/// which a channel's statistics are not finite (an overflow in half) leaves all running statistics
/// bit for bit as they are, which the device decides by itself. Throws in training when channels
/// have one value each. Ioffe & Szegedy 2015, arXiv:1502.03167.
Tensor batch_norm(const Tensor& x, const Tensor& running_mean, const Tensor& running_var,
                  const Tensor& weight = {}, const Tensor& bias = {}, bool training = false,
                  double momentum = 0.1, double eps = 1e-5, bool skip_nonfinite = true);

/// layer_norm over groups of neighbouring channels of x (N, C, …), with a weight and a bias for
/// each channel. Throws unless num_groups divides C. Under autocast: float32. Wu & He 2018,
/// arXiv:1803.08494.
Tensor group_norm(const Tensor& x, int64_t num_groups, const Tensor& weight = {},
                  const Tensor& bias = {}, double eps = 1e-5);

/// batch_norm of every sample by itself: x (N, C, …). Running statistics, which may be undefined,
/// take the mean over the samples; with use_input_stats = false they are used. Throws when
/// channels have one value each. Ulyanov, Vedaldi & Lempitsky 2016, arXiv:1607.08022.
Tensor instance_norm(const Tensor& x, const Tensor& running_mean = {},
                     const Tensor& running_var = {}, const Tensor& weight = {},
                     const Tensor& bias = {}, bool use_input_stats = true, double momentum = 0.1,
                     double eps = 1e-5, bool skip_nonfinite = true);

/// x/(k + alpha·m)^beta, where m is the mean of x² over `size` neighbouring channels, zeros beyond
/// the first and the last. x: (N, C, …), three dimensions at least. Under autocast: float32.
/// Krizhevsky, Sutskever & Hinton 2012.
Tensor local_response_norm(const Tensor& x, int64_t size, double alpha = 1e-4, double beta = 0.75,
                           double k = 1);

/// x/max(‖x‖ₚ, eps) along `dim`. Under autocast: float32.
Tensor normalize(const Tensor& x, double p = 2, int64_t dim = 1, double eps = 1e-12);

namespace detail {
/// batch_norm in training with all that a layer keeps of it.
Tensor batch_norm(const Tensor& x, const RunningStats& running, const Tensor& weight,
                  const Tensor& bias, double eps);
}  // namespace detail

}  // namespace halftape
