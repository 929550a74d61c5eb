#include "progress_line.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "terminal.h"

namespace sample {
namespace {

std::string duration(double seconds) {
  const auto s = static_cast<int64_t>(seconds + 0.5);
  if (s < 60) return fmt::format("{} s", s);
  if (s < 3600) return fmt::format("{}:{:02} min", s / 60, s % 60);
  return fmt::format("{}:{:02} h", s / 3600, s / 60 % 60);
}

}  // namespace

ProgressLine::ProgressLine(int64_t steps, int64_t done)
    : steps_(std::max<int64_t>(1, steps)),
      first_(done),
      live_(terminal::can_redraw()),
      tenth_(10 * done / steps_),
      start_(std::chrono::steady_clock::now()) {
  std::fflush(stdout);  // what stands above, before the first step is done
}

ProgressLine::~ProgressLine() {
  if (!drawn_) return;
  std::fputc('\n', stdout);
  std::fflush(stdout);
}

void ProgressLine::show(int64_t done, const std::string& text) {
  const auto now = std::chrono::steady_clock::now();
  const std::string count = fmt::format("{}/{}", done, steps_);
  const double left =
      done > first_ && done < steps_
          ? seconds() / static_cast<double>(done - first_) * static_cast<double>(steps_ - done)
          : 0;
  if (!live_) {
    if (10 * done / steps_ == tenth_) return;
    tenth_ = 10 * done / steps_;
    fmt::print("{}  {}  {} {}\n", count, text, duration(left > 0 ? left : seconds()),
               left > 0 ? "left" : "in all");
    std::fflush(stdout);
    return;
  }
  if (drawn_ && done < steps_ && now - last_draw_ < std::chrono::milliseconds(100)) return;
  last_draw_ = now;
  // The last column stays free: writing there makes some terminals wrap.
  const int width = terminal::width() - 1;
  const std::string tail =
      left > 0 ? fmt::format("  {}  {} left", text, duration(left)) : "  " + text;
  const int room = width - static_cast<int>(count.size() + tail.size()) - 1;
  const std::string bar =
      room < 8 ? ""
               : ' ' + terminal::bar(static_cast<double>(done) / static_cast<double>(steps_),
                                     std::min(room, 30));
  fmt::print(
      "\r{}{}{}\x1b[K", count, bar,
      tail.substr(0, static_cast<size_t>(std::max(0, width - static_cast<int>(count.size())))));
  std::fflush(stdout);
  drawn_ = true;
}

void ProgressLine::print(const std::string& line) {
  if (drawn_) fmt::print("\r\x1b[K");
  drawn_ = false;
  fmt::print("{}\n", line);
  std::fflush(stdout);
}

double ProgressLine::seconds() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
}

}  // namespace sample
