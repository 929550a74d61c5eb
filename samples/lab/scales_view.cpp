// What each scale would lose, and what that would do to the weight gradients.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "lab_page.h"
#include "svg.h"
#include "verdict.h"

using namespace halftape;
using report::Axis;
using report::escape;
using report::Frame;
using report::Page;
using report::power;

namespace lab {
namespace {

constexpr size_t kColours = 6, kMostCurves = 24, kMostRows = 60;
constexpr const char* kPalette[kColours] = {"#1f5fa8", "#b5402a", "#3d7f4a",
                                            "#7a4fa0", "#bd8412", "#0f7f86"};
constexpr double kFloor = 1e-5;  // of the drawing

/// A module's losses at each scale.
struct Curves {
  std::string module;
  std::vector<double> lost, error;  // of each trial; NaN where there is none
  std::optional<double> smallest, largest;
  bool has_scales = false;  // it has weights
};

std::vector<Curves> curves_of(const amp::ScaleTrials& trials, double good) {
  std::vector<Curves> curves;
  for (size_t t = 0; t < trials.trials.size(); ++t) {
    const std::vector<ModuleLoss> at = losses(trials, t);
    curves.resize(at.size());
    for (size_t i = 0; i < at.size(); ++i) {
      curves[i].module = at[i].module;
      curves[i].lost.push_back(at[i].lost);
      curves[i].error.push_back(at[i].error);
    }
  }
  for (const amp::UsefulScales& useful : amp::useful_scales(trials, good))
    for (Curves& c : curves)
      if (c.module == shown(useful.module)) {
        c.smallest = useful.smallest, c.largest = useful.largest;
        c.has_scales = true;
      }
  return curves;
}

/// Those that need the largest scales come first: they get colours.
std::vector<Curves> by_need(std::vector<Curves> curves) {
  const auto need = [](const Curves& c) {
    return !c.has_scales ? -1.0 : c.smallest.value_or(std::numeric_limits<double>::infinity());
  };
  std::stable_sort(curves.begin(), curves.end(),
                   [&](auto& a, auto& b) { return need(a) > need(b); });
  curves.resize(std::min(curves.size(), kMostCurves));
  return curves;
}

void chart(Page& page, const LabRun::Trials& trials, const std::vector<Curves>& curves, bool errors,
           double good) {
  const Frame f{.width = 520, .height = 300, .left = 54, .right = 12, .top = 12, .bottom = 40};
  const auto& all = trials.at.trials;
  const Axis x = f.x(std::log2(all.front().scale), std::log2(all.back().scale) + 1),
             y = f.y(std::log10(kFloor), 0.1);
  report::open_svg(
      page, f,
      errors ? "error of each module's weight gradients over the loss scale"
             : "share of each module's activation gradients that is lost over the loss scale");
  for (int e = -5; e <= 0; ++e)
    y_tick(page, f, y(e), fmt::format("{:g} %", 100 * std::pow(10.0, e)));
  const auto upright = [&](double at, const char* style) {
    page.add("<line x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1:g}\" y2=\"{2:g}\" {3}/>\n", at, f.top,
             f.height - f.bottom, style);
  };
  if (trials.scale >= all.front().scale && trials.scale <= all.back().scale)
    upright(x(std::log2(trials.scale)), "stroke=\"#22272e\" stroke-dasharray=\"4 3\"");
  const auto over = std::find_if(all.begin(), all.end(), [](auto& t) { return t.overflows; });
  if (over != all.end()) {
    const double from = std::max(x(std::log2(over->scale)), x.from);
    page.add(
        "<rect x=\"{0:.1f}\" y=\"{1:g}\" width=\"{2:.1f}\" height=\"{3:g}\" fill=\"#e9dff3\"/>"
        "<text class=\"zone halo\" x=\"{0:.1f}\" y=\"{4:g}\" dx=\"-4\" "
        "text-anchor=\"end\">overflow</text>\n",
        from, f.top, x.to - from, f.height - f.top - f.bottom, f.top + 14);
  }
  if (errors)
    page.add(
        "<line x1=\"{:g}\" x2=\"{:g}\" y1=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"#3d7f4a\" "
        "stroke-dasharray=\"2 3\"/>\n",
        f.left, f.width - f.right, y(std::log10(good)), y(std::log10(good)));
  for (int e = static_cast<int>(std::ceil(x.lo / 10)) * 10; e <= x.hi; e += 10)
    x_label(page, f, x(e), power(std::ldexp(1.0, e), true));
  page.add("<text class=\"name\" x=\"{:g}\" y=\"{:g}\" text-anchor=\"end\">loss scale S</text>\n",
           f.width - f.right, f.height - 6);
  for (size_t i = curves.size(); i-- > 0;) {
    report::Points points;
    const std::vector<double>& values = errors ? curves[i].error : curves[i].lost;
    for (size_t t = 0; t < values.size(); ++t)
      points.emplace_back(std::log2(all[t].scale),
                          std::isfinite(values[t]) ? std::log10(std::clamp(values[t], kFloor, 1.25))
                                                   : std::numeric_limits<double>::quiet_NaN());
    report::curve(page, points, x, y,
                  i < kColours ? fmt::format("stroke=\"{}\" stroke-width=\"2\"", kPalette[i])
                               : "stroke=\"#b8c0c8\" stroke-width=\"1\"");
  }
  page.raw("</svg>\n");
}

void legend(Page& page, const std::vector<Curves>& curves) {
  page.raw("<p class=\"legend\">");
  const auto key = [&](std::string_view colour, std::string_view text) {
    page.add(
        "<span><svg class=\"key\" viewBox=\"0 0 28 10\" aria-hidden=\"true\"><rect width=\"28\" "
        "height=\"4\" y=\"3\" fill=\"{}\"/></svg>{}</span>",
        colour, escape(text));
  };
  for (size_t i = 0; i < std::min(curves.size(), kColours); ++i) key(kPalette[i], curves[i].module);
  if (curves.size() > kColours)
    key("#b8c0c8", fmt::format("{} more modules", curves.size() - kColours));
  page.raw("</p>\n");
}

std::string scale_cell(const Curves& c, const std::optional<double>& scale) {
  return !c.has_scales ? "–" : scale ? power(*scale) : "none";
}

/// For each module: its useful scales, and what it loses at a few.
void table(Page& page, const LabRun& run, const std::vector<Curves>& end, double good) {
  const LabRun::Trials& trials = run.trials.back();
  std::map<std::string, Curves> middle;
  if (run.trials.size() > 1)
    for (const Curves& c : curves_of(run.trials.front().at, good)) middle[c.module] = c;
  std::vector<size_t> columns;
  for (const int e : {0, 7, 16, 24})
    for (size_t t = 0; t < trials.at.trials.size(); ++t)
      if (trials.at.trials[t].scale == std::ldexp(1.0, e)) columns.push_back(t);
  open_wide(page, "useful scales of each module");
  page.add(
      "<table class=\"map\"><caption><span>Scales at which a module's weight gradients are within "
      "{:g} % "
      "of float32, and what is lost and how far they are off at some scales, in "
      "percent{}</span></caption>"
      "<thead><tr><th scope=\"col\">module</th>",
      100 * good,
      end.size() > kMostRows ? fmt::format("; {} of {} modules", kMostRows, end.size()) : "");
  page.raw("<th scope=\"col\" class=\"n\">smallest</th><th scope=\"col\" class=\"n\">largest</th>");
  if (!middle.empty())
    page.add("<th scope=\"col\" class=\"n\">after step {}</th>", run.trials.front().step);
  for (const size_t t : columns)
    page.add(
        "<th scope=\"col\" class=\"n\">S = {0}: lost</th><th scope=\"col\" class=\"n\">error</th>",
        power(trials.at.trials[t].scale));
  page.raw("</tr></thead><tbody>\n");
  for (size_t i = 0; i < std::min(end.size(), kMostRows); ++i) {
    const Curves& c = end[i];
    page.add("<tr><th scope=\"row\">{}</th><td>{}<td>{}", escape(c.module),
             scale_cell(c, c.smallest), scale_cell(c, c.largest));
    if (!middle.empty()) {
      const Curves& m = middle[c.module];
      page.add("<td>{}{}{}", scale_cell(m, m.smallest), m.smallest ? " … " : "",
               m.smallest ? scale_cell(m, m.largest) : "");
    }
    for (const size_t t : columns)
      page.add("<td>{}<td>{}", percent_number(c.lost[t]), percent_number(c.error[t]));
    page.raw("\n");
  }
  page.raw("</tbody></table>");
  close_wide(page);
}

}  // namespace

void scales_view(Page& page, const LabRun& run) {
  if (run.trials.empty() || run.trials.back().at.trials.empty()) return;
  const LabRun::Trials& end = run.trials.back();
  const double good = good_error(end.at);
  const std::vector<Curves> all = curves_of(end.at, good), drawn = by_need(all);
  page.raw("<h2>Other scales</h2>\n");
  page.add(
      "<p>One batch, always the same, with the weights after step {}: a backward pass for each "
      "scale. The dashed upright "
      "line "
      "is where the scale stood, S&nbsp;=&nbsp;{}; the green line is an error of {:g} %. The error "
      "has a floor, "
      "which no scale improves: 16 bits round, whatever they keep.</p>\n",
      end.step, power(end.scale), 100 * good);
  legend(page, drawn);
  page.raw("<div class=\"pair\"><div><h3>Error of the weight gradients</h3>\n");
  chart(page, end, drawn, true, good);
  page.raw("</div><div><h3>Share of activation gradients lost</h3>\n");
  chart(page, end, drawn, false, good);
  page.raw("</div></div>\n");
  table(page, run, all, good);
}

}  // namespace lab
