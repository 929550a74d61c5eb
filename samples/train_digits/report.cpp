// The HTML page about a comparison of precisions: a result table, curves and histograms in SVG.
#include "report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <iterator>
#include <limits>
#include <optional>
#include <random>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <utility>

namespace report {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// ---- Text ---------------------------------------------------------------------------------------

class Page {
 public:
  template <typename... T>
  void add(fmt::format_string<T...> format, T&&... values) {
    fmt::format_to(std::back_inserter(text_), format, std::forward<T>(values)...);
  }
  void raw(std::string_view text) { text_ += text; }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

std::string escape(std::string_view text) {
  std::string out;
  for (char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:  // control characters are not allowed in HTML
        if (static_cast<unsigned char>(c) >= 0x20 || c == '\n' || c == '\t') out += c;
    }
  }
  return out;
}

std::string integer(int64_t n) { return n < 0 ? fmt::format("−{}", -n) : fmt::format("{}", n); }

/// "2^n" for powers of two, else the plain number; `svg` text knows no <sup>.
std::string power(double value, bool svg = false) {
  int n = 0;
  if (!(value > 0) || !std::isfinite(value)) return fmt::format("{}", value);
  if (std::frexp(value, &n) != 0.5) return fmt::format("{:g}", value);
  if (svg)
    return fmt::format("2<tspan dy=\"-4\" font-size=\"8\" dx=\"0.5\">{}</tspan>", integer(n - 1));
  return n == 1 ? "1" : fmt::format("2<sup>{}</sup>", integer(n - 1));
}

/// Never rounds a share to 0 % or 100 % that is not.
std::string percent(double share) {
  const double p = 100 * share;
  if (p == 0 || p == 100) return fmt::format("{:.0f} %", p);
  if (p < 0.1) return "&lt; 0.1 %";
  if (p > 99.9) return "&gt; 99.9 %";
  return fmt::format("{:.1f} %", p);
}

/// 1e-5 as 10 to the −5.
std::string weight_text(double weight) {
  const double e = std::round(std::log10(std::abs(weight)));
  if (std::abs(e) > 3 && fmt::format("{:g}", weight) == fmt::format("{:g}", std::pow(10.0, e)))
    return fmt::format("10<sup>{}</sup>", integer(static_cast<int64_t>(e)));
  return fmt::format("{:g}", weight);
}

std::string loss_text(double loss) {
  return std::isfinite(loss) ? fmt::format("{:.3g}", loss) : "not finite";
}

std::string colour(const std::vector<Run>& runs, size_t i) {
  constexpr std::pair<std::string_view, std::string_view> kNamed[] = {
      {"float32", "#3b4252"}, {"fp16", "#d1495b"}, {"amp", "#1f78b4"}, {"bf16", "#2a9d6f"}};
  constexpr std::string_view kOthers[] = {"#8e5ea2", "#c77f1a", "#5b6c7d", "#a0522d"};
  for (auto [name, value] : kNamed) {
    if (name == runs[i].name) return std::string(value);
  }
  return std::string(kOthers[i % std::size(kOthers)]);
}

// ---- Axes and curves ----------------------------------------------------------------------------

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

/// 1, 2 or 5 times a power of ten, so that `range` takes at most `count` steps.
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

using Points = std::vector<std::pair<double, double>>;  // a nan in y leaves a gap

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

/// A few hundred points say as much as a hundred thousand; the means go to `value(first, last)`.
template <typename F>
Points thinned(size_t size, double per_x, F value) {
  constexpr size_t kMost = 500;
  const size_t count = std::min(size, kMost);
  Points out;
  for (size_t i = 0; i < count; ++i) {
    const size_t first = i * size / count, last = (i + 1) * size / count;
    out.emplace_back(static_cast<double>(first + last + 1) / 2 / per_x, value(first, last));
  }
  return out;
}

/// Centred moving mean of the finite values; a gap where the value itself is not finite.
std::vector<double> smoothed(const std::vector<double>& values) {
  const size_t half = values.size() / 60;
  std::vector<double> sum(values.size() + 1), count(values.size() + 1), out(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    const bool ok = std::isfinite(values[i]);
    sum[i + 1] = sum[i] + (ok ? values[i] : 0);
    count[i + 1] = count[i] + (ok ? 1 : 0);
  }
  for (size_t i = 0; i < values.size(); ++i) {
    // At the start, where the loss falls steeply, the window stays symmetric.
    const size_t first = i - std::min(i, half);
    const size_t last = std::min(values.size(), i + std::min(i, half) + 1);
    out[i] =
        std::isfinite(values[i]) ? (sum[last] - sum[first]) / (count[last] - count[first]) : kNan;
  }
  return out;
}

std::optional<size_t> first_nonfinite(const std::vector<double>& values) {
  for (size_t i = 0; i < values.size(); ++i) {
    if (!std::isfinite(values[i])) return i;
  }
  return std::nullopt;
}

/// float32 lies under the others as a broad pale line, so that a curve on top of it stays visible.
std::string line_style(const std::vector<Run>& runs, size_t i) {
  const bool ground = runs[i].name == "float32" && runs.size() > 1;
  return fmt::format("stroke=\"{}\" stroke-width=\"{}\"{}", colour(runs, i), ground ? "5.5" : "1.8",
                     ground                   ? " opacity=\"0.4\""
                     : runs[i].name == "bf16" ? " stroke-dasharray=\"6 4\""
                                              : "");
}

/// Epochs when their length is known and there are some, else steps.
struct Time {
  double per_x, end;
  std::string_view name;
};

Time time_axis(const Report& r) {
  size_t steps = 1;
  for (const Run& run : r.runs) steps = std::max({steps, run.loss.size(), run.scale.size()});
  const bool short_run = static_cast<int64_t>(steps) < 2 * r.steps_per_epoch;
  if (r.steps_per_epoch <= 0 || short_run) return {1, static_cast<double>(steps), "step"};
  const auto per = static_cast<double>(r.steps_per_epoch);
  return {per, static_cast<double>(steps) / per, "epoch"};
}

void legend(Page& page, const Report& r) {
  page.raw("<p class=\"legend\">");
  for (size_t i = 0; i < r.runs.size(); ++i) {
    page.add(
        "<span><svg class=\"key\" viewBox=\"0 0 28 10\"><path class=\"line\" {} "
        "d=\"M3 5H25\"/></svg>{}",
        line_style(r.runs, i), escape(r.runs[i].title));
    if (auto step = first_nonfinite(r.runs[i].loss))
      page.add(" <em>(× loss not finite from step {} on)</em>", *step);
    page.raw("</span>");
  }
  page.raw("</p>\n");
}

void loss_chart(Page& page, const Report& r, const Time& time) {
  const Frame f{.width = 640, .height = 330};
  std::vector<std::vector<double>> smooth;
  double lo = HUGE_VAL, hi = 0;
  for (const Run& run : r.runs) {
    smooth.push_back(smoothed(run.loss));
    for (double v : smooth.back()) {
      if (v > 0) lo = std::min(lo, v), hi = std::max(hi, v);
    }
  }
  if (hi == 0) lo = 0.1, hi = 10;  // nothing finite to show
  const double range = std::log10(hi / lo);
  const double pad = std::max(0.1, (0.8 - range) / 2);
  const Axis x = f.x(0, time.end), y = f.y(std::log10(lo) - pad, std::log10(hi) + pad);
  const auto log_y = [&](double v) { return std::log10(std::max(v, 1e-300)); };

  open_svg(page, f, "training loss per step, logarithmic");
  page.add(
      "<clipPath id=\"loss\"><rect x=\"{:g}\" y=\"{:g}\" width=\"{:g}\" height=\"{:g}\"/>"
      "</clipPath>\n",
      f.left, f.top, f.width - f.left - f.right + 5, f.height - f.top - f.bottom);
  const double span = y.hi - y.lo;
  const int every = std::max(1, static_cast<int>(std::ceil(span / 7)));
  for (int e = static_cast<int>(std::floor(y.lo)); e <= y.hi; ++e) {
    for (int m : {1, 2, 5}) {
      const double v = e + std::log10(m);
      if (v < y.lo || v > y.hi || (m != 1 && span > 2.5) || e % every != 0) continue;
      y_tick(page, f, y(v),
             std::abs(e) <= 3 ? fmt::format("{:g}", m * std::pow(10.0, e))
                              : fmt::format("{}10<tspan dy=\"-4\" font-size=\"8\">{}</tspan>",
                                            m == 1 ? "" : fmt::format("{}·", m), integer(e)));
    }
  }
  x_axis(page, f, x, time.name);
  page.raw("<g clip-path=\"url(#loss)\">\n");
  for (size_t i = 0; i < r.runs.size(); ++i) {
    const auto& loss = r.runs[i].loss;
    const Points points = thinned(loss.size(), time.per_x, [&](size_t first, size_t last) {
      double sum = 0;
      for (size_t k = first; k < last; ++k) sum += loss[k];
      return std::isfinite(sum) ? log_y(sum / static_cast<double>(last - first)) : kNan;
    });
    curve(page, points, x, y,
          fmt::format("stroke=\"{}\" stroke-width=\"0.8\" opacity=\"0.22\"", colour(r.runs, i)));
  }
  for (size_t i = 0; i < r.runs.size(); ++i) {
    const auto& values = smooth[i];
    const Points points = thinned(values.size(), time.per_x, [&](size_t first, size_t last) {
      const double v = values[(first + last) / 2];
      return std::isfinite(v) ? log_y(v) : kNan;
    });
    curve(page, points, x, y, line_style(r.runs, i));
  }
  page.raw("</g>\n");
  for (size_t i = 0; i < r.runs.size(); ++i) {
    const auto bad = first_nonfinite(r.runs[i].loss);
    if (!bad) continue;
    const double at = *bad == 0 ? y.hi : std::clamp(log_y(smooth[i][*bad - 1]), y.lo, y.hi);
    cross(page, std::max(x(static_cast<double>(*bad) / time.per_x), f.left + 8),
          std::max(y(at), f.top + 8), 5, colour(r.runs, i));
  }
  page.raw("</svg>\n");
}

void accuracy_chart(Page& page, const Report& r) {
  const Frame f{.width = 420, .height = 330, .left = 52};
  size_t epochs = 1;
  for (const Run& run : r.runs) epochs = std::max(epochs, run.test_accuracy.size());
  const Axis x = f.x(0, static_cast<double>(epochs)), y = f.y(0, 102);
  open_svg(page, f, "test accuracy per epoch in percent");
  for (int v = 0; v <= 100; v += 20) y_tick(page, f, y(v), fmt::format("{} %", v));
  x_axis(page, f, x, "epoch");
  for (size_t i = 0; i < r.runs.size(); ++i) {
    Points points;
    for (double v : r.runs[i].test_accuracy)
      points.emplace_back(static_cast<double>(points.size() + 1), v);
    curve(page, points, x, y, line_style(r.runs, i));
  }
  page.raw("</svg>\n");
}

// ---- The scale ----------------------------------------------------------------------------------

void scale_chart(Page& page, const Report& r, const Time& time) {
  const Frame f{.width = 1080, .height = 250};
  double lo = HUGE_VAL, hi = -HUGE_VAL;
  for (const Run& run : r.runs) {
    for (double s : run.scale) {
      if (s > 0 && std::isfinite(s))
        lo = std::min(lo, std::log2(s)), hi = std::max(hi, std::log2(s));
    }
  }
  if (hi < lo) lo = hi = 0;
  lo = std::floor(lo) - 1, hi = std::ceil(hi) + 1;
  const Axis x = f.x(0, time.end), y = f.y(lo, hi);
  open_svg(page, f, "loss scale per step, logarithmic, with skipped steps");
  const int every = std::max(1, static_cast<int>(std::ceil((hi - lo) / 8)));
  for (int e = static_cast<int>(lo); e <= hi; e += every)
    y_tick(page, f, y(e), power(std::ldexp(1.0, e), true));
  x_axis(page, f, x, time.name);
  for (size_t i = 0; i < r.runs.size(); ++i) {
    const Run& run = r.runs[i];
    const auto log_scale = [&](size_t step) {
      const double s = run.scale[step];
      return s > 0 && std::isfinite(s) ? std::log2(s) : kNan;
    };
    Points points;  // corners only: the value holds for a whole step and then jumps
    for (size_t k = 0; k < run.scale.size(); ++k) {
      const bool turns = k == 0 || run.scale[k] != run.scale[k - 1];
      if (turns) points.emplace_back(static_cast<double>(k) / time.per_x, log_scale(k));
      if (k + 1 == run.scale.size() || run.scale[k + 1] != run.scale[k])
        points.emplace_back(static_cast<double>(k + 1) / time.per_x, log_scale(k));
    }
    curve(page, points, x, y, fmt::format("stroke=\"{}\" stroke-width=\"1.8\"", colour(r.runs, i)));
    for (int64_t step : run.skipped_steps) {
      if (step < 0 || static_cast<size_t>(step) >= run.scale.size()) continue;
      const double at = log_scale(static_cast<size_t>(step));
      if (std::isfinite(at))
        cross(page, x((static_cast<double>(step) + 0.5) / time.per_x), y(at), 4, "#b5402a");
    }
  }
  page.raw("</svg>\n");
}

// ---- Histograms ---------------------------------------------------------------------------------

struct Zone {
  int lo, hi;  // powers of two; the outer zones end with the histogram
  std::string_view name, range, pale, strip, bar;
};

// Halves of 2^-24 round to zero (ties to even), whatever is larger becomes at least 2^-24.
constexpr Zone kZones[] = {
    {Histogram::kLow, -25, "becomes zero", "below 2<sup>−25</sup>", "#fcefec", "#f3cfc7",
     "#b5402a"},
    {-25, -14, "subnormal", "2<sup>−25</sup> … 2<sup>−14</sup>, fewer digits", "#fdf7e6", "#f5e1ad",
     "#bd8412"},
    {-14, 16, "normal", "2<sup>−14</sup> … 2<sup>16</sup>", "#f0f7f1", "#cbe3cf", "#3d7f4a"},
    {16, Histogram::kHigh, "overflow", "2<sup>16</sup> and above, infinite", "#f5f0f9", "#dccbea",
     "#7a4fa0"}};

int64_t nonzero(const Histogram& h) {
  int64_t n = h.nonfinite;
  for (int64_t b : h.bins) n += b;
  return n;
}

/// Elements in `zone` once all of them are multiplied by 2^shift.
int64_t count(const Histogram& h, const Zone& zone, int shift = 0) {
  int64_t n = zone.hi == Histogram::kHigh ? h.nonfinite : 0;
  for (int e = Histogram::kLow; e < Histogram::kHigh; ++e) {
    const int moved = std::clamp(e + shift, Histogram::kLow, Histogram::kHigh - 1);
    if (moved >= zone.lo && moved < zone.hi) n += h.bins[static_cast<size_t>(e - Histogram::kLow)];
  }
  return n;
}

double share(int64_t part, int64_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0;
}

/// Share of all non-zero elements that fp16 would turn into zero.
double lost(const std::vector<Histogram>& layers) {
  int64_t gone = 0, all = 0;
  for (const Histogram& h : layers) gone += count(h, kZones[0]), all += nonzero(h);
  return share(gone, all);
}

double highest_bar(const Histogram& h) {
  return share(*std::max_element(h.bins.begin(), h.bins.end()), nonzero(h));
}

void histogram(Page& page, const Histogram& h, int lo, int hi, double highest) {
  const Frame f{.width = 526, .height = 172, .left = 40, .right = 8, .top = 38, .bottom = 24};
  const Axis x = f.x(lo, hi), y = f.y(0, std::max(highest, 1e-6) * 1.06);
  const int64_t all = nonzero(h);
  open_svg(page, f, h.layer + ": gradient elements per power of two");
  for (const Zone& zone : kZones) {
    const double from = x(std::max(zone.lo, lo)), to = x(std::min(zone.hi, hi));
    const auto box = [&](double top, double bottom, std::string_view fill) {
      page.add("<rect x=\"{:.1f}\" y=\"{:g}\" width=\"{:.1f}\" height=\"{:g}\" fill=\"{}\"/>", from,
               top, to - from, bottom - top, fill);
    };
    box(0, f.top - 3, zone.strip);
    box(f.top - 3, f.height - f.bottom, zone.pale);
    page.add(
        "<text class=\"zone\" x=\"{0:.1f}\" y=\"14\" text-anchor=\"middle\">{1}</text>"
        "<text class=\"share\" x=\"{0:.1f}\" y=\"29\" text-anchor=\"middle\">{2}</text>\n",
        (from + to) / 2, zone.name, all == 0 ? "–" : percent(share(count(h, zone), all)));
  }
  const double step = round_step(y.hi, 3);
  for (double v = 0; v <= y.hi; v += step) y_tick(page, f, y(v), fmt::format("{:g} %", 100 * v));
  for (const Zone& zone : kZones) {
    for (int e = std::max(zone.lo, lo); e < std::min(zone.hi, hi); ++e) {
      const int64_t n = h.bins[static_cast<size_t>(e - Histogram::kLow)];
      if (n == 0) continue;
      const double top = y(share(n, all));
      page.add("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"{}\"/>",
               x(e) + 0.5, top, x(e + 1) - x(e) - 1, f.height - f.bottom - top, zone.bar);
    }
  }
  page.raw("\n");
  for (int e : {-55, -40, -25, -14, 0, 16, 28, 40}) {
    if (e >= lo && e <= hi && (e != hi || e == 16))
      x_label(page, f, x(e), power(std::ldexp(1.0, e), true));
  }
  if (all == 0) {
    page.add(
        "<text class=\"name\" x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">"
        "no element differs from zero</text>\n",
        (x(lo) + x(hi)) / 2, y(y.hi / 2));
  }
  page.raw("</svg>\n");
}

void histograms(Page& page, const Report& r) {
  const bool both = !r.before.empty() && !r.after.empty();
  page.raw(
      "<p>Each bar counts the gradient elements within one power of two; fp16 turns those left "
      "of 2<sup>−25</sup> into zero and keeps ever fewer digits of those below "
      "2<sup>−14</sup>. ");
  if (both) {
    page.add(
        "Multiplying the loss by S&nbsp;=&nbsp;{} moves every element to the right by "
        "log<sub>2</sub>&thinsp;S without changing the shape, so that the share lost to zero "
        "goes from {} to {}; the step divides by S in float32 and has the true gradient "
        "back.",
        power(r.scale_shown), percent(lost(r.before)), percent(lost(r.after)));
  }
  if (!r.gradients.empty()) page.add(" Shown are the {}.", escape(r.gradients));
  page.raw("</p>\n<p class=\"legend\">");
  for (const Zone& zone : kZones) {
    page.add(
        "<span><svg class=\"key\" viewBox=\"0 0 28 10\"><rect width=\"28\" height=\"10\" "
        "rx=\"2\" fill=\"{}\"/></svg>{}: {}</span>",
        zone.bar, zone.name, zone.range);
  }
  page.raw("</p>\n");

  int lo = -40, hi = 25;  // widened to hold every element
  for (const auto* layers : {&r.before, &r.after}) {
    for (const Histogram& h : *layers) {
      for (int e = Histogram::kLow; e < Histogram::kHigh; ++e) {
        if (h.bins[static_cast<size_t>(e - Histogram::kLow)] > 0)
          lo = std::min(lo, e), hi = std::max(hi, e + 1);
      }
    }
  }
  page.add("<div class=\"{}\">\n", both ? "pairs" : "pairs one");
  const auto& left = r.before.empty() ? r.after : r.before;
  for (const Histogram& h : left) {
    const auto same = [&](const Histogram& other) { return other.layer == h.layer; };
    const auto other = std::find_if(r.after.begin(), r.after.end(), same);
    const bool pair = both && other != r.after.end();
    const double highest = std::max(highest_bar(h), pair ? highest_bar(*other) : 0);
    const int64_t elements = std::max(h.total, h.zeros + nonzero(h));
    std::string zeros;
    if (h.zeros > 0)
      zeros =
          fmt::format(", {} of them exactly zero and left out", percent(share(h.zeros, elements)));
    page.add("<figure><figcaption><b>{}</b> {} elements{}</figcaption>\n<div class=\"pair\">",
             escape(h.layer), elements, zeros);
    const auto panel = [&](const Histogram& shown, bool scaled) {
      page.add(
          "<div><p class=\"side\">{}{}</p>",
          scaled ? fmt::format("with the loss multiplied by S&nbsp;=&nbsp;{}", power(r.scale_shown))
                 : "not scaled, S&nbsp;=&nbsp;1",
          shown.nonfinite > 0 ? fmt::format("; {} not finite", shown.nonfinite) : "");
      histogram(page, shown, lo, hi, highest);
      page.raw("</div>");
    };
    panel(h, r.before.empty());
    if (pair) panel(*other, true);
    page.raw("</div></figure>\n");
  }
  page.raw("</div>\n");
}

/// What other scales would do follows from the unscaled histograms: a power of two shifts them.
void scale_table(Page& page, const Report& r) {
  constexpr int kShifts[] = {0, 7, 12, 16, 20, 24, 32};
  page.raw(
      "<h3>What other scales would do</h3>\n<p>The share of non-zero elements that fp16 would "
      "turn into zero, and into infinity where that happens (∞). Training does not need all "
      "of them, only those that matter.</p>\n<table class=\"heat\"><thead><tr><th>layer</th>");
  for (int shift : kShifts) page.add("<th class=\"n\">S = {}</th>", power(std::ldexp(1.0, shift)));
  page.raw("</tr></thead><tbody>\n");
  for (const Histogram& h : r.before) {
    page.add("<tr><td>{}</td>", escape(h.layer));
    for (int shift : kShifts) {
      const int64_t all = nonzero(h), over = count(h, kZones[3], shift);
      const double gone = share(count(h, kZones[0], shift), all);
      page.add("<td class=\"n\" style=\"background:rgba(200,70,45,{:.2f})\">{}{}</td>", gone * 0.45,
               all == 0 ? "–" : percent(gone),
               over == 0 ? "" : fmt::format(" <i>∞&nbsp;{}</i>", percent(share(over, all))));
    }
    page.raw("</tr>\n");
  }
  page.raw("</tbody></table>\n");
}

// ---- The page -----------------------------------------------------------------------------------

constexpr std::string_view kStyle = R"css(
:root { color-scheme: light; }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 44px 32px 64px; max-width: 1144px; background: #fff; color: #22272e;
  font: 17px/1.55 Charter, "Bitstream Charter", "Source Serif Pro", Georgia, "Liberation Serif", serif; }
h1 { font-size: 34px; line-height: 1.2; margin: 0 0 12px; letter-spacing: -0.01em; }
h2 { font-size: 23px; margin: 46px 0 8px; padding-top: 14px; border-top: 1px solid #d9dee4; }
h3 { font-size: 18px; margin: 30px 0 4px; }
p { margin: 8px 0 14px; max-width: 46em; }
sup, sub { font-size: 0.7em; line-height: 0; }
table, svg, .legend, .side, figcaption, dt { font-family: system-ui, "Segoe UI", Roboto,
  "Helvetica Neue", Arial, "Liberation Sans", sans-serif; }
table { border-collapse: collapse; width: 100%; font-size: 15px; margin: 18px 0;
  font-variant-numeric: tabular-nums; }
th { font-weight: 600; font-size: 13px; color: #5a6572; text-align: left; }
th, td { padding: 8px 12px; border-bottom: 1px solid #e4e8ec; vertical-align: middle; }
thead th { border-bottom: 2px solid #c6ced6; }
td { white-space: nowrap; }
.n { text-align: right; white-space: nowrap; }
.heat { font-size: 14px; }
.heat i { color: #7a4fa0; font-style: normal; white-space: nowrap; }
.swatch { display: inline-block; width: 12px; height: 12px; border-radius: 3px; margin-right: 9px; }
.bar { background: #eef1f4; width: 100%; min-width: 120px; height: 12px; border-radius: 3px; }
.bar div { height: 12px; border-radius: 3px; }
.big { font-weight: 650; }
svg { display: block; width: 100%; height: auto; }
.charts { display: grid; grid-template-columns: 640fr 420fr; gap: 20px; }
.charts h3 { margin-top: 6px; font-size: 16px; }
.legend { display: flex; flex-wrap: wrap; gap: 4px 24px; font-size: 14px; max-width: none; }
.legend em { color: #6a7480; font-style: normal; }
.key { display: inline-block; width: 28px; height: 10px; margin-right: 8px; }
figure { margin: 0 0 20px; break-inside: avoid; }
figcaption { font-size: 14px; color: #5a6572; margin: 6px 0 2px; }
figcaption b { color: #22272e; font-size: 15px; margin-right: 6px; }
.pair { display: grid; grid-template-columns: 1fr 1fr; gap: 28px; }
.one { display: grid; grid-template-columns: 1fr 1fr; gap: 0 28px; }
.one .pair { grid-template-columns: 1fr; }
.side { font-size: 13px; color: #5a6572; margin: 0 0 4px; }
.line { fill: none; stroke-linecap: round; stroke-linejoin: round; }
.grid { stroke: #dfe4e9; stroke-width: 0.8; }
.axis { stroke: #8b96a2; stroke-width: 1; }
.tick, .name { font-size: 11.5px; fill: #5a6572; }
.zone { font-size: 10.5px; fill: #3a424b; }
.share { font-size: 12px; font-weight: 650; fill: #22272e; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 6px 22px; margin: 14px 0; }
dt { color: #5a6572; font-size: 14px; padding-top: 2px; }
dd { margin: 0; overflow-wrap: anywhere; }
code { font: 14px/1.5 ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace;
  background: #f2f4f6; padding: 2px 6px; border-radius: 4px; white-space: pre-wrap; }
@media screen and (max-width: 760px) { body { padding: 24px 16px; font-size: 16px; }
  .charts, .pair, .one { grid-template-columns: 1fr; } .wide { overflow-x: auto; } }
@media print { @page { margin: 14mm; } body { padding: 0; font-size: 11pt; max-width: none; }
  * { -webkit-print-color-adjust: exact; print-color-adjust: exact; }
  .heat { font-size: 9pt; } h1 { font-size: 22pt; } h2 { font-size: 15pt; margin-top: 26px; } h3 { font-size: 12pt; }
  table { font-size: 9pt; } th { font-size: 8pt; } th, td { padding: 4px 6px; }
  .bar { min-width: 60px; } .legend { font-size: 9pt; } figure { margin-bottom: 8px; }
  h2, h3, h2 + p, h3 + p, .legend { break-after: avoid; }
  .charts, table, dl, svg { break-inside: avoid; } }
)css";

std::string number_word(size_t n) {
  constexpr std::string_view kWords[] = {"no", "one", "two", "three", "four", "five", "six"};
  return n < std::size(kWords) ? std::string(kWords[n]) : fmt::format("{}", n);
}

void heading(Page& page, const Report& r) {
  const std::string title =
      r.runs.size() == 1 ? fmt::format("One network in {}", escape(r.runs[0].title))
                         : fmt::format("One network in {} precisions", number_word(r.runs.size()));
  page.add(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<title>{0}</title>\n<style>{1}</style></head><body>\n<h1>{0}</h1>\n<p>",
      title, kStyle);
  if (r.runs.size() > 1) {
    page.raw(
        "The same network is trained from the same start on the same batches; only the "
        "number format of the arithmetic changes. ");
  }
  if (r.loss_weight == 1) {
    page.raw("The loss is not weighted.</p>\n");
  } else {
    page.add("The loss is multiplied by {} on purpose, and its gradients with it{}.</p>\n",
             weight_text(r.loss_weight),
             std::abs(r.loss_weight) < 1
                 ? ": without that, a network this small rarely needs loss scaling"
                 : "");
  }
}

void result_table(Page& page, const Report& r) {
  const bool scaled =
      std::any_of(r.runs.begin(), r.runs.end(), [](const Run& run) { return !run.scale.empty(); });
  const auto exact = std::find_if(r.runs.begin(), r.runs.end(),
                                  [](const Run& run) { return run.name == "float32"; });
  const bool compare = r.runs.size() > 1 && exact != r.runs.end() && !exact->test_accuracy.empty();
  page.add(
      "<div class=\"wide\"><table><thead><tr><th>precision</th><th class=\"n\">test "
      "accuracy</th><th style=\"width:22%\"></th>{}<th class=\"n\">loss, last epoch</th>{}"
      "<th class=\"n\">time</th></tr></thead><tbody>\n",
      compare ? "<th class=\"n\">to float32</th>" : "",
      scaled ? "<th class=\"n\">skipped steps</th><th class=\"n\">last scale</th>" : "");
  for (size_t i = 0; i < r.runs.size(); ++i) {
    const Run& run = r.runs[i];
    const double accuracy = run.test_accuracy.empty() ? kNan : run.test_accuracy.back();
    const std::string c = colour(r.runs, i);
    page.add("<tr><td><span class=\"swatch\" style=\"background:{}\"></span>{}</td>", c,
             escape(run.title));
    page.add(
        "<td class=\"n big\">{}</td><td><div class=\"bar\"><div style=\"width:{:.1f}%;"
        "background:{}\"></div></div></td>",
        std::isfinite(accuracy) ? fmt::format("{:.2f} %", accuracy) : "–",
        std::isfinite(accuracy) ? std::clamp(accuracy, 0.0, 100.0) : 0.0, c);
    if (compare) {
      const double gap = std::round(100 * (accuracy - exact->test_accuracy.back())) / 100;
      page.add("<td class=\"n\">{}</td>", &run == &*exact || !std::isfinite(gap)
                                              ? "–"
                                              : fmt::format("{}{:.2f}",
                                                            gap < 0   ? "−"
                                                            : gap > 0 ? "+"
                                                                      : "±",
                                                            std::abs(gap)));
    }
    page.add("<td class=\"n\">{}</td>", loss_text(last_loss(run)));
    if (scaled && run.scale.empty()) page.raw("<td class=\"n\">–</td><td class=\"n\">–</td>");
    if (scaled && !run.scale.empty()) {
      page.add("<td class=\"n\">{} of {}</td><td class=\"n\">{}</td>", run.skipped_steps.size(),
               std::max(run.loss.size(), run.scale.size()), power(run.scale.back()));
    }
    page.add("<td class=\"n\">{:.1f} s</td></tr>\n", run.seconds);
  }
  page.raw("</tbody></table></div>\n");
}

void provenance(Page& page, const Report& r) {
  page.raw("<h2>How this was made</h2>\n<dl>\n");
  if (!r.command.empty()) page.add("<dt>command</dt><dd><code>{}</code></dd>\n", escape(r.command));
  const std::pair<std::string_view, const std::string&> lines[] = {
      {"data", r.data}, {"model", r.model}, {"seed", r.seed}};
  for (const auto& [name, value] : lines) {
    if (!value.empty()) page.add("<dt>{}</dt><dd>{}</dd>\n", name, escape(value));
  }
  page.add("<dt>loss weight</dt><dd>{}</dd>\n", weight_text(r.loss_weight));
  if (r.steps_per_epoch > 0) page.add("<dt>steps per epoch</dt><dd>{}</dd>\n", r.steps_per_epoch);
  page.raw("</dl>\n");
}

std::string html(const Report& r) {
  Page page;
  heading(page, r);
  result_table(page, r);
  if (!r.runs.empty()) {
    const Time time = time_axis(r);
    page.raw("<h2>Learning</h2>\n");
    legend(page, r);
    page.raw("<div class=\"charts\"><div><h3>Training loss, without its weight</h3>\n");
    loss_chart(page, r, time);
    page.raw("</div><div><h3>Test accuracy</h3>\n");
    accuracy_chart(page, r);
    page.raw("</div></div>\n<h2>The loss scale</h2>\n");
    if (std::all_of(r.runs.begin(), r.runs.end(), [](const Run& run) { return run.scale.empty(); }))
      page.add("<p>{} its loss.</p>\n",
               r.runs.size() == 1 ? "This run does not scale" : "None of these runs scales");
    else {
      page.raw(
          "<p>A cross marks a step whose gradients overflowed: it is skipped, and the scale "
          "falls. After a run of finite steps the scale grows again, in search of the "
          "largest one that fits.</p>\n");
      scale_chart(page, r, time);
    }
  }
  if (!r.before.empty() || !r.after.empty()) {
    page.raw("<h2>Where the gradients live</h2>\n");
    histograms(page, r);
    if (!r.before.empty()) scale_table(page, r);
  }
  provenance(page, r);
  page.raw("</body></html>\n");
  return page.text();
}

}  // namespace

double last_loss(const Run& run) {
  if (run.loss.empty()) return kNan;
  const size_t n =
      std::max<size_t>(1, run.loss.size() / std::max<size_t>(1, run.test_accuracy.size()));
  double sum = 0;
  for (size_t i = run.loss.size() - n; i < run.loss.size(); ++i) sum += run.loss[i];
  return std::isfinite(sum) ? sum / static_cast<double>(n) : kNan;
}

namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const std::string& path, const std::string& reason) {
  throw std::runtime_error(fmt::format("cannot write {}: {}", path, reason));
}

std::string system_reason() { return std::generic_category().message(errno); }

/// A new file beside `path`, to become `path` when it is complete.
struct Temporary {
  explicit Temporary(const std::string& path)
      : name(fmt::format("{}.{:08x}.tmp", path, std::random_device{}())) {
    std::error_code error;
    const fs::file_status status = fs::status(path, error);
    if (fs::is_directory(status)) fail(path, "it is a folder");
    if (fs::exists(status) && !fs::is_regular_file(status)) fail(path, "it is not a regular file");
    file = std::fopen(name.c_str(), "wb");
    if (!file) fail(path, system_reason());
  }
  ~Temporary() {
    if (file) std::fclose(file);
    std::error_code error;
    fs::remove(name, error);  // finds nothing once it was renamed
  }
  Temporary(const Temporary&) = delete;
  Temporary& operator=(const Temporary&) = delete;

  std::string name;
  std::FILE* file = nullptr;
};

}  // namespace

void check_writable(const std::string& path) { const Temporary probe(path); }

void write_html(const std::string& path, const Report& report) {
  const std::string text = html(report);
  Temporary temporary(path);
  if (std::fwrite(text.data(), 1, text.size(), temporary.file) != text.size())
    fail(path, system_reason());
  if (std::fclose(std::exchange(temporary.file, nullptr)) != 0) fail(path, system_reason());
  std::error_code error;
  fs::rename(temporary.name, path, error);
  if (error) fail(path, error.message());
}

}  // namespace report
