// Draws the progress line and the result table.
#include "progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <string_view>
#include <utility>

#include "terminal.h"

namespace {

/// Bytes less the continuation bytes of UTF-8.
size_t columns(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

std::string power(double scale) {
  int n = 0;
  if (std::isfinite(scale) && scale > 0 && std::frexp(scale, &n) == 0.5)
    return fmt::format("2^{}", n - 1);
  return fmt::format("{:g}", scale);
}

std::string accuracy_text(double accuracy) {
  return std::isfinite(accuracy) ? fmt::format("{:4.1f} %", accuracy) : "  -- %";
}

constexpr int kTitleWidth = 18;  // "fp16 + GradScaler" and one more

}  // namespace

Progress::Progress(std::string title, int epochs, int steps_per_epoch)
    : title_(std::move(title)),
      epochs_(std::max(1, epochs)),
      steps_per_epoch_(std::max(1, steps_per_epoch)),
      live_(terminal::can_redraw()) {}

Progress::~Progress() {
  if (!drawn_) return;
  std::fputc('\n', stdout);
  std::fflush(stdout);
}

void Progress::step(const Status& status) {
  const auto now = std::chrono::steady_clock::now();
  if (!live_ || (drawn_ && now - last_draw_ < std::chrono::milliseconds(100))) return;
  last_draw_ = now;
  draw(status);
}

void Progress::epoch(const Status& status) {
  if (live_) return step(status);
  // At each quarter of the run; finish() prints the last.
  const int quarter = 4 * status.epoch / epochs_;
  if (quarter == 4 * (status.epoch - 1) / epochs_ || status.epoch >= epochs_) return;
  print_line(status);
  const std::chrono::duration<double> so_far = std::chrono::steady_clock::now() - start_;
  fmt::print("  {:.1f} s left\n", so_far.count() / status.epoch * (epochs_ - status.epoch));
  std::fflush(stdout);
}

void Progress::print_line(const Status& status) const {
  fmt::print("{:<{}} epoch {:>{}}/{}  loss {:<7.3g}  test {}", title_, kTitleWidth, status.epoch,
             fmt::formatted_size("{}", epochs_), epochs_, status.loss,
             accuracy_text(status.accuracy));
  if (status.scale) fmt::print("  scale {:<4}  skipped {}", power(*status.scale), status.skips);
}

void Progress::draw(const Status& status) {
  // The last column stays free: writing there makes some terminals wrap.
  const int width = terminal::width() - 1;
  constexpr int kWide = 90, kShortestBar = 8, kLongestBar = 30;
  const std::string left =
      fmt::format("{:<{}} {}{:>{}}/{}", title_, kTitleWidth, width < kWide ? "" : "epoch ",
                  status.epoch, fmt::formatted_size("{}", epochs_), epochs_);
  int room = width - static_cast<int>(columns(left)) - 1;
  if (room < kShortestBar) return;

  // In a narrow terminal the last parts are left out first.
  std::vector<std::pair<std::string, std::string_view>> parts{
      {fmt::format("  loss {:<6.3g}", status.loss), std::isfinite(status.loss) ? "" : "31"},
      {fmt::format("  test {}", accuracy_text(status.accuracy)), ""}};
  if (status.scale) {
    parts.emplace_back(fmt::format("  scale {}", power(*status.scale)), "");
    parts.emplace_back(fmt::format("  skip {}", status.skips), status.skips > 0 ? "33" : "");
  }
  std::string tail;
  for (const auto& [text, code] : parts) {
    const int rest = room - static_cast<int>(text.size());
    if (rest < kShortestBar) break;
    room = rest;
    tail += terminal::paint(text, code);
  }
  const double done =
      (status.epoch - 1 + static_cast<double>(status.step) / steps_per_epoch_) / epochs_;
  fmt::print("\r{} {}{}\x1b[K", left, terminal::bar(done, std::min(room, kLongestBar)), tail);
  std::fflush(stdout);
  drawn_ = true;
}

void Progress::finish(const Status& status, double seconds) {
  if (live_) fmt::print("\r\x1b[K");
  drawn_ = false;
  print_line(status);
  fmt::print("  {:.1f} s\n", seconds);
  std::fflush(stdout);
}

void print_table(const std::vector<report::Run>& runs) {
  if (runs.empty()) return;
  constexpr size_t kColumns = 6;
  using Row = std::array<std::string, kColumns>;
  std::vector<Row> rows{{"precision", "test accuracy", "loss", "skipped", "scale", "seconds"}};
  for (const report::Run& run : runs) {
    const bool scaled = !run.scale.empty();
    const double loss = report::last_loss(run);
    rows.push_back(
        {run.title,
         run.test_accuracy.empty() ? "-" : fmt::format("{:.2f} %", run.test_accuracy.back()),
         std::isfinite(loss) ? fmt::format("{:.3g}", loss) : "not finite",
         scaled ? fmt::format("{}", run.skipped_steps.size()) : "-",
         scaled ? power(run.scale.back()) : "-", fmt::format("{:.1f}", run.seconds)});
  }
  std::array<size_t, kColumns> widths{};
  for (const Row& row : rows) {
    for (size_t c = 0; c < kColumns; ++c) widths[c] = std::max(widths[c], columns(row[c]));
  }
  const bool boxes = terminal::is_terminal() && terminal::is_utf8();
  std::string rule;
  for (size_t c = 0; c < kColumns; ++c) {
    for (size_t i = 0; i < widths[c] + (c ? 3 : 0); ++i) rule += boxes ? "─" : "-";
  }
  for (size_t i = 0; i < rows.size(); ++i) {
    std::string line = fmt::format("{:<{}}", rows[i][0], widths[0]);
    for (size_t c = 1; c < kColumns; ++c) line += fmt::format("   {:>{}}", rows[i][c], widths[c]);
    fmt::print("{}\n", line);
    if (i == 0) fmt::print("{}\n", rule);
  }
  std::fflush(stdout);
}
