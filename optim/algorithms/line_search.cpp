#include "halftape/optim/algorithms/line_search.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

namespace halftape::optim {
namespace {

constexpr double kDecrease = 1e-4, kCurvature = 0.9;

/// Where the cubic through both points, with their slopes, is lowest; within [low, high].
double cubic_minimum(const LinePoint& one, const LinePoint& other, double low, double high) {
  const auto& [a, b] = one.t <= other.t ? std::tie(one, other) : std::tie(other, one);
  const double d1 = a.slope + b.slope - 3 * (a.loss - b.loss) / (a.t - b.t);
  const double square = d1 * d1 - a.slope * b.slope;
  if (!(square >= 0)) return (low + high) / 2;
  const double d2 = std::sqrt(square);
  const double lowest = b.t - (b.t - a.t) * ((b.slope + d2 - d1) / (b.slope - a.slope + 2 * d2));
  return std::min(std::max(lowest, low), high);
}

}  // namespace

LineSearch strong_wolfe(const std::function<LinePoint(double t)>& evaluate, const LinePoint& start,
                        double t, double d_max, double tolerance_change, int64_t max_evaluations) {
  const auto falls_enough = [&](const LinePoint& p) {
    return !(p.loss > start.loss + kDecrease * p.t * start.slope);
  };
  const auto flat_enough = [&](const LinePoint& p) {
    return std::abs(p.slope) <= -kCurvature * start.slope;
  };

  // Further and further out, until a point that will do lies between the last two.
  LinePoint before = start, now = evaluate(t);
  int64_t evaluations = 1, iterations = 0;
  for (; iterations < max_evaluations; ++iterations) {
    if (!falls_enough(now) || (iterations > 1 && now.loss >= before.loss)) break;
    if (flat_enough(now)) return {now, evaluations};
    if (now.slope >= 0) break;
    const double next = cubic_minimum(before, now, now.t + 0.01 * (now.t - before.t), now.t * 10);
    before = std::exchange(now, {});
    now = evaluate(next);
    ++evaluations;
  }
  if (iterations >= max_evaluations) before = start;

  // Between the two, ever closer.
  LinePoint bracket[2] = {before, now};
  size_t low = before.loss <= now.loss ? 0 : 1;
  bool slow = false;  // the last trial came close to an end of the bracket
  for (; iterations < max_evaluations; ++iterations) {
    const auto [near, far] = std::minmax(bracket[0].t, bracket[1].t);
    if ((far - near) * d_max < tolerance_change) break;
    double trial = cubic_minimum(bracket[0], bracket[1], near, far);
    const double margin = 0.1 * (far - near);
    if (std::min(far - trial, trial - near) < margin) {
      if (slow || trial >= far || trial <= near) {
        trial = std::abs(trial - far) < std::abs(trial - near) ? far - margin : near + margin;
        slow = false;
      } else {
        slow = true;
      }
    } else {
      slow = false;
    }
    LinePoint point = evaluate(trial);
    ++evaluations;
    const size_t high = 1 - low;
    if (!falls_enough(point) || point.loss >= bracket[low].loss) {
      bracket[high] = std::move(point);
      low = bracket[0].loss <= bracket[1].loss ? 0 : 1;
      continue;
    }
    const bool done = flat_enough(point);
    if (!done && point.slope * (bracket[high].t - bracket[low].t) >= 0)
      bracket[high] = bracket[low];
    bracket[low] = std::move(point);
    if (done) break;
  }
  return {bracket[low], evaluations};
}

}  // namespace halftape::optim
