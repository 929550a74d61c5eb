// New tensors: constants, numbers, sequences, the caller's memory. random.h has the random ones.
// Options that are left out mean the default dtype (get_default_dtype()), the default device
// (get_default_device()), no gradient.
#pragma once
#include <functional>

#include "halftape/autograd/ops/creation/list.h"
#include "halftape/autograd/tensor.h"

namespace halftape {

/// Uninitialised, row-major.
Tensor empty(const Shape& shape, const TensorOptions& options = {},
             std::optional<MemoryFormat> format = {});
/// Uninitialised, element (i, j, …) at i·strides[0] + j·strides[1] + …
Tensor empty_strided(const Shape& shape, const Strides& strides, const TensorOptions& options = {});
/// `value` everywhere. Without a dtype: int64 for an integer, bool for a bool. Throws when the
/// dtype cannot hold the value.
Tensor full(const Shape& shape, Scalar value, const TensorOptions& options = {});
Tensor zeros(const Shape& shape, const TensorOptions& options = {});
Tensor ones(const Shape& shape, const TensorOptions& options = {});
/// (n, m) with ones on the diagonal; m is n if left out.
Tensor eye(int64_t n, const TensorOptions& options = {});
Tensor eye(int64_t n, int64_t m, const TensorOptions& options = {});

// The shape of x, and its dtype and device unless options name others; row-major, without x's
// history.
Tensor empty_like(const Tensor& x, const TensorOptions& options = {},
                  std::optional<MemoryFormat> format = {});
Tensor zeros_like(const Tensor& x, const TensorOptions& options = {},
                  std::optional<MemoryFormat> format = {});
Tensor ones_like(const Tensor& x, const TensorOptions& options = {},
                 std::optional<MemoryFormat> format = {});
Tensor full_like(const Tensor& x, Scalar value, const TensorOptions& options = {},
                 std::optional<MemoryFormat> format = {});

/// start, start + step, … below end (above, for a negative step). int64 when all three are
/// integers. Throws when the step is 0, leads away from end, or an argument is not finite.
Tensor arange(Scalar start, Scalar end, Scalar step, const TensorOptions& options = {});
Tensor arange(Scalar start, Scalar end, const TensorOptions& options = {});
Tensor arange(Scalar end, const TensorOptions& options = {});
/// `steps` values from start to end at equal distances, both included.
Tensor linspace(Scalar start, Scalar end, int64_t steps, const TensorOptions& options = {});
/// base to the power of each value of linspace(start, end, steps).
Tensor logspace(Scalar start, Scalar end, int64_t steps, double base = 10,
                const TensorOptions& options = {});

/// The values of a number, a braced list nested to any depth, or a vector: tensor({{1, 2}, {3,
/// 4}}). Floats give the default dtype, integers int64, bools bool; other elements (uint8_t, Half)
/// their own. Throws where a list is ragged or mixes bools, integers and floats.
Tensor tensor(const detail::TensorDataContainer& values, const TensorOptions& options = {});
namespace detail {
/// Throws unless `dtype` can hold `value`, rounded if need be. Infinities fit every float, and all
/// numbers fit bool; negative numbers wrap in uint8, as LibTorch's.
void check_fits(const char* op, Scalar value, Dtype dtype);
/// `value` as a 0-dim tensor in x's dtype and on its device. Throws unless it fits.
Tensor number_like(const char* op, const Tensor& x, Scalar value);
}  // namespace detail
/// A 0-dim tensor in the default dtype, also for an integer.
Tensor scalar_tensor(Scalar value, const TensorOptions& options = {});

/// A CPU tensor over the caller's memory. The memory must outlive the tensor, unless `deleter`
/// (anything that takes a void*) frees it when the last handle goes. Row-major unless strides are
/// given. The bytes of a bool must be 0 or 1: they are not read here. If from_blob throws, it has
/// not called the deleter.
Tensor from_blob(void* data, const Shape& shape, const TensorOptions& options = {});
Tensor from_blob(void* data, const Shape& shape, const std::function<void(void*)>& deleter,
                 const TensorOptions& options = {});
Tensor from_blob(void* data, const Shape& shape, const Strides& strides,
                 const TensorOptions& options = {});
Tensor from_blob(void* data, const Shape& shape, const Strides& strides,
                 const std::function<void(void*)>& deleter, const TensorOptions& options = {});

}  // namespace halftape
