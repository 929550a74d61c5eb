#include "curves.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "svg.h"

namespace report {
namespace {

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

}  // namespace

std::string colour(const std::vector<Run>& runs, size_t i) {
  constexpr std::pair<std::string_view, std::string_view> kNamed[] = {
      {"float32", "#3b4252"}, {"fp16", "#d1495b"}, {"amp", "#1f78b4"}, {"bf16", "#2a9d6f"}};
  constexpr std::string_view kOthers[] = {"#8e5ea2", "#c77f1a", "#5b6c7d", "#a0522d"};
  for (auto [name, value] : kNamed) {
    if (name == runs[i].name) return std::string(value);
  }
  return std::string(kOthers[i % std::size(kOthers)]);
}

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

}  // namespace report
