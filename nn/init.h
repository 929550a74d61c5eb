// Initial values of parameters, in place and without history. Spelled as torch::nn::init.
#pragma once
#include <utility>

#include "halftape/autograd/tensor.h"

namespace halftape::nn::init {

enum class FanMode : uint8_t { FanIn, FanOut };
enum class Nonlinearity : uint8_t { Linear, ReLU, LeakyReLU, Tanh, Sigmoid };

Tensor uniform_(Tensor tensor, double low = 0, double high = 1);
Tensor normal_(Tensor tensor, double mean = 0, double std = 1);
Tensor constant_(Tensor tensor, Scalar value);
Tensor ones_(Tensor tensor);
Tensor zeros_(Tensor tensor);
/// Inputs and outputs of one unit: sizes 1 and 0, times the receptive field of a convolution. Needs
/// two dimensions.
std::pair<int64_t, int64_t> calculate_fan_in_and_fan_out(const Tensor& tensor);
/// The recommended gain; `a` is leaky_relu's negative slope.
double calculate_gain(Nonlinearity nonlinearity, double a = 0.01);
/// U(−b, b) with b = gain·√(3/fan).  He et al. 2015, arXiv:1502.01852.
Tensor kaiming_uniform_(Tensor tensor, double a = 0, FanMode mode = FanMode::FanIn,
                        Nonlinearity nonlinearity = Nonlinearity::LeakyReLU);
Tensor kaiming_normal_(Tensor tensor, double a = 0, FanMode mode = FanMode::FanIn,
                       Nonlinearity nonlinearity = Nonlinearity::LeakyReLU);
/// U(−b, b) with b = gain·√(6/(fan_in + fan_out)).  Glorot & Bengio 2010.
Tensor xavier_uniform_(Tensor tensor, double gain = 1);
Tensor xavier_normal_(Tensor tensor, double gain = 1);

}  // namespace halftape::nn::init
