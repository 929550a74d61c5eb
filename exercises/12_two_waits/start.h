// Exercise 12: where the host waited for the device. README.md says what is asked.
#pragma once
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

/// Times in microseconds. Events of the host do not overlap, and neither do those of the device.
struct Event {
  std::string name;
  bool on_device;
  int64_t begin, end;
};

/// The names of the host's calls that waited for the device, in their order in the trace.
inline std::vector<std::string> waits(std::span<const Event> trace) {
  // At most 15 lines of yours instead of this one.
  throw std::logic_error("waits() is not written yet");
}
