// Softmax and its logarithm. Statistics in float32. Under autocast: float32.
#pragma once
#include "halftape/autograd/tensor.h"

namespace halftape {

/// e^xᵢ / Σ e^xⱼ along `dim`, computed from x − max(x). `dtype`: x is converted first.
Tensor softmax(const Tensor& x, int64_t dim, std::optional<Dtype> dtype = {});
/// log(softmax(x)) = x − max(x) − log Σ e^(xⱼ − max(x)).
Tensor log_softmax(const Tensor& x, int64_t dim, std::optional<Dtype> dtype = {});

/// softmax(−x): the smallest element gets the largest share.
Tensor softmin(const Tensor& x, int64_t dim, std::optional<Dtype> dtype = {});

}  // namespace halftape
