#include "page.h"

#include <cmath>

namespace report {

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

std::string power(double value, bool svg) {
  int n = 0;
  if (!(value > 0) || !std::isfinite(value)) return fmt::format("{}", value);
  if (std::frexp(value, &n) != 0.5) return fmt::format("{:g}", value);
  if (svg)
    return fmt::format("2<tspan dy=\"-4\" font-size=\"8\" dx=\"0.5\">{}</tspan>", integer(n - 1));
  return n == 1 ? "1" : fmt::format("2<sup>{}</sup>", integer(n - 1));
}

std::string percent(double share) {
  const double p = 100 * share;
  if (p == 0 || p == 100) return fmt::format("{:.0f} %", p);
  if (p < 0.1) return "&lt; 0.1 %";
  if (p > 99.9) return "&gt; 99.9 %";
  return fmt::format("{:.1f} %", p);
}

std::string weight_text(double weight) {
  const double e = std::round(std::log10(std::abs(weight)));
  if (std::abs(e) > 3 && fmt::format("{:g}", weight) == fmt::format("{:g}", std::pow(10.0, e)))
    return fmt::format("10<sup>{}</sup>", integer(static_cast<int64_t>(e)));
  return fmt::format("{:g}", weight);
}

std::string loss_text(double loss) {
  return std::isfinite(loss) ? fmt::format("{:.3g}", loss) : "not finite";
}

}  // namespace report
