// Picking and placing elements by number. Indices are int64; one out of range throws before
// anything is written. Tensor::index({…}) stands in autograd/indexing.h.
#pragma once
#include <string_view>

#include "halftape/autograd/tensor.h"

namespace halftape {

struct IndexUse;

/// y[i…] = x[… index[i…] …]: along `dim` the position comes from `index`, whose other sizes do not
/// exceed x's. Negative indices are out of range, as in scatter.
Tensor gather(const Tensor& x, int64_t dim, const Tensor& index);
/// x with y[… index[i…] …] = src[i…]. The index's sizes exceed neither src's nor, but for `dim`,
/// x's. Of equal positions the last stays; the gradient of src does not know which (as PyTorch's).
Tensor scatter(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src);
Tensor scatter(const Tensor& x, int64_t dim, const Tensor& index, Scalar value);
/// x, with src added at index along dim: the derivative of gather. Repeated positions add up in a
/// fixed order. Under autocast: the widest dtype.
Tensor scatter_add(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src);
/// x, where each element is reduced with all src[i…] whose index points to it: `reduce` is "sum",
/// "prod", "mean", "amax" or "amin". Without `include_self`, the elements that are pointed to do
/// not take part. In a fixed order; halves are reduced in float32 and rounded once. Equal extremes
/// share the gradient; the gradient of a product is right where factors are 0.
Tensor scatter_reduce(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src,
                      std::string_view reduce, bool include_self = true);
/// LibTorch's older spelling of two of them: `reduce` is "add" or "multiply".
Tensor scatter(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src,
               std::string_view reduce);
Tensor scatter(const Tensor& x, int64_t dim, const Tensor& index, Scalar value,
               std::string_view reduce);

/// Whole slices of a dimension, in the order of `index` (one-dimensional or a number; int32 too).
Tensor index_select(const Tensor& x, int64_t dim, const Tensor& index);
/// x, with alpha times slice i of `source` added to slice index[i]. int32 indices too.
Tensor index_add(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source,
                 Scalar alpha = 1);
/// x, with slice i of `source` in the place of slice index[i].
Tensor index_copy(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source);
/// x, with the slices named by `index` set to a number (a tensor of it: 0-dim). Negative indices
/// count from the end.
Tensor index_fill(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& value);
Tensor index_fill(const Tensor& x, int64_t dim, const Tensor& index, Scalar value);

/// Elements of the flattened x, in the shape of `index`. Negative indices count from the end.
Tensor take(const Tensor& x, const Tensor& index);
/// gather() with broadcasting in all dimensions but `dim`; without one, of the flattened tensors.
Tensor take_along_dim(const Tensor& x, const Tensor& index, std::optional<int64_t> dim = {});

/// int64 (…, num_classes): 1 at the class, 0 elsewhere. −1: as many classes as the largest needs.
Tensor one_hot(const Tensor& classes, int64_t num_classes = -1);

namespace detail {
/// The same, with errors in the name of the function that a user called.
Tensor gather(const Tensor& x, int64_t dim, const Tensor& index, IndexUse use);
Tensor scatter(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src, IndexUse use);
Tensor scatter_add(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src,
                   IndexUse use);
/// Indices of equal shapes into dimensions of these sizes, as one flattened index into the joined
/// dimensions. Negative indices count from the end.
Tensor flat_index(const TensorList& indices, const Shape& sizes, IndexUse use);
/// Throws if the list names a row that is none. For rows of no elements: nothing is read by those.
void check_rows(const char* op, const Tensor& index, int64_t rows);
}  // namespace detail

}  // namespace halftape
