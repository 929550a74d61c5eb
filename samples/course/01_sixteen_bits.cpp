// Chapter 1: which numbers do 16 bits hold?
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "figure.h"

using namespace course;
using halftape::BFloat16;
using halftape::Half;

namespace {

template <class Number>
double rounded(double x) {
  return static_cast<double>(Number(x));
}

template <class Number>
void add_format(Table& table, const std::string& name) {
  double finite = 0, subnormal = 0, largest = 0, smallest = 1, smallest_normal = 1;
  const int exponent_bits = Number(HUGE_VAL).bits;  // all ones in inf, all zeros in a subnormal
  for (int bits = 0; bits < 65536; ++bits) {
    const auto x = static_cast<double>(Number::from_bits(static_cast<uint16_t>(bits)));
    finite += std::isfinite(x);
    if (!std::isfinite(x) || x == 0) continue;
    subnormal += (bits & exponent_bits) == 0;
    largest = std::max(largest, x);
    double& least = bits & exponent_bits ? smallest_normal : smallest;
    if (x > 0) least = std::min(least, x);
  }
  double step = 1;
  while (rounded<Number>(1 + step / 2) > 1) step /= 2;
  table.add({name, largest, fmt::format("2^{}", std::ilogb(smallest_normal)),
             fmt::format("2^{}", std::ilogb(smallest)), fmt::format("2^{}", std::ilogb(step)),
             finite, subnormal});
}

/// The largest relative error of rounding numbers from 2^e to 2^(e+1).
template <class Number>
double worst_rounding(int e) {
  double worst = 0;
  for (int i = 0; i < 8192; ++i) {
    const double x = std::ldexp(1 + i / 8192.0, e);
    worst = std::max(worst, std::abs(rounded<Number>(x) - x) / x);
  }
  return worst;
}

void count(const Arguments& arguments) {
  Table formats({{"format"},
                 {"largest"},
                 {"smallest normal"},
                 {"smallest"},
                 {"step after 1"},
                 {"finite"},
                 {"subnormal"}});

  add_format<Half>(formats, "float16");
  add_format<BFloat16>(formats, "bfloat16");
  formats.print();
  fmt::print("\n");
  Table examples({{"number", "{}"}, {"in float16"}, {"in bfloat16"}});
  for (const double x : {0.1, 1.0001, 2049.0, 65519.0, 65520.0})
    examples.add({x, rounded<Half>(x), rounded<BFloat16>(x)});
  examples.print();
  fmt::print("\n");
  Table table({{"from"}, {"float16 off by", "{:.3f} %"}, {"bfloat16 off by", "{:.3f} %"}});
  Table printed = table;
  report::Points half, brain;
  for (int e = -30; e <= 17; ++e) {
    const double errors[] = {worst_rounding<Half>(e), worst_rounding<BFloat16>(e)};
    table.add({fmt::format("2^{}", e), 100 * errors[0], 100 * errors[1]});
    if (e % 10 == 0 || e == -25 || e == -24 || e == 15) printed.add(table.rows().back());
    half.push_back({e + 0.5, std::isinf(errors[0]) ? NAN : std::log10(errors[0])});
    brain.push_back({e + 0.5, std::log10(errors[1])});
  }
  printed.print();
  Figure figure("How far rounding moves a number at most, by its size",
                "float16 is finer than bfloat16 from 2^-17 to 2^16, coarser below, and has "
                "only zero below 2^-25 and infinity above 2^16.");
  Panel& panel = figure.panel();
  panel.x_axis(-30, 18, "size of the number", powers_of_two(-28, 16, 4));
  panel.y_axis(-4, 0.5, "largest relative error", powers_of_ten(-4, 0, true));
  panel.zone(-30, -25, Look::Purple, "float16: 0");
  panel.zone(-25, -14, Look::Orange, "float16: subnormal");
  panel.zone(16, 18, Look::Purple, "inf");
  panel.line(half, Look::Blue, "float16");
  panel.line(brain, Look::Green, "bfloat16");
  write(arguments, figure, table);
}

}  // namespace

int main(int argc, char** argv) {
  return run(argc, argv, "01_sixteen_bits", "Which numbers do 16 bits hold?", Seed::None, count);
}
