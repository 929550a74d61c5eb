// Losses, as functions: of classes, and of the elements of two tensors. `reduction` is what becomes
// of the single losses.
#pragma once
#include "halftape/autograd/tensor.h"

namespace halftape {

enum class Reduction : uint8_t { None, Mean, Sum };

/// −weight[t]·x[i, t] for log-probabilities x: (N, C) and classes t: (N) int64; (N, C, d1, …) and
/// (N, d1, …) for many places of a sample, (C) and () for one sample. Mean divides by the sum of
/// the weights used. Targets equal to ignore_index count nothing; others outside [0, C) throw.
/// Under autocast: float32.
Tensor nll_loss(const Tensor& x, const Tensor& target, const Tensor& weight = {},
                Reduction reduction = Reduction::Mean, int64_t ignore_index = -100);
/// nll_loss(log_softmax(x), target), with label smoothing towards the uniform distribution (Szegedy
/// et al. 2016). A floating-point target of x's shape holds the probabilities of all classes: the
/// loss is −Σ weight·target·log_softmax(x), its mean over the samples, and none is ignored.
Tensor cross_entropy(const Tensor& x, const Tensor& target, const Tensor& weight = {},
                     Reduction reduction = Reduction::Mean, int64_t ignore_index = -100,
                     double label_smoothing = 0);

// Element by element; shapes must be equal. Under autocast: float32, if nothing else is said.
/// (x − y)².
Tensor mse_loss(const Tensor& x, const Tensor& y, Reduction reduction = Reduction::Mean);
/// −weight·(pos_weight·y·ln σ(x) + (1 − y)·ln(1 − σ(x))), stable for any x.
Tensor binary_cross_entropy_with_logits(const Tensor& x, const Tensor& y, const Tensor& weight = {},
                                        const Tensor& pos_weight = {},
                                        Reduction reduction = Reduction::Mean);
/// −weight·(y·ln p + (1 − y)·ln(1 − p)), logarithms not below −100. Refused under autocast: in
/// half, p near 0 or 1 has no digits left; use binary_cross_entropy_with_logits.
Tensor binary_cross_entropy(const Tensor& p, const Tensor& y, const Tensor& weight = {},
                            Reduction reduction = Reduction::Mean);

}  // namespace halftape
