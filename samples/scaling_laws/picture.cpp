#include "picture.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "file.h"
#include "svg.h"

using namespace report;

namespace {

constexpr Frame kFrame{.width = 372, .height = 216, .left = 42, .right = 8, .top = 8, .bottom = 36};
constexpr int kColumns = 200;  // of the limits' outline

const char* colour(const Outcome& o) {
  return o.law.source.starts_with("of our own") ? "#7a4fa0" : "#1f5fa8";
}

/// The smallest and largest limit, in log2, of each column of steps, clamped to the chart.
struct Outline {
  std::vector<double> at, low, high;  // first step of the column
};

Outline outline(const std::vector<double>& limits, const Axis& y) {
  Outline o;
  const size_t n = limits.size(), columns = std::min<size_t>(n, kColumns);
  for (size_t c = 0; c < columns; ++c) {
    const auto range = std::minmax_element(limits.begin() + c * n / columns,
                                           limits.begin() + (c + 1) * n / columns);
    o.at.push_back(static_cast<double>(c * n / columns));
    o.low.push_back(std::clamp(std::log2(*range.first), y.lo, y.hi));
    o.high.push_back(std::clamp(std::log2(*range.second), y.lo, y.hi));
  }
  return o;
}

/// Fills the area above the staircase `edge`.
void fill_above(Page& page, const Outline& o, const std::vector<double>& edge, const Axis& x,
                const Axis& y, const char* fill) {
  page.add("<path fill=\"{}\" d=\"M{:.1f} {:.1f}", fill, x.from, y.to);
  for (size_t i = 0; i < edge.size(); ++i) page.add("H{:.1f}V{:.1f}", x(o.at[i]), y(edge[i]));
  page.add("H{:.1f}V{:.1f}Z\"/>\n", x.to, y.to);
}

void scale_path(Page& page, const Outcome& o, const Axis& x, const Axis& y) {
  const auto height = [&](double scale) { return y(std::clamp(std::log2(scale), y.lo, y.hi)); };
  const std::vector<double>& scale = o.replay.scale;
  page.add("<path class=\"line\" stroke=\"{}\" stroke-width=\"1.8\" d=\"M{:.1f} {:.1f}", colour(o),
           x.from, height(scale[0]));
  for (size_t i = 1; i < scale.size(); ++i)
    if (scale[i] != scale[i - 1])
      page.add("H{:.1f}V{:.1f}", x(static_cast<double>(i)), height(scale[i]));
  page.add("H{:.1f}\"/>\n", x.to);
  double last = -10;  // crosses closer than three pixels would merge
  for (size_t i = 0; i < scale.size(); ++i) {
    const double at = x(static_cast<double>(i));
    const bool fell = i > 0 && scale[i] != scale[i - 1];
    if (!o.replay.overflow[i] || (at - last < 3 && !fell)) continue;
    cross(page, at, height(scale[i]), 2.4, "#c0392b");
    last = at;
  }
}

/// From the smallest scale or limit to the 99th percentile of the limits: a few steps with tiny
/// gradients must not compress the chart. Values outside are drawn at the edge.
Axis exponents(const LimitTrace& trace, const std::vector<Outcome>& outcomes) {
  std::vector<double> limits;
  for (const double limit : trace.limits)
    if (limit > 0 && std::isfinite(limit)) limits.push_back(std::log2(limit));
  if (limits.empty()) limits.push_back(16);  // every step overflows at all scales, or at none
  std::sort(limits.begin(), limits.end());
  double low = limits.front();
  const double high = limits[(limits.size() - 1) * 99 / 100];
  for (const Outcome& o : outcomes)
    for (const double scale : o.replay.scale)
      if (scale > 0) low = std::min(low, std::log2(scale));
  return kFrame.y(std::floor(low) - 1, std::ceil(std::max(high, low)) + 2);
}

void chart(Page& page, const LimitTrace& trace, const Outcome& o, const Axis& y) {
  const Axis x = kFrame.x(0, static_cast<double>(trace.limits.size()));
  page.add("<figure><figcaption><b>{}</b>{} skipped</figcaption>\n", escape(o.law.title),
           o.summary.skips);
  open_svg(page, kFrame,
           fmt::format("the scale of {} over the steps, beside the limit", o.law.title));
  const Outline limits = outline(trace.limits, y);
  fill_above(page, limits, limits.low, x, y, "#fbe9e5");
  fill_above(page, limits, limits.high, x, y, "#f0c4ba");
  const double step = std::max(1.0, round_step(y.hi - y.lo, 6));
  for (double v = std::ceil(y.lo / step) * step; v <= y.hi; v += step)
    y_tick(page, kFrame, y(v), power(std::exp2(v), true));
  x_axis(page, kFrame, x, "step");
  scale_path(page, o, x, y);
  page.add("</svg>\n<p class=\"side\">{}</p></figure>\n", escape(o.law.quirk));
}

void table(Page& page, const std::vector<Outcome>& outcomes) {
  page.raw(
      "<div class=\"wide\"><table><thead><tr><th>law</th><th class=\"n\">first scale</th>"
      "<th class=\"n\">growth interval</th><th class=\"n\">skipped steps</th>"
      "<th class=\"n\">mean log<sub>2</sub> scale</th>"
      "<th class=\"n\">steps at the best scale</th><th style=\"width:20%\"></th></tr></thead>"
      "<tbody>\n");
  for (const Outcome& o : outcomes) {
    page.add(
        "<tr><td><span class=\"swatch\" style=\"background:{0}\"></span>{1}</td>"
        "<td class=\"n\">{2}</td><td class=\"n\">{3}</td><td class=\"n\">{4}</td>"
        "<td class=\"n\">{5:.2f}</td><td class=\"n big\">{6}</td><td><div class=\"bar\">"
        "<div style=\"width:{7:.1f}%;background:{0}\"></div></div></td></tr>\n",
        colour(o), escape(o.law.title), power(o.law.constants.init_scale),
        o.law.constants.growth_interval, o.summary.skips, o.summary.mean_log2_scale,
        percent(o.summary.best_share), 100 * o.summary.best_share);
  }
  page.raw("</tbody></table></div>\n");
}

void sources(Page& page, const LimitTrace& trace, const std::vector<Outcome>& outcomes,
             const std::string& command) {
  page.raw("<h2>How this was made</h2>\n<dl>\n");
  page.add("<dt>command</dt><dd><code>{}</code></dd>\n", escape(command));
  page.add("<dt>trace</dt><dd>{}; {} steps</dd>\n", escape(trace.text), trace.limits.size());
  for (const Outcome& o : outcomes)
    page.add("<dt>{}</dt><dd>{}</dd>\n", escape(o.law.title), escape(o.law.source));
  page.raw("</dl>\n");
}

}  // namespace

std::string picture(const LimitTrace& trace, const std::vector<Outcome>& outcomes,
                    const std::string& command) {
  Page page;
  open_page(page, "The laws of loss scaling on one training");
  page.raw(
      "<p>Every step of a training has a largest loss scale at which its gradients are still "
      "finite: its limit. A law learns one bit about it in each step: whether the gradients "
      "overflowed. Below, each law runs over the same limits. The best scale of a step does not "
      "overflow, but its double would. The laws of known systems are blue, our own violet.</p>\n");
  table(page, outcomes);
  page.raw(
      "<h2>Scale and limit</h2>\n<p>In the red area the gradients overflow: in the strong red at "
      "every step drawn there, in the pale red at some. A cross is a skipped step.</p>\n"
      "<div style=\"display:grid;grid-template-columns:repeat(auto-fill,minmax(310px,1fr));"
      "gap:8px 24px\">\n");
  const Axis y = exponents(trace, outcomes);
  for (const Outcome& o : outcomes) chart(page, trace, o, y);
  page.raw("</div>\n");
  sources(page, trace, outcomes, command);
  page.raw("</body></html>\n");
  return page.text();
}
