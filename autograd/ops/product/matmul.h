// Matrix products. Accumulated in float32 (float64) and rounded once. All inputs of a product need
// one floating dtype. Under autocast: the lower dtype, unless another is stated.
#pragma once
#include "halftape/autograd/tensor.h"

namespace halftape {

/// PyTorch's matmul: vectors, matrices (…, m, k)·(…, k, n) → (…, m, n) with broadcast leading
/// dimensions.
Tensor matmul(const Tensor& a, const Tensor& b);
/// (m, k)·(k, n), and nothing else.
Tensor mm(const Tensor& a, const Tensor& b);
/// (B, m, k)·(B, k, n), without broadcasting.
Tensor bmm(const Tensor& a, const Tensor& b);
/// (m, k)·(k).
Tensor mv(const Tensor& a, const Tensor& v);
/// Σ aᵢ·bᵢ of two vectors. Under autocast: the widest dtype given.
Tensor dot(const Tensor& a, const Tensor& b);
/// The same, as long as there are no complex numbers.
Tensor vdot(const Tensor& a, const Tensor& b);
/// Σ over the last dimension of both, of every pair of lines: (…, k) and (…′, k) → (…, …′). The
/// product where one is a number. Under autocast: the widest dtype given.
Tensor inner(const Tensor& a, const Tensor& b);
/// aᵢ·bⱼ of two vectors. Under autocast: the dtypes given.
Tensor outer(const Tensor& a, const Tensor& b);
Tensor ger(const Tensor& a, const Tensor& b);

/// The vector product of the lines of three along `dim`, by default the first dimension of size 3;
/// other dimensions broadcast. linalg::cross: by default along the last. Under autocast: the widest
/// dtype given.
Tensor cross(const Tensor& a, const Tensor& b, std::optional<int64_t> dim = {});
Tensor linalg_cross(const Tensor& a, const Tensor& b, int64_t dim = -1);
namespace linalg {
inline Tensor cross(const Tensor& a, const Tensor& b, int64_t dim = -1) {
  return linalg_cross(a, b, dim);
}
}  // namespace linalg

// beta·input + alpha·product, one rounding; input broadcasts to the product. With beta 0 it is not
// read: its NaN does no harm.
/// (m, k)·(k, n).
Tensor addmm(const Tensor& input, const Tensor& a, const Tensor& b, Scalar beta = 1,
             Scalar alpha = 1);
/// (m, k)·(k).
Tensor addmv(const Tensor& input, const Tensor& a, const Tensor& v, Scalar beta = 1,
             Scalar alpha = 1);
/// The outer product of two vectors.
Tensor addr(const Tensor& input, const Tensor& u, const Tensor& v, Scalar beta = 1,
            Scalar alpha = 1);
/// (B, m, k)·(B, k, n).
Tensor baddbmm(const Tensor& input, const Tensor& a, const Tensor& b, Scalar beta = 1,
               Scalar alpha = 1);
/// The same, summed over the batch: (m, n).
Tensor addbmm(const Tensor& input, const Tensor& a, const Tensor& b, Scalar beta = 1,
              Scalar alpha = 1);

/// The product of matrices in the order that needs the fewest multiplications.
Tensor chain_matmul(const TensorList& matrices);
/// a·a·…·a, n ≥ 0 times, by repeated squaring. a: (…, m, m).
Tensor matrix_power(const Tensor& a, int64_t n);
/// The sum of the diagonal of a matrix. Under autocast: the dtype given.
Tensor trace(const Tensor& x);

namespace detail {
/// Throws in the name of `op` unless both are of one floating dtype, on one device.
void same_kind(const char* op, const Tensor& a, const Tensor& b);
}  // namespace detail

}  // namespace halftape
