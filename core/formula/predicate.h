// Comparisons, logic and bits: formulas of two arguments without derivatives.
#pragma once
#include "halftape/core/formula/words.h"

namespace halftape::formula {

#define HALFTAPE_PREDICATE(Name, text, yes)          \
  struct Name : BinaryFormula {                      \
    static constexpr auto name = text;               \
    static constexpr bool compares = true;           \
    template <class T>                               \
    HALFTAPE_HD static T f(const T& a, const T& b) { \
      return yes;                                    \
    }                                                \
  };
HALFTAPE_PREDICATE(Eq, "eq", where(a == b, T(1), T(0)))
HALFTAPE_PREDICATE(Ne, "ne", where(a != b, T(1), T(0)))
HALFTAPE_PREDICATE(Lt, "lt", where(a < b, T(1), T(0)))
HALFTAPE_PREDICATE(Le, "le", where(a <= b, T(1), T(0)))
HALFTAPE_PREDICATE(Gt, "gt", where(a > b, T(1), T(0)))
HALFTAPE_PREDICATE(Ge, "ge", where(a >= b, T(1), T(0)))
// True is what is not 0, NaN included.
HALFTAPE_PREDICATE(LogicalAnd, "logical_and", where(a != 0, where(b != 0, T(1), T(0)), T(0)))
HALFTAPE_PREDICATE(LogicalOr, "logical_or", where(a != 0, T(1), where(b != 0, T(1), T(0))))
HALFTAPE_PREDICATE(LogicalXor, "logical_xor",
                   where(a != 0, where(b != 0, T(0), T(1)), where(b != 0, T(1), T(0))))
#undef HALFTAPE_PREDICATE

#define HALFTAPE_BITWISE(Name, text, op)             \
  struct Name : BinaryFormula {                      \
    static constexpr auto name = text;               \
    static constexpr bool of_integers = true;        \
    template <class T>                               \
    HALFTAPE_HD static T f(const T& a, const T& b) { \
      return a op b;                                 \
    }                                                \
  };
HALFTAPE_BITWISE(BitwiseAnd, "bitwise_and", &)
HALFTAPE_BITWISE(BitwiseOr, "bitwise_or", |)
HALFTAPE_BITWISE(BitwiseXor, "bitwise_xor", ^)
#undef HALFTAPE_BITWISE

}  // namespace halftape::formula
