// Exercise 12: where the host waited for the device.
#pragma once
#include <algorithm>
#include <cstdint>
#include <span>
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
  std::vector<std::string> names;
  for (const Event& call : trace) {
    if (call.on_device || call.end - call.begin < 20) continue;
    int64_t done = call.begin;
    for (const Event& work : trace)
      if (work.on_device && work.begin < call.end) done = std::max(done, work.end);
    if (done <= call.end && call.end - done <= 10) names.push_back(call.name);
  }
  return names;
}
