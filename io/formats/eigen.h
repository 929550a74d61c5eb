// Tensors and Eigen's matrices over the same memory, without a copy. Neither the library nor
// <halftape/halftape.h> includes this header: only programs that do need Eigen 3.4.
#pragma once
#include <Eigen/Core>
#include <concepts>
#include <memory>
#include <utility>

#include "halftape/autograd/ops/creation/create.h"
#include "halftape/autograd/tensor.h"

namespace halftape {

/// What Eigen computes with here.
template <class T>
concept EigenElement = std::same_as<T, float> || std::same_as<T, double>;

/// A matrix or column of any strides; with the two numbers that EigenStride holds, a transposed
/// tensor needs no copy either.
using EigenStride = Eigen::Stride<Eigen::Dynamic, Eigen::Dynamic>;
template <EigenElement T>
using EigenMatrixMap = Eigen::Map<Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>,
                                  Eigen::Unaligned, EigenStride>;
template <EigenElement T>
using EigenVectorMap =
    Eigen::Map<Eigen::Matrix<T, Eigen::Dynamic, 1>, Eigen::Unaligned, Eigen::InnerStride<>>;

namespace detail {

/// Throws unless Eigen may read and write the elements of t where they are.
template <EigenElement T>
void check_for_eigen(const char* op, const Tensor& t, int dims) {
  HALFTAPE_CHECK(t.defined(), op, ": the tensor is undefined");
  HALFTAPE_CHECK(t.dtype() == dtype_of<T>, op, ": elements of ", dtype_of<T>,
                 " were asked for, the tensor has ", t.dtype(), "; call to(", dtype_of<T>,
                 ") before");
  HALFTAPE_CHECK(t.device().is_cpu(), op, ": Eigen computes on the CPU, the tensor is on ",
                 t.device(), "; call cpu() before");
  HALFTAPE_CHECK(t.dim() == dims, op, ": expected ", dims, " dimensions, found the shape ",
                 t.sizes(),
                 dims == 2 ? "; call reshape() or unsqueeze() before"
                           : "; call flatten() before, or eigen_matrix");
  HALFTAPE_CHECK(!t.requires_grad(), op,
                 ": the tensor requires gradients, and what Eigen writes would not be in them; "
                 "call detach() before");
  HALFTAPE_CHECK(!overlaps_itself(t.sizes(), t.strides()), op,
                 ": several elements of the tensor share one place in memory (expand, unfold); "
                 "call contiguous() before");
}

}  // namespace detail

/// The elements of a float32 or float64 tensor (n, m) on the CPU, of any strides: T is its dtype.
/// Reads and writes through the map are those of the tensor, and raise no version. Valid while the
/// tensor's memory is; so the tensor must have a name. Throws for another dtype, device or number
/// of dimensions, for tensors whose elements share memory (expanded ones), and for those that
/// require gradients.
template <EigenElement T>
EigenMatrixMap<T> eigen_matrix(const Tensor& t) {
  detail::check_for_eigen<T>("eigen_matrix", t, 2);
  return {t.data_ptr<T>(), t.size(0), t.size(1), EigenStride(t.stride(0), t.stride(1))};
}
template <EigenElement T>
EigenMatrixMap<T> eigen_matrix(Tensor&&) = delete;
/// The same of a tensor (n).
template <EigenElement T>
EigenVectorMap<T> eigen_vector(const Tensor& t) {
  detail::check_for_eigen<T>("eigen_vector", t, 1);
  return {t.data_ptr<T>(), t.size(0), Eigen::InnerStride<>(t.stride(0))};
}
template <EigenElement T>
EigenVectorMap<T> eigen_vector(Tensor&&) = delete;

/// A tensor over the memory of a matrix, map or block of float or double, which must outlive it:
/// (n, m), or (n) for what is a row or column by its type. Of an expression, see below.
template <class Derived>
requires EigenElement<typename Derived::Scalar> Tensor from_eigen(Eigen::DenseBase<Derived>& m) {
  static_assert((Derived::Flags & Eigen::DirectAccessBit) && (Derived::Flags & Eigen::LvalueBit),
                "from_eigen: an expression, or a constant; take from_eigen(Eigen::MatrixXf(it))");
  Derived& d = m.derived();
  const TensorOptions options = TensorOptions(dtype_of<typename Derived::Scalar>).device(kCPU);
  if constexpr (Derived::IsVectorAtCompileTime)
    return from_blob(d.data(), Shape{int64_t{d.size()}}, Strides{int64_t{d.innerStride()}},
                     options);
  else
    return from_blob(d.data(), Shape{int64_t{d.rows()}, int64_t{d.cols()}},
                     Strides{int64_t{d.rowStride()}, int64_t{d.colStride()}}, options);
}
/// Takes a matrix over: from_eigen(std::move(m)), from_eigen(Eigen::MatrixXf(a * b)). Its memory is
/// not copied, unless it is a small one of fixed size.
template <EigenElement T, int rows, int columns, int order, int most_rows, int most_columns>
Tensor from_eigen(Eigen::Matrix<T, rows, columns, order, most_rows, most_columns>&& m) {
  using Plain = Eigen::Matrix<T, rows, columns, order, most_rows, most_columns>;
  const auto kept = std::make_shared<Plain>(std::move(m));
  const Tensor view = from_eigen(*kept);
  return from_blob(
      kept->data(), view.sizes(), view.strides(), [kept](void*) {}, view.options());
}

}  // namespace halftape
