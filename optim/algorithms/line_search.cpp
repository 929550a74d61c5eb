#include "halftape/optim/algorithms/line_search.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

namespace halftape::optim {
namespace {

constexpr double kDecrease = 1e-4, kCurvature = 0.9;

/// The minimum within [low, high] of the cubic through both points with their slopes.
double cubic_minimum(const LinePoint& one, const LinePoint& other, double low, double high) {
  const auto& [a, b] = one.t <= other.t ? std::tie(one, other) : std::tie(other, one);
  const double d1 = a.slope + b.slope - 3 * (a.loss - b.loss) / (a.t - b.t);
  const double square = d1 * d1 - a.slope * b.slope;
  if (!(square >= 0)) return (low + high) / 2;
  const double d2 = std::sqrt(square);
  const double lowest = b.t - (b.t - a.t) * ((b.slope + d2 - d1) / (b.slope - a.slope + 2 * d2));
  return std::min(std::max(lowest, low), high);
}

/// The strong Wolfe conditions, for points on one line.
struct WolfeConditions {
  const LinePoint& start;
  bool falls_enough(const LinePoint& p) const {
    return !(p.loss > start.loss + kDecrease * p.t * start.slope);
  }
  bool flat_enough(const LinePoint& p) const {
    return std::abs(p.slope) <= -kCurvature * start.slope;
  }
};

/// The minimum of the cubic through the bracket's ends. When it comes close to an end for the
/// second time in a row, a point a tenth of the bracket away from that end.
double next_trial(const LinePoint (&bracket)[2], bool& close_before) {
  const auto [near, far] = std::minmax(bracket[0].t, bracket[1].t);
  const double trial = cubic_minimum(bracket[0], bracket[1], near, far);
  const double margin = 0.1 * (far - near);
  const bool is_close = std::min(far - trial, trial - near) < margin;
  if (!is_close || (!close_before && trial < far && trial > near)) {
    close_before = is_close;
    return trial;
  }
  close_before = false;
  return std::abs(trial - far) < std::abs(trial - near) ? far - margin : near + margin;
}

}  // namespace

LineSearch strong_wolfe(const std::function<LinePoint(double t)>& evaluate, const LinePoint& start,
                        double t, double d_max, double tolerance_change, int64_t max_evaluations) {
  const WolfeConditions wolfe{start};
  // Algorithm 3.5: longer and longer steps, until a good one lies between the last two.
  LinePoint before = start, now = evaluate(t);
  int64_t evaluations = 1, iterations = 0;
  for (; iterations < max_evaluations; ++iterations) {
    if (!wolfe.falls_enough(now) || (iterations > 1 && now.loss >= before.loss)) break;
    if (wolfe.flat_enough(now)) return {now, evaluations};
    if (now.slope >= 0) break;
    const double next = cubic_minimum(before, now, now.t + 0.01 * (now.t - before.t), now.t * 10);
    before = std::exchange(now, {});
    now = evaluate(next);
    ++evaluations;
  }
  if (iterations >= max_evaluations) before = start;

  // Algorithm 3.6: a smaller and smaller bracket around it.
  LinePoint bracket[2] = {before, now};
  size_t low = before.loss <= now.loss ? 0 : 1;
  bool close_before = false;
  for (; iterations < max_evaluations; ++iterations) {
    if (std::abs(bracket[1].t - bracket[0].t) * d_max < tolerance_change) break;
    LinePoint point = evaluate(next_trial(bracket, close_before));
    ++evaluations;
    const size_t high = 1 - low;
    if (!wolfe.falls_enough(point) || point.loss >= bracket[low].loss) {
      bracket[high] = std::move(point);
      low = bracket[0].loss <= bracket[1].loss ? 0 : 1;
      continue;
    }
    const bool done = wolfe.flat_enough(point);
    if (!done && point.slope * (bracket[high].t - bracket[low].t) >= 0)
      bracket[high] = bracket[low];
    bracket[low] = std::move(point);
    if (done) break;
  }
  return {bracket[low], evaluations};
}

}  // namespace halftape::optim
