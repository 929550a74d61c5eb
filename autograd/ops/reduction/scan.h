// Running reductions along a dimension. Kept in double (int64) and rounded once.
#pragma once
#include <tuple>

#include "halftape/autograd/tensor.h"

namespace halftape {

/// y[i] = x[0] + … + x[i] along `dim`; integers give int64. `dtype`: x is converted first. Under
/// autocast: float32.
Tensor cumsum(const Tensor& x, int64_t dim, std::optional<Dtype> dtype = {});
/// y[i] = x[0] · … · x[i]. The gradient needs no division: zeros do no harm.
Tensor cumprod(const Tensor& x, int64_t dim, std::optional<Dtype> dtype = {});
/// The largest value so far, and the index of its last occurrence; NaN wins. The gradient goes to
/// the indices.
std::tuple<Tensor, Tensor> cummax(const Tensor& x, int64_t dim);
std::tuple<Tensor, Tensor> cummin(const Tensor& x, int64_t dim);
/// y[i] = ln(e^x[0] + … + e^x[i]) along `dim`, without leaving the range of x; −∞ of nothing but
/// −∞. Integers give the default float dtype.
Tensor logcumsumexp(const Tensor& x, int64_t dim);
/// x[i + 1] − x[i] along `dim`, n times over; before that `prepend` and `append`, of x's shape but
/// for `dim`, are joined to x.
Tensor diff(const Tensor& x, int64_t n = 1, int64_t dim = -1,
            const std::optional<Tensor>& prepend = {}, const std::optional<Tensor>& append = {});

namespace detail {
/// Running sums and products from either end, without casts. x has a dimension.
Tensor cumsum(const Tensor& x, int dim, bool reverse);
Tensor cumprod(const Tensor& x, int dim, bool reverse);
/// x moved by `steps` along `dim`, with `value` in the places that become free.
Tensor shifted(const Tensor& x, int dim, int64_t steps, Scalar value);
}  // namespace detail

}  // namespace halftape
