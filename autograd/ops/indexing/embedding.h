// Rows of a table by number: one for each index, or the sum, mean or maximum of a bag of them.
#pragma once
#include <optional>

#include "halftape/autograd/tensor.h"

namespace halftape {

/// How the rows of a bag are combined. kMax is Max; kSum and kMean are shared with losses.
enum class BagMode : uint8_t { Sum, Mean, Max };
inline constexpr BagMode kMax = BagMode::Max;

/// Row indices[i…] of weight: (num, C), indices int64 or int32 of any shape → (…, C), dtype of
/// weight. Gradients of one row add up in a fixed order. The row `padding_idx` gets none; a
/// negative number counts from the end, even −1, which means none in at::embedding.
/// `scale_grad_by_freq`: a row's gradient is divided by how often the row is named. Throws where an
/// index names no row.
Tensor embedding(const Tensor& weight, const Tensor& indices,
                 std::optional<int64_t> padding_idx = {}, bool scale_grad_by_freq = false);

/// Rows of weight that are named and longer than max_norm, in the norm of order norm_type, are
/// scaled to that length; in place, without history.
Tensor embedding_renorm_(Tensor weight, const Tensor& indices, double max_norm,
                         double norm_type = 2);

/// Bags of rows of weight: (num, C) → (bags, C), dtype of weight. indices: (bags, length), or (n)
/// with `offsets`, (bags), where each bag begins: rising from 0, at most n, else it throws. A bag
/// without rows is 0. Equal maxima share the gradient. Halves are reduced in float32 and rounded
/// once.
/// per_sample_weights: factors of the rows, in the shape of indices and the dtype of weight; only
/// for sums. include_last_offset: offsets has one entry more, n, the end of the last bag. The row
/// padding_idx is left out, and not counted by the mean. Throws where an index names no row.
Tensor embedding_bag(const Tensor& weight, const Tensor& indices, const Tensor& offsets = {},
                     BagMode mode = BagMode::Mean, const Tensor& per_sample_weights = {},
                     bool include_last_offset = false, std::optional<int64_t> padding_idx = {},
                     bool scale_grad_by_freq = false);

}  // namespace halftape
