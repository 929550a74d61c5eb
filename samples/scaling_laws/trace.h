// Overflow traces: for every step of a training, the largest loss scale at which its gradients
// would have been finite. Recorded from a training, or read from a file.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

/// What the user gave wrongly; the text says what to do.
struct UserError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct LimitTrace {
  std::vector<double> limits;  // 0: no scale passes; infinity: every scale does
  std::string text;            // where it comes from, for the page
};

/// A file of lines "step,limit" after that header, the steps 0, 1, 2 … in order, limits as decimal
/// numbers of 0 or more, or "inf". Empty lines and those that begin with # are passed over. Throws
/// UserError, naming file and line.
LimitTrace read_trace(const std::string& path);
/// Writes such a file. Throws std::runtime_error with path and reason.
void write_trace(const std::string& path, const LimitTrace& trace);

struct RecordedRun {
  int epochs = 40;
  int64_t batch_size = 32;
  double lr = 1e-3;
  uint64_t seed = 0;
};
/// Trains a small network on the embedded digits, its products in float16, and looks at every step
/// for the largest power of two whose gradients are finite: the forward pass is run once, backward
/// again and again. The step is then made with the gradients of that scale, so none is skipped.
LimitTrace record_trace(const RecordedRun& settings);
