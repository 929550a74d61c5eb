// A step length that satisfies the strong Wolfe conditions.
#pragma once
#include <functional>

#include "halftape/autograd/tensor.h"

namespace halftape::optim {

/// A point on the line x + t·d.
struct LinePoint {
  double t = 0;
  double loss = 0;
  double slope = 0;  // gradient·d
  Tensor gradient;
};

struct LineSearch {
  LinePoint found;
  int64_t evaluations = 0;
};

/// Searches a t with loss(t) ≤ loss(0) + 1e-4·t·slope(0) and |slope(t)| ≤ 0.9·|slope(0)|; tries `t`
/// first. Ends after `max_evaluations`, or when the bracket's length times `d_max` falls below
/// `tolerance_change`, and returns the best point of the bracket then. Nocedal & Wright 2006,
/// algorithms 3.5 and 3.6.
LineSearch strong_wolfe(const std::function<LinePoint(double t)>& evaluate, const LinePoint& start,
                        double t, double d_max, double tolerance_change, int64_t max_evaluations);

}  // namespace halftape::optim
