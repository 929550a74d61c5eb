#include "svg.h"

#include <algorithm>
#include <cmath>
#include <string>

namespace report {

void open_svg(Page& page, const Frame& f, std::string_view label) {
  page.add("<svg viewBox=\"0 0 {:g} {:g}\" role=\"img\" aria-label=\"{}\">\n", f.width, f.height,
           escape(label));
}

void x_label(Page& page, const Frame& f, double at, std::string_view text) {
  page.add("<text class=\"tick\" x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>\n", at,
           f.height - f.bottom + 16, text);
}

void y_tick(Page& page, const Frame& f, double at, std::string_view text) {
  page.add("<line class=\"grid\" x1=\"{:g}\" x2=\"{:g}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/>", f.left,
           f.width - f.right, at, at);
  page.add("<text class=\"tick\" x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>\n",
           f.left - 7, at + 4, text);
}

double round_step(double range, int count) {
  const double rough = std::max(range, 1e-300) / count;
  const double decade = std::pow(10.0, std::floor(std::log10(rough)));
  for (double m : {1.0, 2.0, 5.0}) {
    if (m * decade >= rough * 0.999) return m * decade;
  }
  return 10 * decade;
}

void x_axis(Page& page, const Frame& f, const Axis& x, std::string_view name) {
  const double step = std::max(1.0, round_step(x.hi - x.lo, f.width > 500 ? 10 : 5));
  for (double v = std::ceil(x.lo / step) * step; v <= x.hi * (1 + 1e-9); v += step) {
    page.add("<line class=\"axis\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1:g}\" y2=\"{2:g}\"/>", x(v),
             f.height - f.bottom, f.height - f.bottom + 4);
    x_label(page, f, x(v), fmt::format("{:g}", v));
  }
  page.add("<line class=\"axis\" x1=\"{:g}\" x2=\"{:g}\" y1=\"{:g}\" y2=\"{:g}\"/>\n", f.left,
           f.width - f.right, f.height - f.bottom, f.height - f.bottom);
  page.add("<text class=\"name\" x=\"{:g}\" y=\"{:g}\" text-anchor=\"end\">{}</text>\n",
           f.width - f.right, f.height - 6, name);
}

void curve(Page& page, const Points& points, const Axis& x, const Axis& y, std::string_view style) {
  std::string d, dots;
  for (size_t i = 0; i < points.size(); ++i) {
    const auto shown = [&](size_t k) {
      return k < points.size() && std::isfinite(points[k].second);
    };
    if (!shown(i)) continue;
    const std::string at = fmt::format("{:.1f} {:.1f}", x(points[i].first), y(points[i].second));
    const bool joined = i > 0 && shown(i - 1);
    if (joined || shown(i + 1))
      d += (joined ? "L" : "M") + at;
    else
      dots += "M" + at + "h0";  // a round cap makes a lone point a dot
  }
  if (!d.empty()) page.add("<path class=\"line\" {} d=\"{}\"/>\n", style, d);
  if (!dots.empty())
    page.add("<path class=\"line\" {} style=\"stroke-width:6\" d=\"{}\"/>\n", style, dots);
}

void cross(Page& page, double x, double y, double r, std::string_view stroke) {
  page.add(
      "<path class=\"line\" stroke=\"{4}\" stroke-width=\"2\" "
      "d=\"M{0:.1f} {1:.1f}l{2:g} {2:g}m0 {3:g}l{3:g} {2:g}\"/>\n",
      x - r, y - r, 2 * r, -2 * r, stroke);
}

}  // namespace report
