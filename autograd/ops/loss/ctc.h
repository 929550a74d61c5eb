// Connectionist temporal classification: the loss of sequences whose labels are not aligned with
// their steps.
#pragma once
#include <vector>

#include "halftape/autograd/ops/loss/loss.h"

namespace halftape {

/// −ln of the probability that a network says `targets`: the sum over all paths, one class a step,
/// that are the targets once repetitions are merged and blanks dropped.
/// log_probs: (T, N, C), log_softmax over the classes, or (T, C) without a batch; targets:
/// integers, (N, S), or those of all samples one after another; input_lengths, target_lengths: (N)
/// integers, or () without a batch → losses (N) or (). Mean divides each by its target's length, 1
/// at least, and takes the mean over the batch. A target that does not fit into its steps has the
/// loss ∞ and no gradient; with zero_infinity the loss 0. Gradients are those of the formula also
/// where log_probs are not normalised (PyTorch's suppose a log_softmax before; behind one, both are
/// the same). Halves are computed in float32 and rounded once; under autocast: float32. Waits for
/// targets and lengths on a device. Graves et al. 2006, ICML.
Tensor ctc_loss(const Tensor& log_probs, const Tensor& targets, const Tensor& input_lengths,
                const Tensor& target_lengths, int64_t blank = 0,
                Reduction reduction = Reduction::Mean, bool zero_infinity = false);
Tensor ctc_loss(const Tensor& log_probs, const Tensor& targets,
                const std::vector<int64_t>& input_lengths,
                const std::vector<int64_t>& target_lengths, int64_t blank = 0,
                Reduction reduction = Reduction::Mean, bool zero_infinity = false);

}  // namespace halftape
