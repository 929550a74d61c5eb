// The norm of order p: what an element adds, and what becomes of the sum.
#pragma once
#include <limits>

#include "halftape/core/formula/words.h"

namespace halftape {

struct NormOrder {
  double p;
  double unit = 1;
  bool infinite = p > std::numeric_limits<double>::max();

  HALFTAPE_HD double term(double x) const {
    const double y = x / unit, size = y < 0 ? -y : y;
    return p == 2 ? size * size : p == 1 || infinite ? size : pow(size, p);
  }
  HALFTAPE_HD double join(double a, double b) const {
    if (!infinite) return a + b;
    return a != a || a > b ? a : b;  // NaN wins
  }
  HALFTAPE_HD double whole(double sum) const {
    return unit * (p == 2 ? sqrt(sum) : p == 1 || infinite ? sum : pow(sum, 1 / p));
  }
  /// The factor that brings a norm down to `most`.
  HALFTAPE_HD static double factor(double norm, double most) {
    const bool finite = norm - norm == 0;
    const double f = finite ? most / (norm + 1e-6) : 1;
    return f < 1 ? f : 1;
  }
};

}  // namespace halftape
