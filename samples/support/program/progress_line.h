// One line that shows the progress of a run.
#pragma once
#include <chrono>
#include <cstdint>
#include <string>

namespace sample {

/// Redrawn in place at most 10 times a second when stdout is a terminal; else a line for each tenth
/// of the run, so that a log stays short.
class ProgressLine {
 public:
  /// `done`: steps of former runs, which the estimate of the time left does not count.
  explicit ProgressLine(int64_t steps, int64_t done = 0);
  ~ProgressLine();  // ends an unfinished line, so that an error message starts on its own
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  /// After `done` steps. `text`: "loss 1.23", say.
  void show(int64_t done, const std::string& text);
  /// A line that stays, above the progress.
  void print(const std::string& line);
  /// Since the beginning.
  double seconds() const;

 private:
  int64_t steps_, first_;
  bool live_, drawn_ = false;
  int64_t tenth_;
  std::chrono::steady_clock::time_point start_, last_draw_{};
};

}  // namespace sample
