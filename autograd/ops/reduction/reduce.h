// Reductions. `dims` empty: all dimensions; a number is a list of one. Accumulated in float32
// (float64, int64) and rounded once.
#pragma once
#include <tuple>

#include "halftape/autograd/tensor.h"

namespace halftape {

/// The sum over `dims`; integers give int64. `dtype`: x is summed in it, and the result has it.
/// Under autocast: float32.
Tensor sum(const Tensor& x, const Dims& dims = {}, bool keepdim = false,
           std::optional<Dtype> dtype = {});
inline Tensor sum(const Tensor& x, Dtype dtype) { return sum(x, {}, false, dtype); }
/// The sum with NaN counted as 0.
Tensor nansum(const Tensor& x, const Dims& dims = {}, bool keepdim = false,
              std::optional<Dtype> dtype = {});
/// The mean over `dims`; floating-point tensors only, or `dtype` a floating-point one. NaN of
/// nothing.
Tensor mean(const Tensor& x, const Dims& dims = {}, bool keepdim = false,
            std::optional<Dtype> dtype = {});
inline Tensor mean(const Tensor& x, Dtype dtype) { return mean(x, {}, false, dtype); }
/// The mean of the elements that are not NaN.
Tensor nanmean(const Tensor& x, const Dims& dims = {}, bool keepdim = false,
               std::optional<Dtype> dtype = {});
/// The product of all elements, or along one dimension; integers give int64 (and wrap around). The
/// gradient needs no division: zeros do no harm. Under autocast: float32.
Tensor prod(const Tensor& x, std::optional<Dtype> dtype = {});
Tensor prod(const Tensor& x, int64_t dim, bool keepdim = false, std::optional<Dtype> dtype = {});

/// The largest value; NaN wins. Equal largest values share the gradient. Throws on an empty extent.
Tensor amax(const Tensor& x, const Dims& dims = {}, bool keepdim = false);
Tensor amin(const Tensor& x, const Dims& dims = {}, bool keepdim = false);
std::tuple<Tensor, Tensor> aminmax(const Tensor& x, std::optional<int64_t> dim = {},
                                   bool keepdim = false);
/// Index (int64) of the first largest value along a dimension, or in the flattened tensor. NaN
/// wins.
Tensor argmax(const Tensor& x, std::optional<int64_t> dim = {}, bool keepdim = false);
Tensor argmin(const Tensor& x, std::optional<int64_t> dim = {}, bool keepdim = false);
/// All elements: as amax. Along one dimension: values, and the indices of the first of equals; the
/// gradient goes to these alone. Of two tensors: element by element, as maximum().
Tensor max(const Tensor& x);
Tensor min(const Tensor& x);
std::tuple<Tensor, Tensor> max(const Tensor& x, int64_t dim, bool keepdim = false);
std::tuple<Tensor, Tensor> min(const Tensor& x, int64_t dim, bool keepdim = false);
Tensor max(const Tensor& a, const Tensor& b);
Tensor min(const Tensor& a, const Tensor& b);

/// True if any element, or every element, is not 0, as bool. NaN is not 0. Of no elements: false,
/// true.
Tensor any(const Tensor& x, const Dims& dims = {}, bool keepdim = false);
Tensor all(const Tensor& x, const Dims& dims = {}, bool keepdim = false);
/// The number of elements that are not 0, int64.
Tensor count_nonzero(const Tensor& x, const Dims& dims = {});

}  // namespace halftape
