// The live line of a training in the terminal, and the table after the last one.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "report.h"

/// The state of a running training.
struct Status {
  int epoch = 1;                // the one under way, from 1
  int step = 0;                 // steps done within this epoch
  double loss = 0;              // unweighted
  double accuracy = 0;          // of the last test, percent; nan before the first
  std::optional<double> scale;  // none without a scaler
  int64_t skips = 0;
};

/// One run's progress: a line redrawn in place at most 10 times a second when stdout is a terminal,
/// else about four plain lines. Honours NO_COLOR and TERM=dumb; never hides the cursor.
class Progress {
 public:
  Progress(std::string title, int epochs, int steps_per_epoch);
  ~Progress();  // ends an unfinished line, so that an error message starts on its own
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void step(const Status& status);
  void epoch(const Status& status);  // after the test at the end of an epoch
  void finish(const Status& status, double seconds);

 private:
  void draw(const Status& status);
  void print_line(const Status& status) const;

  std::string title_;
  int epochs_, steps_per_epoch_;
  bool live_, drawn_ = false;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now(), last_draw_{};
};

/// Accuracy, loss, scale and time of all runs, aligned; box characters on a UTF-8 terminal only.
void print_table(const std::vector<report::Run>& runs);
