#include "histograms.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include "svg.h"

namespace report {
namespace {

namespace amp = halftape::amp;

/// The powers of two that are drawn; the first and the last bar also stand for what lies beyond.
constexpr int kLow = -60, kHigh = 40;

/// What fp16 makes of numbers, at a scale of 2^shift.
struct Zone {
  int lo, hi;  // powers of two; the outer zones end with the histogram
  std::string_view name, range, pale, strip, bar;
  int64_t (*count)(const amp::ExponentCounts& c, int shift);
};

int64_t infinite(const amp::ExponentCounts& c, int shift) {
  return c.overflowing(shift) + c.infs() + c.nans();
}

// Halves of 2^-24 round to zero (ties to even), whatever is larger becomes at least 2^-24.
constexpr Zone kZones[] = {
    {kLow, -25, "becomes zero", "up to 2<sup>−25</sup>", "#fcefec", "#f3cfc7", "#b5402a",
     [](const amp::ExponentCounts& c, int shift) { return c.vanishing(shift); }},
    {-25, -14, "subnormal", "2<sup>−25</sup> … 2<sup>−14</sup>, fewer digits", "#fdf7e6", "#f5e1ad",
     "#bd8412", [](const amp::ExponentCounts& c, int shift) { return c.subnormal(shift); }},
    {-14, 16, "normal", "2<sup>−14</sup> … 2<sup>16</sup>", "#f0f7f1", "#cbe3cf", "#3d7f4a",
     [](const amp::ExponentCounts& c, int shift) {
       return c.numbers() - c.vanishing(shift) - c.subnormal(shift) - c.overflowing(shift);
     }},
    {16, kHigh, "overflow", "2<sup>16</sup> and above, infinite", "#f5f0f9", "#dccbea", "#7a4fa0",
     infinite}};

int64_t nonzero(const Histogram& h) { return h.counts.total() - h.counts.zeros(); }

/// The bar at 2^e.
int64_t bar(const Histogram& h, int e) {
  int64_t n = e == kLow ? h.counts.slots[0] : 0;
  const int from = e == kLow ? -126 : e, to = e == kHigh - 1 ? 127 : e;
  for (int at = from; at <= to; ++at) n += h.counts.at(at);
  return n;
}

double share(int64_t part, int64_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0;
}

/// Share of all non-zero elements that fp16 would turn into zero.
double lost(const std::vector<Histogram>& layers) {
  int64_t gone = 0, all = 0;
  for (const Histogram& h : layers) gone += h.counts.vanishing(0), all += nonzero(h);
  return share(gone, all);
}

double highest_bar(const Histogram& h) {
  int64_t most = 0;
  for (int e = kLow; e < kHigh; ++e) most = std::max(most, bar(h, e));
  return share(most, nonzero(h));
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
        (from + to) / 2, zone.name, all == 0 ? "–" : percent(share(zone.count(h.counts, 0), all)));
  }
  const double step = round_step(y.hi, 3);
  for (double v = 0; v <= y.hi; v += step) y_tick(page, f, y(v), fmt::format("{:g} %", 100 * v));
  for (const Zone& zone : kZones) {
    for (int e = std::max(zone.lo, lo); e < std::min(zone.hi, hi); ++e) {
      const int64_t n = bar(h, e);
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

}  // namespace

void histograms(Page& page, const Report& r) {
  const bool both = !r.before.empty() && !r.after.empty();
  page.raw(
      "<p>fp16 training stores the gradient of each layer's output in 16 bits. Each bar counts "
      "its elements within one power of two: those left of 2<sup>−25</sup> become zero, and those "
      "below 2<sup>−14</sup> keep ever fewer digits. ");
  if (both) {
    page.add(
        "Multiplying the loss by S&nbsp;=&nbsp;{} moves every element to the right by "
        "log<sub>2</sub>&thinsp;S without changing the shape, so that the share lost to zero "
        "goes from {} to {}. The gradients of the weights, which follow from these, are float32; "
        "the step divides them by S again.",
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
      for (int e = kLow; e < kHigh; ++e) {
        if (bar(h, e) > 0) lo = std::min(lo, e), hi = std::max(hi, e + 1);
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
    std::string zeros;
    if (h.counts.zeros() > 0)
      zeros = fmt::format(", {} of them exactly zero and left out",
                          percent(share(h.counts.zeros(), h.counts.total())));
    page.add("<figure><figcaption><b>{}</b> {} elements{}</figcaption>\n<div class=\"pair\">",
             escape(h.layer), h.counts.total(), zeros);
    const auto panel = [&](const Histogram& shown, bool scaled) {
      const int64_t nonfinite = shown.counts.infs() + shown.counts.nans();
      page.add(
          "<div><p class=\"side\">{}{}</p>",
          scaled ? fmt::format("with the loss multiplied by S&nbsp;=&nbsp;{}", power(r.scale_shown))
                 : "not scaled, S&nbsp;=&nbsp;1",
          nonfinite > 0 ? fmt::format("; {} not finite", nonfinite) : "");
      histogram(page, shown, lo, hi, highest);
      page.raw("</div>");
    };
    panel(h, r.before.empty());
    if (pair) panel(*other, true);
    page.raw("</div></figure>\n");
  }
  page.raw("</div>\n");
}

void scale_table(Page& page, const Report& r) {
  constexpr int kShifts[] = {0, 7, 12, 16, 20, 24, 32};
  page.raw(
      "<h3>What other scales would do</h3>\n<p>The share of non-zero elements that fp16 would "
      "turn into zero, and into infinity where that happens (∞). Before the last layer a training "
      "loses a little more: what has become zero above is missing below. Training does not need "
      "all of them, only those that matter.</p>\n<table class=\"heat\"><thead><tr><th>layer</th>");
  for (int shift : kShifts) page.add("<th class=\"n\">S = {}</th>", power(std::ldexp(1.0, shift)));
  page.raw("</tr></thead><tbody>\n");
  for (const Histogram& h : r.before) {
    page.add("<tr><td>{}</td>", escape(h.layer));
    for (int shift : kShifts) {
      const int64_t all = nonzero(h), over = infinite(h.counts, shift);
      const double gone = share(h.counts.vanishing(shift), all);
      page.add("<td class=\"n\" style=\"background:rgba(200,70,45,{:.2f})\">{}{}</td>", gone * 0.45,
               all == 0 ? "–" : percent(gone),
               over == 0 ? "" : fmt::format(" <i>∞&nbsp;{}</i>", percent(share(over, all))));
    }
    page.raw("</tr>\n");
  }
  page.raw("</tbody></table>\n");
}

}  // namespace report
