// The lists of element-wise formulas. A formula's name here makes its kernels on all devices, its
// derivatives and its entry in every table; unary.h and binary.h define them.
#pragma once
#include "halftape/core/formula/ops.h"

// clang-format off
#define HALFTAPE_UNARY_FORMULAS(row) \
  row(Neg) row(Abs) row(Sign) row(Square) row(Sqrt) row(Rsqrt) row(Reciprocal) row(Floor) \
  row(Ceil) row(Trunc) row(Round) row(Frac) row(Affine) row(DivScalar) row(ScalarDiv) \
  row(PowScalar) row(ScalarPow) row(Clamp) row(Exp) row(Exp2) row(Expm1) row(Log) row(Log1p) \
  row(Log2) row(Log10) row(Sin) row(Cos) row(Tan) row(Asin) row(Acos) row(Atan) row(Sinh) \
  row(Cosh) row(Tanh) row(Asinh) row(Acosh) row(Atanh) row(Erf) row(Erfc) row(Sinpi) row(Cospi) \
  row(Sinc) row(Logit) row(Sigmoid) row(Relu) row(LeakyRelu) row(Elu) row(Celu) row(Gelu) \
  row(GeluTanh) row(Silu) row(Mish) row(Softplus) row(LogSigmoid) row(Softsign) \
  row(Hardsigmoid) row(Hardswish) row(Tanhshrink) row(Softshrink) row(Hardshrink) \
  row(Threshold)

#define HALFTAPE_BINARY_FORMULAS(row) \
  row(Add) row(Sub) row(Mul) row(Div) row(Maximum) row(Minimum) row(Fmax) row(Fmin) row(Pow) \
  row(Atan2) row(Hypot) row(Xlogy) row(Copysign) row(Fmod) row(Remainder) row(FloorDivide) \
  row(TruncDivide) row(Prelu) row(BinaryCrossEntropy) row(Eq) row(Ne) row(Lt) row(Le) row(Gt) \
  row(Ge) row(LogicalAnd) row(LogicalOr) row(LogicalXor) row(BitwiseAnd) row(BitwiseOr) \
  row(BitwiseXor)
// clang-format on

namespace halftape {
namespace formula {

#define HALFTAPE_ROW(Op) struct Op;
HALFTAPE_UNARY_FORMULAS(HALFTAPE_ROW)
HALFTAPE_BINARY_FORMULAS(HALFTAPE_ROW)
#undef HALFTAPE_ROW

/// Lets the rows of a list begin with a comma.
template <class Nothing, class... Op>
using OpsAfter = Ops<Op...>;

/// Defaults of a formula of one argument.
struct UnaryFormula {
  static constexpr Cast cast = Cast::Keep;
  static constexpr Saves saves = Saves::Input;
  static constexpr bool integers = false;  // makes sense on integers, and keeps their dtype
};

/// Defaults of a formula of two arguments.
struct BinaryFormula {
  static constexpr Cast cast = Cast::Keep;
  static constexpr bool compares = false;     // gives bool and has no derivative
  static constexpr bool of_floats = false;    // integers become floats first
  static constexpr bool of_integers = false;  // for integers and bool only
  static constexpr bool numbers = false;      // not for bool
  static constexpr bool divides = false;      // an integer b must not be 0
};

}  // namespace formula

#define HALFTAPE_ROW(Op) , formula::Op
using UnaryOps = formula::OpsAfter<void HALFTAPE_UNARY_FORMULAS(HALFTAPE_ROW)>;
using BinaryOps = formula::OpsAfter<void HALFTAPE_BINARY_FORMULAS(HALFTAPE_ROW)>;
#undef HALFTAPE_ROW

}  // namespace halftape
