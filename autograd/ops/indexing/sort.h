// Sorting, and what is computed by it. Along `dim`, stable; NaN counts as greater than every
// number. Gradients of values go where the values came from; indices (int64) have none.
#pragma once
#include <tuple>

#include "halftape/autograd/tensor.h"

namespace halftape {

/// Values in order, and where they were.
std::tuple<Tensor, Tensor> sort(const Tensor& x, int64_t dim = -1, bool descending = false);
/// The same; every sort is stable, whatever `stable` says.
std::tuple<Tensor, Tensor> sort(const Tensor& x, std::optional<bool> stable, int64_t dim = -1,
                                bool descending = false);
Tensor argsort(const Tensor& x, int64_t dim = -1, bool descending = false);
Tensor argsort(const Tensor& x, bool stable, int64_t dim, bool descending = false);
template <std::same_as<bool> Flag>
Tensor argsort(const Tensor& x, Flag stable) {
  return argsort(x, stable, -1);
}
/// Sorted along the first dimension.
Tensor msort(const Tensor& x);
/// The k largest (smallest) values, in order (also when `sorted` is false), and where they were.
std::tuple<Tensor, Tensor> topk(const Tensor& x, int64_t k, int64_t dim = -1, bool largest = true,
                                bool sorted = true);
/// The k-th smallest value, k from 1, and where it was.
std::tuple<Tensor, Tensor> kthvalue(const Tensor& x, int64_t k, int64_t dim = -1,
                                    bool keepdim = false);
/// The middle value, the lower one of two; NaN if there is one.
Tensor median(const Tensor& x);
std::tuple<Tensor, Tensor> median(const Tensor& x, int64_t dim, bool keepdim = false);
/// The same of what is not NaN; NaN where nothing is left.
Tensor nanmedian(const Tensor& x);
std::tuple<Tensor, Tensor> nanmedian(const Tensor& x, int64_t dim, bool keepdim = false);

/// The value below which the fraction q of the values along `dim` lies, at the place q·(n − 1) of
/// their order; NaN where one of them is NaN. `interpolation` between two places: "linear",
/// "lower", "higher", "nearest" (half to even) or "midpoint". Of a list q the results come first,
/// in a dimension of their own. Without `dim`: of all elements. Throws unless 0 ≤ q ≤ 1.
Tensor quantile(const Tensor& x, const Tensor& q, std::optional<int64_t> dim = {},
                bool keepdim = false, std::string_view interpolation = "linear");
Tensor quantile(const Tensor& x, double q, std::optional<int64_t> dim = {}, bool keepdim = false,
                std::string_view interpolation = "linear");
/// The same of what is not NaN; NaN where nothing is left.
Tensor nanquantile(const Tensor& x, const Tensor& q, std::optional<int64_t> dim = {},
                   bool keepdim = false, std::string_view interpolation = "linear");
Tensor nanquantile(const Tensor& x, double q, std::optional<int64_t> dim = {}, bool keepdim = false,
                   std::string_view interpolation = "linear");

/// The different values in order, the number of its value for each element, and how often each
/// value occurs. The number of values is read back from the device. LibTorch's spelling of
/// torch.unique.
std::tuple<Tensor, Tensor, Tensor> _unique2(const Tensor& x, bool sorted = true,
                                            bool return_inverse = false,
                                            bool return_counts = false);
/// The same without sorting: one of each run of equal neighbours, in the order of the flattened x.
std::tuple<Tensor, Tensor, Tensor> unique_consecutive(const Tensor& x, bool return_inverse = false,
                                                      bool return_counts = false);
/// How many elements lie in each of `bins` equal parts of [min, max]; if min and max are equal, of
/// the range of x. Other elements, and NaN, are not counted. Floating-point tensors; dtype of x.
Tensor histc(const Tensor& x, int64_t bins = 100, Scalar min = 0, Scalar max = 0);
/// The positions at which `values` fit into the increasing one-dimensional `boundaries`: before
/// equal ones, or after them when `right`. int64, or int32 when `out_int32`.
Tensor bucketize(const Tensor& values, const Tensor& boundaries, bool out_int32 = false,
                 bool right = false);
Tensor searchsorted(const Tensor& boundaries, const Tensor& values, bool out_int32 = false,
                    bool right = false);
/// The count of each number in a list of integers ≥ 0, or the sum of its weights. At least
/// `minlength` entries; their number is read back from the device.
Tensor bincount(const Tensor& x, const Tensor& weights = {}, int64_t minlength = 0);

}  // namespace halftape
