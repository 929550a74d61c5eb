// Losses of classes, and of the elements of two tensors. `reduction` says how the single losses are
// combined. margin_loss.h has those of margins and distances. Halves are computed in float32 and
// rounded once.
#pragma once
#include "halftape/autograd/tensor.h"

namespace halftape {

/// BatchMean: their sum over the number of samples; for kl_div alone.
enum class Reduction : uint8_t { None, Mean, Sum, BatchMean };

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

// Element by element; shapes must be equal. Under autocast: float32, unless another is stated.
/// (x − y)².
Tensor mse_loss(const Tensor& x, const Tensor& y, Reduction reduction = Reduction::Mean);
/// |x − y|.
Tensor l1_loss(const Tensor& x, const Tensor& y, Reduction reduction = Reduction::Mean);
/// (x − y)²/(2·beta) where |x − y| < beta, |x − y| − beta/2 elsewhere; beta 0 is l1_loss.
/// Girshick 2015, arXiv:1504.08083. Throws if beta is negative.
Tensor smooth_l1_loss(const Tensor& x, const Tensor& y, Reduction reduction = Reduction::Mean,
                      double beta = 1);
/// (x − y)²/2 where |x − y| < delta, delta·(|x − y| − delta/2) elsewhere. Huber 1964. Throws unless
/// delta is positive.
Tensor huber_loss(const Tensor& x, const Tensor& y, Reduction reduction = Reduction::Mean,
                  double delta = 1);
/// y·(ln y − x) for log-probabilities x and probabilities y, 0 where y is 0; with log_target, y is
/// a logarithm too: eʸ·(y − x). Mean is over all elements; the divergence of distributions is
/// BatchMean, the sum over the size of the first dimension.
Tensor kl_div(const Tensor& x, const Tensor& y, Reduction reduction = Reduction::Mean,
              bool log_target = false);
/// eˣ − y·x, or x − y·ln(x + eps) without log_input, for counts y; `full` adds Stirling's
/// approximation of ln y!, y·ln y − y + ln(2πy)/2, where y > 1.
Tensor poisson_nll_loss(const Tensor& x, const Tensor& y, bool log_input = true, bool full = false,
                        double eps = 1e-8, Reduction reduction = Reduction::Mean);
/// (ln v + (x − y)²/v)/2 with v = max(var, eps), whose derivative is not cut off at eps; `full`
/// adds ln(2π)/2. var: x's shape, with a last dimension of 1, or without the last dimension.
/// Nix & Weigend 1994. Throws unless eps is positive. A negative variance counts as eps.
Tensor gaussian_nll_loss(const Tensor& x, const Tensor& y, const Tensor& var, bool full = false,
                         double eps = 1e-6, Reduction reduction = Reduction::Mean);
/// −weight·(pos_weight·y·ln σ(x) + (1 − y)·ln(1 − σ(x))), stable for any x.
Tensor binary_cross_entropy_with_logits(const Tensor& x, const Tensor& y, const Tensor& weight = {},
                                        const Tensor& pos_weight = {},
                                        Reduction reduction = Reduction::Mean);
/// −weight·(y·ln p + (1 − y)·ln(1 − p)), logarithms not below −100. On the CPU it throws for
/// numbers outside of [0, 1]. Refused under autocast: in half, p near 0 or 1 has no digits left;
/// use binary_cross_entropy_with_logits.
Tensor binary_cross_entropy(const Tensor& p, const Tensor& y, const Tensor& weight = {},
                            Reduction reduction = Reduction::Mean);

}  // namespace halftape
