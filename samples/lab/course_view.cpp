// The course of the training: scale and skips, then the loss.
#include <algorithm>
#include <cmath>

#include "lab_page.h"
#include "svg.h"

using namespace report;

namespace lab {
namespace {

constexpr size_t kMostPoints = 400;  // of a curve
constexpr size_t kMostChanges = 30;  // of the scale, in the table

constexpr Frame kFrame{
    .width = 1080, .height = 210, .left = 50, .right = 24, .top = 10, .bottom = 38};

Axis steps_axis(const LabRun& run) {
  return kFrame.x(0, static_cast<double>(std::max<size_t>(run.steps.size(), 1)));
}

void scale_chart(Page& page, const LabRun& run) {
  double low = INFINITY, high = -INFINITY;
  for (const LabRun::Step& step : run.steps) {
    low = std::min(low, std::log2(step.scale));
    high = std::max(high, std::log2(step.scale));
  }
  const Axis x = steps_axis(run), y = kFrame.y(std::floor(low) - 1, std::ceil(high) + 1);
  open_svg(page, kFrame, "the loss scale over the steps; a cross marks a skipped step");
  const double step = std::max(1.0, round_step(y.hi - y.lo, 6));
  for (double v = std::ceil(y.lo / step) * step; v <= y.hi; v += step)
    y_tick(page, kFrame, y(v), power(std::exp2(v), true));
  x_axis(page, kFrame, x, "step");
  const auto height = [&](size_t i) { return y(std::log2(run.steps[i].scale)); };
  page.add("<path class=\"line\" stroke=\"#1f5fa8\" stroke-width=\"2\" d=\"M{:.1f} {:.1f}", x.from,
           height(0));
  for (size_t i = 1; i < run.steps.size(); ++i)
    if (run.steps[i].scale != run.steps[i - 1].scale)
      page.add("H{:.1f}V{:.1f}", x(static_cast<double>(i)), height(i));
  page.add("H{:.1f}\"/>\n", x.to);
  double last = -10;  // crosses closer than three pixels would merge
  for (size_t i = 0; i < run.steps.size(); ++i) {
    const double at = x(static_cast<double>(i));
    if (!run.steps[i].skipped || at - last < 3) continue;
    cross(page, at, height(i), 4, "#c0392b");
    last = at;
  }
  page.raw("</svg>");
}

void loss_chart(Page& page, const LabRun& run) {
  Points points;
  double low = INFINITY, high = -INFINITY;
  for (const size_t i : spread(run.steps.size(), kMostPoints)) {
    const double loss = run.steps[i].loss;
    points.emplace_back(static_cast<double>(i), loss);
    if (std::isfinite(loss)) low = std::min(low, loss), high = std::max(high, loss);
  }
  if (!(low < high)) low -= 1, high = low + 2;
  if (!std::isfinite(low)) low = 0, high = 1;
  const double step = round_step(high - std::min(low, 0.0), 4);
  const Axis x = steps_axis(run), y = kFrame.y(std::min(low, 0.0), std::ceil(high / step) * step);
  open_svg(page, kFrame, "the training loss over the steps, without weight and scale");
  for (double v = std::ceil(y.lo / step) * step; v <= y.hi * (1 + 1e-9); v += step)
    y_tick(page, kFrame, y(v), fmt::format("{:g}", v));
  x_axis(page, kFrame, x, "step");
  curve(page, points, x, y, "stroke=\"#5a6572\" stroke-width=\"1.5\"");
  page.raw("</svg>");
}

/// The steps at which the scale changed.
void changes(Page& page, const LabRun& run) {
  std::vector<size_t> at{0};
  for (size_t i = 1; i < run.steps.size(); ++i)
    if (run.steps[i].scale != run.steps[i - 1].scale) at.push_back(i);
  page.raw("<details><summary>The same as a table</summary>\n<table class=\"map\"><caption><span>");
  page.raw(at.size() > kMostChanges ? "some of the changes of the scale" : "changes of the scale");
  page.raw(
      "</span></caption><thead><tr><th scope=\"col\">from step</th><th scope=\"col\">scale</th>"
      "<th scope=\"col\">because</th></tr></thead><tbody>\n");
  for (const size_t k : spread(at.size(), kMostChanges)) {
    const size_t i = at[k];
    const double now = run.steps[i].scale;
    page.add("<tr><td>{}</td><td>{}</td><td>{}</td></tr>\n", i, power(now),
             i == 0                         ? "the first"
             : now < run.steps[i - 1].scale ? "gradients overflowed"
                                            : "a run of good steps");
  }
  page.raw("</tbody></table></details>\n");
}

void measures(Page& page, const LabRun& run) {
  page.add(
      "<details><summary>The {} as a table</summary>\n<table class=\"map\"><thead><tr>"
      "<th scope=\"col\">after step</th><th scope=\"col\">{}</th></tr></thead><tbody>\n",
      escape(run.measure), escape(run.measure));
  for (const size_t i : spread(run.measures.size(), 30))
    page.add("<tr><td>{}</td><td>{:.4g}</td></tr>\n", run.measures[i].step, run.measures[i].value);
  page.raw("</tbody></table></details>\n");
}

}  // namespace

void course(Page& page, const LabRun& run) {
  if (run.steps.empty()) return;
  page.raw("<h2>Scale and loss</h2>\n");
  if (run.scaled) {
    page.raw(
        "<p>The scale S grows after a run of good steps. A cross marks a step whose gradients were "
        "not finite: it was skipped, and the scale fell.</p>\n");
    open_wide(page, "the loss scale over the steps");
    scale_chart(page, run);
    close_wide(page);
    changes(page, run);
  } else {
    page.raw("<p>The loss was not scaled: S = 1 at every step.</p>\n");
  }
  page.raw("<h3>Training loss, without weight and scale</h3>\n");
  open_wide(page, "the training loss over the steps");
  loss_chart(page, run);
  close_wide(page);
  if (!run.measures.empty()) measures(page, run);
}

}  // namespace lab
