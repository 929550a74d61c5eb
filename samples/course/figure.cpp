#include "figure.h"

#include <algorithm>
#include <cmath>

#include "file.h"

namespace course {
namespace {

using report::Page;

constexpr double kWidth = 720, kTop = 66;

constexpr std::string_view kStyle = R"css(<style>
text { font: 13px system-ui, "Segoe UI", Roboto, "Helvetica Neue", Arial, "Liberation Sans", sans-serif; fill: #22272e; }
.title { font-size: 16px; font-weight: 600; } .tick { font-size: 12px; } .tick, .name { fill: #57606a; }
.paper { fill: #fff; } .grid { stroke: #dfe4e9; } .axis { stroke: #57606a; fill: none; }
.line { fill: none; stroke-width: 2; stroke-linejoin: round; } .zone { opacity: 0.13; } .bar { opacity: 0.85; }
.halo { paint-order: stroke; stroke: #fff; stroke-width: 4px; stroke-linejoin: round; }
.s0 { stroke: #1765ad; } .s1 { stroke: #c04a05; } .s2 { stroke: #237a3f; } .s3 { stroke: #7a3fa8; } .s4 { stroke: #22272e; }
.f0 { fill: #1765ad; } .f1 { fill: #c04a05; } .f2 { fill: #237a3f; } .f3 { fill: #7a3fa8; } .f4 { fill: #22272e; }
.s1 .line { stroke-dasharray: 8 4; } .s2 .line { stroke-dasharray: 2 4; } .s3 .line { stroke-dasharray: 10 3 2 3; }
@media (prefers-color-scheme: dark) {
text { fill: #e6e9ed; } .tick, .name { fill: #a3adb8; } .paper { fill: #161b22; } .grid { stroke: #343c46; }
.axis { stroke: #a3adb8; } .halo { stroke: #161b22; } .zone { opacity: 0.2; }
.s0 { stroke: #6cb6ff; } .s1 { stroke: #f59a57; } .s2 { stroke: #5fc983; } .s3 { stroke: #c79bf2; } .s4 { stroke: #e6e9ed; }
.f0 { fill: #6cb6ff; } .f1 { fill: #f59a57; } .f2 { fill: #5fc983; } .f3 { fill: #c79bf2; } .f4 { fill: #e6e9ed; } }
</style>
)css";

/// A mark that can be told from the others without its colour.
std::string mark(Look look, double x, double y) {
  switch (look) {
    case Look::Blue:
      return fmt::format("<circle class=\"f0\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\"/>", x, y);
    case Look::Orange:
      return fmt::format("<path class=\"f1\" d=\"M{:.1f} {:.1f}h7v7h-7z\"/>", x - 3.5, y - 3.5);
    case Look::Green:
      return fmt::format("<path class=\"f2\" d=\"M{:.1f} {:.1f}l4.5 8h-9z\"/>", x, y - 5);
    case Look::Purple:
      return fmt::format("<path class=\"f3\" d=\"M{:.1f} {:.1f}l5 5l-5 5l-5 -5z\"/>", x, y - 5);
    case Look::Ink:
      break;
  }
  return fmt::format("<circle class=\"f4\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"2.5\"/>", x, y);
}

std::string power(int base, int exponent) {
  return fmt::format("{}<tspan dy=\"-5\" font-size=\"9\">{}</tspan>", base,
                     report::integer(exponent));
}

/// About as wide as the words are in the page's font.
double width_of(const std::string& text) { return 7.0 * static_cast<double>(text.size()); }

}  // namespace

Ticks powers_of_two(int first, int last, int step) {
  Ticks ticks;
  for (int e = first; e <= last; e += step) ticks.push_back({e, power(2, e)});
  return ticks;
}

Ticks powers_of_ten(int first, int last, bool percent) {
  Ticks ticks;
  for (int e = first; e <= last; ++e)
    ticks.push_back({e, percent ? fmt::format("{:g} %", std::pow(10.0, e + 2)) : power(10, e)});
  return ticks;
}

Ticks numbers(double first, double last, double step, std::string_view unit) {
  Ticks ticks;
  for (int i = 0; first + i * step <= last + step / 1e6; ++i)
    ticks.push_back({first + i * step, fmt::format("{:g}{}", first + i * step, unit)});
  return ticks;
}

void Panel::x_axis(double lo, double hi, std::string name, Ticks ticks) {
  x_ = frame_.x(lo, hi);
  const double bottom = frame_.height - frame_.bottom;
  axes_.add("<path class=\"axis\" d=\"M{:g} {:g}H{:g}\"/>\n", frame_.left, bottom,
            frame_.width - frame_.right);
  for (const auto& [at, text] : ticks) {
    axes_.add("<path class=\"axis\" d=\"M{:.1f} {:g}v4\"/>", x_(at), bottom);
    report::x_label(axes_, frame_, x_(at), text);
  }
  axes_.add("<text class=\"name\" x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>\n",
            (frame_.left + frame_.width - frame_.right) / 2, bottom + 36, report::escape(name));
}

void Panel::y_axis(double lo, double hi, std::string name, Ticks ticks) {
  y_ = frame_.y(lo, hi);
  for (const auto& [at, text] : ticks) report::y_tick(axes_, frame_, y_(at), text);
  axes_.add(
      "<text class=\"name\" transform=\"translate(16 {:.1f}) rotate(-90)\" "
      "text-anchor=\"middle\">{}</text>\n",
      (frame_.top + frame_.height - frame_.bottom) / 2, report::escape(name));
}

void Panel::zone(double x0, double x1, Look look, const std::string& text) {
  zones_.add("<path class=\"zone f{}\" d=\"M{:.1f} {:.1f}H{:.1f}V{:.1f}H{:.1f}z\"/>",
             static_cast<int>(look), x_(x0), frame_.top, x_(x1), frame_.height - frame_.bottom,
             x_(x0));
  marks_.add("<text class=\"halo\" x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>\n",
             (x_(x0) + x_(x1)) / 2, frame_.top + 15, report::escape(text));
}

void Panel::line(const report::Points& points, Look look, const std::string& name, bool marks) {
  marks_.add("<g class=\"s{}\">", static_cast<int>(look));
  report::curve(marks_, points, x_, y_, "");
  marks_.raw("</g>");
  if (!name.empty()) names_.push_back({look, name});
  if (!marks) return;
  for (const auto& [x, y] : points)
    if (std::isfinite(y)) marks_.raw(mark(look, x_(x), y_(y)));
  marks_.raw("\n");
}

void Panel::bar(double x0, double x1, double y0, double y1, Look look) {
  marks_.add("<path class=\"bar f{}\" d=\"M{:.1f} {:.1f}H{:.1f}V{:.1f}H{:.1f}z\"/>\n",
             static_cast<int>(look), x_(x0), y_(y0), x_(x1), y_(y1), x_(x0));
}

void Panel::text(double x, double y, const std::string& text, std::string_view anchor) {
  marks_.add("<text class=\"halo\" x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n", x_(x),
             y_(y), anchor, report::escape(text));
}

Panel& Figure::panel(double top, double bottom) {
  const double room = height_ - kTop;
  report::Frame frame{kWidth, kTop + room * bottom, 64, 18, kTop + room * top + 6, 46};
  panels_.emplace_back(new Panel(frame));
  return *panels_.back();
}

std::string Figure::svg() const {
  Page page;
  page.add(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:g} {1:g}\" width=\"{0:g}\" "
      "height=\"{1:g}\" role=\"img\" aria-labelledby=\"title desc\">\n"
      "<title id=\"title\">{2}</title>\n<desc id=\"desc\">{3}</desc>\n{4}"
      "<rect class=\"paper\" width=\"{0:g}\" height=\"{1:g}\"/>\n"
      "<text class=\"title\" x=\"16\" y=\"27\">{2}</text>\n",
      kWidth, height_, report::escape(title_), report::escape(description_), kStyle);
  std::vector<std::pair<Look, std::string>> names = names_;
  for (const auto& panel : panels_)
    for (const auto& name : panel->names_)
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  double x = 16;
  for (const auto& [look, name] : names) {
    const bool curve =
        std::find(names_.begin(), names_.end(), std::pair(look, name)) == names_.end();
    if (curve)
      page.add("<g class=\"s{}\"><path class=\"line\" d=\"M{:.1f} 47h30\"/></g>{}",
               static_cast<int>(look), x, mark(look, x + 15, 47));
    else
      page.add("<path class=\"bar f{}\" d=\"M{:.1f} 41h12v12h-12z\"/>", static_cast<int>(look), x);
    x += curve ? 37 : 18;
    page.add("<text x=\"{:.1f}\" y=\"51.5\">{}</text>\n", x, report::escape(name));
    x += 18 + width_of(name);
  }
  HALFTAPE_CHECK(x < kWidth + 20, "Figure::svg: the names of '", title_, "' take ", x, " of ",
                 kWidth, " units");
  for (const auto& panel : panels_)
    for (const Page* layer : {&panel->zones_, &panel->axes_, &panel->marks_})
      page.raw(layer->text());
  page.raw("</svg>\n");
  HALFTAPE_CHECK(page.text().size() <= 30 * 1024, "Figure::svg: '", title_, "' has ",
                 page.text().size(), " bytes, more than 30 KB");
  return page.text();
}

void write(const Arguments& arguments, const Figure& figure, const Table& data) {
  if (arguments.folder.empty()) return;
  report::write_page((arguments.folder / (arguments.name + ".svg")).string(), figure.svg());
  report::write_page((arguments.folder / (arguments.name + ".csv")).string(), data.csv());
}

}  // namespace course
