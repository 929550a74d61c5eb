// The text of an HTML page as it grows, and how numbers are written in it.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>

namespace report {

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

std::string escape(std::string_view text);
std::string integer(int64_t n);
/// "2^n" for powers of two, else the plain number; `svg` text knows no <sup>.
std::string power(double value, bool svg = false);
/// Never rounds a share to 0 % or 100 % unless it is that.
std::string percent(double share);
/// 1e-5 as 10 to the −5.
std::string weight_text(double weight);
std::string loss_text(double loss);

}  // namespace report
