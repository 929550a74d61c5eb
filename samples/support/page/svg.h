// Charts in SVG: where a value lies on an axis, and the marks that stand there.
#pragma once

#include <string_view>
#include <utility>
#include <vector>

#include "page.h"

namespace report {

/// Maps lo…hi to the pixels from…to.
struct Axis {
  double lo, hi, from, to;
  double operator()(double v) const { return from + (v - lo) / (hi - lo) * (to - from); }
};

/// The drawing area of a chart, between the margins that hold the labels.
struct Frame {
  double width, height;
  double left = 46, right = 12, top = 10, bottom = 40;
  Axis x(double lo, double hi) const { return {lo, hi, left, width - right}; }
  Axis y(double lo, double hi) const { return {lo, hi, height - bottom, top}; }
};

void open_svg(Page& page, const Frame& f, std::string_view label);
void x_label(Page& page, const Frame& f, double at, std::string_view text);
void y_tick(Page& page, const Frame& f, double at, std::string_view text);
void x_axis(Page& page, const Frame& f, const Axis& x, std::string_view name);
/// 1, 2 or 5 times a power of ten, so that `range` takes at most `count` steps.
double round_step(double range, int count);

using Points = std::vector<std::pair<double, double>>;  // a nan in y leaves a gap
void curve(Page& page, const Points& points, const Axis& x, const Axis& y, std::string_view style);
void cross(Page& page, double x, double y, double r, std::string_view stroke);

}  // namespace report
