// Initial values of parameters, in place and without history. Spelled as torch::nn::init.
#pragma once
#include <utility>

#include "halftape/autograd/tensor.h"

namespace halftape::nn::init {

/// Spelled kFanIn and kFanOut, kLinear, kReLU and so on, as below.
enum class FanMode : uint8_t { FanIn, FanOut };
enum class Nonlinearity : uint8_t { Linear, ReLU, LeakyReLU, Tanh, Sigmoid };
using FanModeType = FanMode;
using NonlinearityType = Nonlinearity;

/// In place and unrecorded, as all functions here: U(low, high), N(mean, std²), or one value.
Tensor uniform_(const Tensor& tensor, double low = 0, double high = 1);
Tensor normal_(const Tensor& tensor, double mean = 0, double std = 1);
Tensor constant_(const Tensor& tensor, Scalar value);
Tensor ones_(const Tensor& tensor);
Tensor zeros_(const Tensor& tensor);
/// The identity, for a tensor of two dimensions.
Tensor eye_(const Tensor& matrix);
/// A convolution (out, in, kernel…) that copies channel i to channel i, from the middle of the
/// kernel. Three to five dimensions.
Tensor dirac_(const Tensor& tensor);
/// gain times a random matrix (sizes 1 and up as one) with orthonormal rows, or columns if there
/// are fewer columns.  Saxe et al. 2013, arXiv:1312.6120. Gram-Schmidt in float64: n³ operations.
Tensor orthogonal_(const Tensor& tensor, double gain = 1);
/// N(0, std²), with ⌈sparsity·rows⌉ zeros at random places of each column.  Martens 2010.
Tensor sparse_(const Tensor& matrix, double sparsity, double std = 0.01);
/// Inputs and outputs of one unit: sizes 1 and 0, times the receptive field of a convolution. Needs
/// two dimensions.
std::pair<int64_t, int64_t> calculate_fan_in_and_fan_out(const Tensor& tensor);
/// The recommended gain, 1 for a layer without a nonlinearity; `a` is leaky_relu's negative slope.
double calculate_gain(Nonlinearity nonlinearity, double a = 0.01);
/// U(−b, b) with b = gain·√(3/fan).  He et al. 2015, arXiv:1502.01852.
Tensor kaiming_uniform_(const Tensor& tensor, double a = 0, FanMode mode = FanMode::FanIn,
                        Nonlinearity nonlinearity = Nonlinearity::LeakyReLU);
Tensor kaiming_normal_(const Tensor& tensor, double a = 0, FanMode mode = FanMode::FanIn,
                       Nonlinearity nonlinearity = Nonlinearity::LeakyReLU);
/// U(−b, b) with b = gain·√(6/(fan_in + fan_out)).  Glorot & Bengio 2010.
Tensor xavier_uniform_(const Tensor& tensor, double gain = 1);
Tensor xavier_normal_(const Tensor& tensor, double gain = 1);

}  // namespace halftape::nn::init

namespace halftape {
inline constexpr auto kFanIn = nn::init::FanMode::FanIn, kFanOut = nn::init::FanMode::FanOut;
inline constexpr auto kLinear = nn::init::Nonlinearity::Linear, kConv1D = kLinear,
                      kConv2D = kLinear, kConv3D = kLinear, kConvTranspose1D = kLinear,
                      kConvTranspose2D = kLinear, kConvTranspose3D = kLinear,
                      kSigmoid = nn::init::Nonlinearity::Sigmoid,
                      kTanh = nn::init::Nonlinearity::Tanh, kReLU = nn::init::Nonlinearity::ReLU,
                      kLeakyReLU = nn::init::Nonlinearity::LeakyReLU;
}  // namespace halftape
