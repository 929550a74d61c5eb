// Overflow traces: for every step of a training, the largest loss scale at which its gradients
// would have been finite. Recorded from a training, or read from a file.
#pragma once

#include <halftape/halftape.h>

#include <cstdint>
#include <string>
#include <vector>

struct LimitTrace {
  std::vector<double> limits;  // 0: overflows at every scale; infinity: at none
  std::string text;            // its origin, for the page
};

/// Reads a file with the header "step,limit" and one such line per step: steps 0, 1, 2 … in order,
/// limits as decimal numbers of 0 or more, or "inf". Ignores empty lines and lines that begin with
/// #. Throws sample::UserError, naming file and line.
LimitTrace read_trace(const std::string& path);
/// Writes such a file. Throws std::runtime_error with path and reason.
void write_trace(const std::string& path, const LimitTrace& trace);

struct RecordedRun {
  int epochs = 40;
  int64_t batch_size = 32;
  double lr = 1e-3;
  uint64_t seed = 0;
  halftape::Device device;
};
/// Trains a small network on the embedded digits, with products in float16, and searches at every
/// step for the largest power of two whose gradients are finite, with one forward pass and several
/// backward passes. The step then uses the gradients of that scale, so none is skipped. Ctrl-C ends
/// it after a step, and `text` says so.
LimitTrace record_trace(const RecordedRun& settings);
