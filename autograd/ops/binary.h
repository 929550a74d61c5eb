// Element-wise functions of two tensors, with NumPy's broadcasting; formulas in
// core/formula/binary.h. The dtype follows PyTorch: a dimensioned tensor outranks a 0-dim one of
// the same kind, a 0-dim one a plain number.
#pragma once
#include <span>

#include "halftape/autograd/tensor.h"
#include "halftape/core/formula/ops.h"

namespace halftape {

struct Add;
struct Sub;
struct Mul;
struct Div;
struct Maximum;
struct Minimum;
struct BinaryCrossEntropy;
struct Eq;
struct Ne;
struct Lt;
struct Le;
struct Gt;
struct Ge;

/// Any formula of BinaryOps applied to two tensors, recorded.
template <class Op>
Tensor binary(const Tensor& a, const Tensor& b);

/// The dtype of an operation on these two.
Dtype result_type(const Tensor& a, const Tensor& b);

inline Tensor add(const Tensor& a, const Tensor& b) { return binary<Add>(a, b); }
inline Tensor sub(const Tensor& a, const Tensor& b) { return binary<Sub>(a, b); }
inline Tensor mul(const Tensor& a, const Tensor& b) { return binary<Mul>(a, b); }
/// a / b; integers give the default float dtype.
inline Tensor div(const Tensor& a, const Tensor& b) { return binary<Div>(a, b); }
/// The larger one; NaN wins; equal values share the gradient.
inline Tensor maximum(const Tensor& a, const Tensor& b) { return binary<Maximum>(a, b); }
inline Tensor minimum(const Tensor& a, const Tensor& b) { return binary<Minimum>(a, b); }
// Comparisons give bool and have no gradient.
inline Tensor eq(const Tensor& a, const Tensor& b) { return binary<Eq>(a, b); }
inline Tensor ne(const Tensor& a, const Tensor& b) { return binary<Ne>(a, b); }
inline Tensor lt(const Tensor& a, const Tensor& b) { return binary<Lt>(a, b); }
inline Tensor le(const Tensor& a, const Tensor& b) { return binary<Le>(a, b); }
inline Tensor gt(const Tensor& a, const Tensor& b) { return binary<Gt>(a, b); }
inline Tensor ge(const Tensor& a, const Tensor& b) { return binary<Ge>(a, b); }

/// condition ? a : b, element by element; condition is bool. All three broadcast; NaN in the branch
/// not taken reaches neither the value nor the gradients.
Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b);
Tensor where(const Tensor& condition, Scalar a, const Tensor& b);
Tensor where(const Tensor& condition, const Tensor& a, Scalar b);

// A plain number takes part without raising the dtype: x * 2 is x's dtype.
Tensor add(const Tensor& a, Scalar b);
Tensor sub(const Tensor& a, Scalar b);
Tensor mul(const Tensor& a, Scalar b);
Tensor div(const Tensor& a, Scalar b);

inline Tensor operator+(const Tensor& a, const Tensor& b) { return add(a, b); }
inline Tensor operator-(const Tensor& a, const Tensor& b) { return sub(a, b); }
inline Tensor operator*(const Tensor& a, const Tensor& b) { return mul(a, b); }
inline Tensor operator/(const Tensor& a, const Tensor& b) { return div(a, b); }
inline Tensor operator+(const Tensor& a, Scalar b) { return add(a, b); }
inline Tensor operator-(const Tensor& a, Scalar b) { return sub(a, b); }
inline Tensor operator*(const Tensor& a, Scalar b) { return mul(a, b); }
inline Tensor operator/(const Tensor& a, Scalar b) { return div(a, b); }
inline Tensor operator+(Scalar a, const Tensor& b) { return add(b, a); }
Tensor operator-(Scalar a, const Tensor& b);
inline Tensor operator*(Scalar a, const Tensor& b) { return mul(b, a); }
Tensor operator/(Scalar a, const Tensor& b);

inline Tensor operator==(const Tensor& a, const Tensor& b) { return eq(a, b); }
inline Tensor operator!=(const Tensor& a, const Tensor& b) { return ne(a, b); }
inline Tensor operator<(const Tensor& a, const Tensor& b) { return lt(a, b); }
inline Tensor operator<=(const Tensor& a, const Tensor& b) { return le(a, b); }
inline Tensor operator>(const Tensor& a, const Tensor& b) { return gt(a, b); }
inline Tensor operator>=(const Tensor& a, const Tensor& b) { return ge(a, b); }
Tensor operator==(const Tensor& a, Scalar b);
Tensor operator!=(const Tensor& a, Scalar b);
Tensor operator<(const Tensor& a, Scalar b);
Tensor operator<=(const Tensor& a, Scalar b);
Tensor operator>(const Tensor& a, Scalar b);
Tensor operator>=(const Tensor& a, Scalar b);

/// Every binary op by name, for the op table.
struct BinaryEntry {
  const char* name;
  bool compares;
  Tensor (*call)(const Tensor&, const Tensor&);
};
std::span<const BinaryEntry> binary_ops();

}  // namespace halftape
