#include "terminal.h"

#include <fmt/format.h>
#include <halftape/core/machine/os.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>

namespace terminal {
namespace {

std::string_view env(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

}  // namespace

bool is_terminal() { return halftape::os::stdout_is_terminal(); }

bool can_redraw() { return halftape::os::terminal_takes_escapes(); }

bool can_colour() { return can_redraw() && env("NO_COLOR").empty(); }

bool is_utf8() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    std::string value(env(name));
    if (value.empty()) continue;
    std::transform(value.begin(), value.end(), value.begin(),
                   [](unsigned char c) { return static_cast<char>(c | 0x20); });
    return value.find("utf-8") != std::string::npos || value.find("utf8") != std::string::npos;
  }
  return false;
}

int width() {
  if (const int columns = halftape::os::terminal_width(); columns > 0) return columns;
  const std::string_view wanted = env("COLUMNS");
  int columns = 0;
  std::from_chars(wanted.data(), wanted.data() + wanted.size(), columns);
  return columns > 0 ? columns : 80;
}

std::string paint(std::string_view text, std::string_view code) {
  return can_colour() && !code.empty() && !text.empty()
             ? fmt::format("\x1b[{}m{}\x1b[0m", code, text)
             : std::string(text);
}

std::string bar(double done, int width) {
  const int half_cells = static_cast<int>(std::clamp(done, 0.0, 1.0) * 2 * width);
  std::string full, rest;
  if (!is_utf8()) {
    full.assign(static_cast<size_t>(half_cells / 2), '#');
    rest.assign(static_cast<size_t>(width - half_cells / 2), '.');
    return paint(full, "36") + paint(rest, "2");
  }
  for (int i = 0; i < half_cells / 2; ++i) full += "━";
  if (half_cells % 2) full += "╸";
  for (int i = (half_cells + 1) / 2; i < width; ++i) rest += "─";
  return paint(full, "36") + paint(rest, "2");
}

}  // namespace terminal
