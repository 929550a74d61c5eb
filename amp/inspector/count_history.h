// The counts of the last steps, kept on the device until they are read; internal to the tools.
#pragma once
#include <cstdint>
#include <vector>

#include "halftape/amp/inspector/ledger.h"

namespace halftape::amp {

/// A ring of rows of counts. push() is one kernel, which a Graph replays.
class CountHistory {
 public:
  explicit CountHistory(int64_t rows) : rows_(rows) {}
  /// Stores classes (events, 6) int64; all rows have as many events until clear().
  void push(const Array& classes);
  /// The number of rows that came since the last call, and those of them that are still there,
  /// oldest first. Waits for the device.
  struct Taken {
    int64_t pushed = 0;
    std::vector<std::vector<ClassCounts>> rows;
  };
  Taken take();
  bool empty() const { return !ring_.defined(); }
  void clear() { ring_ = {}; }

 private:
  int64_t rows_;
  Array ring_, count_;  // (rows, 6 · events) and () int64
  int64_t taken_ = 0;
};

}  // namespace halftape::amp
