// Element-wise functions of two tensors, with NumPy's broadcasting; formulas in
// core/formula/binary.h. The dtype follows PyTorch: a dimensioned tensor outranks a 0-dim one of
// the same kind, a 0-dim one a plain number.
#pragma once
#include <initializer_list>
#include <optional>
#include <span>
#include <string_view>

#include "halftape/autograd/tensor.h"
#include "halftape/core/formula/binary.h"

namespace halftape {

/// Any formula of BinaryOps applied to two tensors, recorded.
template <class Op>
Tensor binary(const Tensor& a, const Tensor& b);

/// The dtype of an operation on these.
Dtype result_type(std::initializer_list<const Tensor*> inputs);
inline Dtype result_type(const Tensor& a, const Tensor& b) { return result_type({&a, &b}); }
/// True if a result of dtype `from` may be written in place to a tensor of dtype `to`: floats not
/// to integers, numbers not to bool.
bool can_cast(Dtype from, Dtype to);

// A plain number takes part without raising the dtype: x * 2 is x's dtype.
inline Tensor add(const Tensor& a, const Tensor& b) { return binary<formula::Add>(a, b); }
Tensor add(const Tensor& a, Scalar b);
/// a + alpha·b. Integers take an integer alpha.
Tensor add(const Tensor& a, const Tensor& b, Scalar alpha);
Tensor add(const Tensor& a, Scalar b, Scalar alpha);
/// Throws for bool: to invert a mask use ~.
inline Tensor sub(const Tensor& a, const Tensor& b) { return binary<formula::Sub>(a, b); }
Tensor sub(const Tensor& a, Scalar b);
/// a − alpha·b.
Tensor sub(const Tensor& a, const Tensor& b, Scalar alpha);
Tensor sub(const Tensor& a, Scalar b, Scalar alpha);
/// b − alpha·a.
Tensor rsub(const Tensor& a, const Tensor& b, Scalar alpha = 1);
Tensor rsub(const Tensor& a, Scalar b, Scalar alpha = 1);
/// a·b.
inline Tensor mul(const Tensor& a, const Tensor& b) { return binary<formula::Mul>(a, b); }
Tensor mul(const Tensor& a, Scalar b);
/// a / b; integers give the default float dtype.
inline Tensor div(const Tensor& a, const Tensor& b) { return binary<formula::Div>(a, b); }
Tensor div(const Tensor& a, Scalar b);
/// a / b, rounded to a whole number by rounding_mode "trunc" (towards 0) or "floor"; integers stay
/// integers.
Tensor div(const Tensor& a, const Tensor& b, std::optional<std::string_view> rounding_mode);
Tensor div(const Tensor& a, Scalar b, std::optional<std::string_view> rounding_mode);

// Division with a remainder. An integer divided by zero throws.
/// The whole number at or below a/b.
inline Tensor floor_divide(const Tensor& a, const Tensor& b) {
  return binary<formula::FloorDivide>(a, b);
}
Tensor floor_divide(const Tensor& a, Scalar b);
/// a − b·trunc(a/b), exactly; the sign of a.
inline Tensor fmod(const Tensor& a, const Tensor& b) { return binary<formula::Fmod>(a, b); }
Tensor fmod(const Tensor& a, Scalar b);
/// a − b·floor(a/b): the sign of b, as Python's %.
inline Tensor remainder(const Tensor& a, const Tensor& b) {
  return binary<formula::Remainder>(a, b);
}
Tensor remainder(const Tensor& a, Scalar b);
Tensor remainder(Scalar a, const Tensor& b);

/// aᵇ. Integers stay integers; of 1/aⁿ they keep the whole part.
inline Tensor pow(const Tensor& a, const Tensor& b) { return binary<formula::Pow>(a, b); }
Tensor pow(Scalar a, const Tensor& b);
/// The angle of the point (x = b, y = a), in (−π, π].
inline Tensor atan2(const Tensor& a, const Tensor& b) { return binary<formula::Atan2>(a, b); }
/// √(a² + b²) without overflow on the way.
inline Tensor hypot(const Tensor& a, const Tensor& b) { return binary<formula::Hypot>(a, b); }
/// a·ln b, 0 where a is 0 (and b not NaN).
inline Tensor xlogy(const Tensor& a, const Tensor& b) { return binary<formula::Xlogy>(a, b); }
Tensor xlogy(const Tensor& a, Scalar b);
Tensor xlogy(Scalar a, const Tensor& b);
/// |a| with the sign of b.
inline Tensor copysign(const Tensor& a, const Tensor& b) { return binary<formula::Copysign>(a, b); }
Tensor copysign(const Tensor& a, Scalar b);

/// The larger one; NaN wins; equal values share the gradient.
inline Tensor maximum(const Tensor& a, const Tensor& b) { return binary<formula::Maximum>(a, b); }
inline Tensor minimum(const Tensor& a, const Tensor& b) { return binary<formula::Minimum>(a, b); }
/// The larger one; NaN only where both are.
inline Tensor fmax(const Tensor& a, const Tensor& b) { return binary<formula::Fmax>(a, b); }
inline Tensor fmin(const Tensor& a, const Tensor& b) { return binary<formula::Fmin>(a, b); }
/// max(x, min), and min(x, max), element by element.
Tensor clamp_min(const Tensor& x, const Tensor& min);
Tensor clamp_max(const Tensor& x, const Tensor& max);
/// min(max(x, min), max), element by element.
Tensor clamp(const Tensor& x, const std::optional<Tensor>& min,
             const std::optional<Tensor>& max = {});
/// x, weight·x where x ≤ 0. weight: one element, or one for each channel of x (N, C, …).
/// He et al. 2015, arXiv:1502.01852. Under autocast: Lower.
Tensor prelu(const Tensor& x, const Tensor& weight);

// Comparisons and logic give bool and have no gradient. Every number but 0 counts as true.
inline Tensor eq(const Tensor& a, const Tensor& b) { return binary<formula::Eq>(a, b); }
inline Tensor ne(const Tensor& a, const Tensor& b) { return binary<formula::Ne>(a, b); }
inline Tensor lt(const Tensor& a, const Tensor& b) { return binary<formula::Lt>(a, b); }
inline Tensor le(const Tensor& a, const Tensor& b) { return binary<formula::Le>(a, b); }
inline Tensor gt(const Tensor& a, const Tensor& b) { return binary<formula::Gt>(a, b); }
inline Tensor ge(const Tensor& a, const Tensor& b) { return binary<formula::Ge>(a, b); }
Tensor eq(const Tensor& a, Scalar b);
Tensor ne(const Tensor& a, Scalar b);
Tensor lt(const Tensor& a, Scalar b);
Tensor le(const Tensor& a, Scalar b);
Tensor gt(const Tensor& a, Scalar b);
Tensor ge(const Tensor& a, Scalar b);
inline Tensor logical_and(const Tensor& a, const Tensor& b) {
  return binary<formula::LogicalAnd>(a, b);
}
inline Tensor logical_or(const Tensor& a, const Tensor& b) {
  return binary<formula::LogicalOr>(a, b);
}
inline Tensor logical_xor(const Tensor& a, const Tensor& b) {
  return binary<formula::LogicalXor>(a, b);
}
Tensor logical_not(const Tensor& x);
Tensor isnan(const Tensor& x);
Tensor isinf(const Tensor& x);
Tensor isfinite(const Tensor& x);
Tensor isposinf(const Tensor& x);
Tensor isneginf(const Tensor& x);

// Bitwise operations on integers; logic on bools. Floats throw.
inline Tensor bitwise_and(const Tensor& a, const Tensor& b) {
  return binary<formula::BitwiseAnd>(a, b);
}
inline Tensor bitwise_or(const Tensor& a, const Tensor& b) {
  return binary<formula::BitwiseOr>(a, b);
}
inline Tensor bitwise_xor(const Tensor& a, const Tensor& b) {
  return binary<formula::BitwiseXor>(a, b);
}
Tensor bitwise_and(const Tensor& a, Scalar b);
Tensor bitwise_or(const Tensor& a, Scalar b);
Tensor bitwise_xor(const Tensor& a, Scalar b);
Tensor bitwise_not(const Tensor& x);

/// condition ? a : b, element by element; condition is bool. All three broadcast; NaN in the branch
/// not taken reaches neither the value nor the gradients.
Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b);
Tensor where(const Tensor& condition, Scalar a, const Tensor& b);
Tensor where(const Tensor& condition, const Tensor& a, Scalar b);
/// The result of two numbers has the default float dtype if one is a fraction, else int64, or bool
/// for bools.
Tensor where(const Tensor& condition, Scalar a, Scalar b);

#define HALFTAPE_OPERATOR(op, function)                                                  \
  inline Tensor operator op(const Tensor& a, const Tensor& b) { return function(a, b); } \
  inline Tensor operator op(const Tensor& a, Scalar b) { return function(a, b); }
HALFTAPE_OPERATOR(+, add)
HALFTAPE_OPERATOR(-, sub)
HALFTAPE_OPERATOR(*, mul)
HALFTAPE_OPERATOR(/, div)
HALFTAPE_OPERATOR(%, remainder)
HALFTAPE_OPERATOR(==, eq)
HALFTAPE_OPERATOR(!=, ne)
HALFTAPE_OPERATOR(<, lt)
HALFTAPE_OPERATOR(<=, le)
HALFTAPE_OPERATOR(>, gt)
HALFTAPE_OPERATOR(>=, ge)
HALFTAPE_OPERATOR(&, bitwise_and)
HALFTAPE_OPERATOR(|, bitwise_or)
HALFTAPE_OPERATOR(^, bitwise_xor)
#undef HALFTAPE_OPERATOR
inline Tensor operator+(Scalar a, const Tensor& b) { return add(b, a); }
inline Tensor operator-(Scalar a, const Tensor& b) { return rsub(b, a); }
inline Tensor operator*(Scalar a, const Tensor& b) { return mul(b, a); }
Tensor operator/(Scalar a, const Tensor& b);
inline Tensor operator%(Scalar a, const Tensor& b) { return remainder(a, b); }
inline Tensor operator&(Scalar a, const Tensor& b) { return bitwise_and(b, a); }
inline Tensor operator|(Scalar a, const Tensor& b) { return bitwise_or(b, a); }
inline Tensor operator^(Scalar a, const Tensor& b) { return bitwise_xor(b, a); }

/// Every binary op by name, for the op table.
struct BinaryEntry {
  const char* name;
  const char* called;  // the op's name where it differs from the formula's
  bool compares;       // gives bools
  Cast cast;           // what autocast does with its arguments
  Tensor (*call)(const Tensor&, const Tensor&);  // the op
};
/// All of them.
std::span<const BinaryEntry> binary_ops();

}  // namespace halftape
