// Tensors from nothing: constants, numbers, random values, memory of the caller's.
#pragma once
#include <initializer_list>
#include <vector>

#include "halftape/autograd/tensor.h"

namespace halftape {

/// Uninitialised.
Tensor empty(const Shape& shape, const TensorOptions& options = {});
Tensor full(const Shape& shape, Scalar value, const TensorOptions& options = {});
Tensor zeros(const Shape& shape, const TensorOptions& options = {});
Tensor ones(const Shape& shape, const TensorOptions& options = {});
/// (n, n) with ones on the diagonal.
Tensor eye(int64_t n, const TensorOptions& options = {});
Tensor empty_like(const Tensor& x);
Tensor zeros_like(const Tensor& x);
Tensor ones_like(const Tensor& x);
Tensor full_like(const Tensor& x, Scalar value);

/// start, start + step, … below end (above, for a negative step). int64 when all three are
/// integers.
Tensor arange(Scalar start, Scalar end, Scalar step = 1, const TensorOptions& options = {});
Tensor arange(Scalar end, const TensorOptions& options = {});
/// `steps` values from start to end, both included.
Tensor linspace(double start, double end, int64_t steps, const TensorOptions& options = {});

/// The values of a list; its dtype is the default one for floating-point lists, int64 for integers,
/// bool for bools.
Tensor tensor(Scalar value, const TensorOptions& options = {});
template <class T>
requires std::is_arithmetic_v<T> Tensor tensor(const std::vector<T>& values,
                                               const TensorOptions& options = {});
template <class T>
requires std::is_arithmetic_v<T> Tensor tensor(std::initializer_list<T> values,
                                               const TensorOptions& options = {}) {
  return tensor(std::vector<T>(values), options);
}
Tensor tensor(const std::vector<std::vector<double>>& rows, const TensorOptions& options = {});
inline Tensor tensor(std::initializer_list<std::vector<double>> rows,
                     const TensorOptions& options = {}) {
  return tensor(std::vector<std::vector<double>>(rows), options);
}

/// A CPU tensor over the caller's contiguous memory, which must outlive it; `deleter` is called
/// when the last handle goes. Dtype: options.dtype, float32 by default.
Tensor from_blob(void* data, const Shape& shape, const TensorOptions& options = {});
Tensor from_blob(void* data, const Shape& shape, void (*deleter)(void*),
                 const TensorOptions& options = {});

/// Uniform in [0, 1). All random factories draw from the device's default generator (manual_seed).
Tensor rand(const Shape& shape, const TensorOptions& options = {});
/// Standard normal.
Tensor randn(const Shape& shape, const TensorOptions& options = {});
/// Integers in [low, high), int64 by default.
Tensor randint(int64_t low, int64_t high, const Shape& shape, const TensorOptions& options = {});
/// A random order of 0 … n − 1, int64.
Tensor randperm(int64_t n, const TensorOptions& options = {});

}  // namespace halftape
