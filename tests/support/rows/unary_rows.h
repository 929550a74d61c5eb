// One row per formula of one argument: the references of the op table and of the exhaustive tests.
#pragma once
#include <span>
#include <string_view>
#include <vector>

#include <halftape/halftape.h>

#if HALFTAPE_HAVE_MPFR
#include "halftape/tests/support/real.h"
#endif

namespace halftape::testing {

/// One expression of a number and the parameters, read with double and with 96 bits.
struct Expression {
  template <class F>
  Expression(F f)  // NOLINT: a generic lambda without captures
      : plain(f)
#if HALFTAPE_HAVE_MPFR
        ,
        exact(f)
#endif
  {
  }
  double (*plain)(const double&, const Params<double>&);
#if HALFTAPE_HAVE_MPFR
  Real (*exact)(const Real&, const Params<double>&);
#endif
};

struct UnaryRow {
  const char* name;  // of the formula
  Tensor (*call)(const Tensor&);
  Expression value;       // of x
  Expression derivative;  // of x, or of y where the formula saves its output
  struct Use {
    double low = -2, high = 2;       // the op table draws from here …
    std::vector<double> kinks = {};  // … and not near these points
    Cast cast = Cast::Keep;          // what autocast makes of it
    // Exact in float32, so that the halves can be compared with them:
    Params<double> parameters = {};              // of `call` and of the derivative
    std::vector<Params<double>> values_at = {};  // of the value at all halves; empty: the same
    int ulps = 1;  // of the derivative; 2 where the exact value passes through 0
    // Of 65,536 halves, how many give the neighbour of the correctly rounded value, because the
    // float32 result lies at a tie. More of them where one such number meets a tie again with each
    // power of two, as in a product with a constant.
    int misrounded = 8, misrounded_derivatives = 8;
  } use = {};
};

std::span<const UnaryRow> unary_rows();

/// The row of a formula; null for none.
const UnaryRow* find_unary_row(std::string_view name);

}  // namespace halftape::testing
