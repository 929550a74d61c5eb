// Joining, splitting, repeating, flipping, rolling and padding. layout/view.h has the plain views.
#pragma once
#include <string>

#include "halftape/autograd/tensor.h"

namespace halftape {

/// Tensors one behind the other along `dim`; the other sizes are equal, the dtype is what all
/// promote to. One-dimensional tensors without elements are skipped, as in PyTorch. Under autocast:
/// the widest dtype.
Tensor cat(const TensorList& tensors, int64_t dim = 0);
inline Tensor concat(const TensorList& tensors, int64_t dim = 0) { return cat(tensors, dim); }
/// Tensors of one shape along a new dimension.
Tensor stack(const TensorList& tensors, int64_t dim = 0);
/// Along the second dimension (vectors: the first), the first, and the third, which are added where
/// missing.
Tensor hstack(const TensorList& tensors);
Tensor vstack(const TensorList& tensors);
Tensor dstack(const TensorList& tensors);
/// Vectors as the columns of a matrix, beside matrices as they are.
Tensor column_stack(const TensorList& tensors);

/// Views of `split_size` each, the last perhaps smaller; or of the given sizes.
TensorList split(const Tensor& x, int64_t split_size, int64_t dim = 0);
TensorList split(const Tensor& x, const std::vector<int64_t>& split_sizes, int64_t dim = 0);
TensorList split_with_sizes(const Tensor& x, const std::vector<int64_t>& split_sizes,
                            int64_t dim = 0);
/// At most `chunks` views of equal size, the last perhaps smaller.
TensorList chunk(const Tensor& x, int64_t chunks, int64_t dim = 0);
/// Exactly `sections` views whose sizes differ by at most 1, the larger ones first; or cut before
/// each of `indices`.
TensorList tensor_split(const Tensor& x, int64_t sections, int64_t dim = 0);
TensorList tensor_split(const Tensor& x, const std::vector<int64_t>& indices, int64_t dim = 0);
/// A view for every index of a dimension, which disappears.
TensorList unbind(const Tensor& x, int64_t dim = 0);

/// x repeated `repeats` times along each dimension; further numbers in front add leading
/// dimensions. tile() also takes fewer numbers, for the last dimensions.
Tensor repeat(const Tensor& x, const Shape& repeats);
Tensor tile(const Tensor& x, const Shape& repeats);
/// Every slice of a dimension that many times in a row; without a dimension, every element.
/// `repeats`: a number, or int64 numbers, one for each slice (then it waits for the device).
Tensor repeat_interleave(const Tensor& x, int64_t repeats, std::optional<int64_t> dim = {});
Tensor repeat_interleave(const Tensor& x, const Tensor& repeats, std::optional<int64_t> dim = {});
/// int64: every i, repeats[i] times.
Tensor repeat_interleave(const Tensor& repeats);

/// Dimensions in reverse order of their elements: a copy.
Tensor flip(const Tensor& x, const Dims& dims);
Tensor fliplr(const Tensor& x);
Tensor flipud(const Tensor& x);
/// Elements moved by `shifts` towards the end of `dims`, those that fall out coming in at the
/// start. Without dims: of the flattened tensor.
Tensor roll(const Tensor& x, const Dims& shifts, const Dims& dims = {});
Tensor roll(const Tensor& x, int64_t shift, std::optional<int64_t> dim = {});
/// x rotated k times by 90 degrees from the first towards the second of two dimensions.
Tensor rot90(const Tensor& x, int64_t k = 1, const Dims& dims = {0, 1});

enum class PadMode : uint8_t { Constant, Reflect, Replicate, Circular };
inline constexpr PadMode kConstant = PadMode::Constant, kReflect = PadMode::Reflect,
                         kReplicate = PadMode::Replicate, kCircular = PadMode::Circular;
/// x in a frame of `pad` = {left, right, top, bottom, …}, from the last dimension on; negative
/// numbers cut off. Filled with `value`, or by the inside: mirrored without the edge itself
/// (Reflect), the edge repeated (Replicate), or as if x went round (Circular).
Tensor pad(const Tensor& x, const std::vector<int64_t>& pad, PadMode mode, double value = 0);
Tensor pad(const Tensor& x, const std::vector<int64_t>& pad, const std::string& mode = "constant",
           double value = 0);
Tensor constant_pad_nd(const Tensor& x, const std::vector<int64_t>& pad, Scalar value = 0);

/// One-dimensional tensors as the coordinates of a grid: views of the shape of all their sizes.
/// `indexing`: "ij", or "xy", where the first two dimensions change places.
TensorList meshgrid(const TensorList& tensors, const std::string& indexing = "ij");
/// Every way to take one element of each one-dimensional tensor, as rows: (n₁·n₂·…, tensors), the
/// last tensor's elements changing fastest. Of one tensor, itself.
Tensor cartesian_prod(const TensorList& tensors);
/// All tensors expanded to the shape to which they broadcast.
TensorList broadcast_tensors(const TensorList& tensors);
/// x with at least that many dimensions: new ones are added in front, a third one behind.
Tensor atleast_1d(const Tensor& x);
Tensor atleast_2d(const Tensor& x);
Tensor atleast_3d(const Tensor& x);
/// The matrix with a vector on a diagonal; of a matrix, a copy of a diagonal.
Tensor diag(const Tensor& x, int64_t diagonal = 0);

namespace detail {
/// A dimension's number, counted from 0; throws for 0-dim tensors.
int dim_of(const char* op, const Tensor& x, int64_t dim);
}  // namespace detail

}  // namespace halftape
