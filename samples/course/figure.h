// A chart as one SVG file that stands alone: no font or script from elsewhere, dark where the
// reader has it dark, and words for who cannot see it.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "course.h"
#include "svg.h"

namespace course {

using Ticks = std::vector<std::pair<double, std::string>>;
/// first, first + step, … last as powers of two: 2^-10.
Ticks powers_of_two(int first, int last, int step);
/// The same as powers of ten, in words up to 1000 % where `percent` says that they are shares of
/// 1: 0.1 %.
Ticks powers_of_ten(int first, int last, bool percent = false);
/// first, first + step, … last, with `unit` after each.
Ticks numbers(double first, double last, double step, std::string_view unit = "");

/// The looks of a curve or bar: a colour, and a mark or pattern of its own. Ink is for what
/// the others are compared with.
enum class Look { Blue, Orange, Green, Purple, Ink };

/// One pair of axes. Coordinates are those of its axes; a logarithmic axis takes logarithms.
class Panel {
 public:
  void x_axis(double lo, double hi, std::string name, Ticks ticks);
  void y_axis(double lo, double hi, std::string name, Ticks ticks);
  /// Under what is drawn later: a strip from x0 to x1 with words at its top.
  void zone(double x0, double x1, Look look, const std::string& text);
  /// A curve with its marks (`marks`: false for many points). A nan in y leaves a gap.
  void line(const report::Points& points, Look look, const std::string& name = "",
            bool marks = true);
  void bar(double x0, double x1, double y0, double y1, Look look);
  /// Words beside a point; anchor: start, middle or end.
  void text(double x, double y, const std::string& text, std::string_view anchor = "start");

 private:
  friend class Figure;
  explicit Panel(const report::Frame& frame) : frame_(frame) {}
  report::Frame frame_;
  report::Axis x_{0, 1, 0, 1}, y_{0, 1, 0, 1};
  report::Page axes_, zones_, marks_;
  std::vector<std::pair<Look, std::string>> names_;
};

class Figure {
 public:
  /// `title` stands above the chart; `description` is a sentence or two that tell what is seen.
  Figure(std::string title, std::string description, double height = 380)
      : title_(std::move(title)), description_(std::move(description)), height_(height) {}
  /// Panels lie one below the other; each has its share of the height.
  Panel& panel(double top = 0, double bottom = 1);
  /// The name of what bars of that look are; curves bring their own.
  void legend(Look look, std::string name) { names_.push_back({look, std::move(name)}); }
  std::string svg() const;

 private:
  std::string title_, description_;
  double height_;
  std::vector<std::unique_ptr<Panel>> panels_;
  std::vector<std::pair<Look, std::string>> names_;
};

/// FOLDER/NAME.svg and FOLDER/NAME.csv, if there is a folder.
void write(const Arguments& arguments, const Figure& figure, const Table& data);

}  // namespace course
