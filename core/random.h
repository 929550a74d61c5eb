// Random streams: a seed and a position. Drawing n numbers moves the position; nothing else is
// state.
#pragma once
#include <cstdint>
#include <utility>
#include <vector>

#include "halftape/core/device.h"

namespace halftape {

/// A Philox stream. Not thread-safe by itself; the default generators are locked by
/// random_reserve().
struct Generator {
  uint64_t seed = 5489;
  uint64_t offset = 0;  // in blocks of four 32-bit words
};

/// A piece of a stream: what a kernel needs to draw its numbers.
struct RandomKey {
  uint64_t seed = 0, offset = 0;
  /// On the device: where the stream stands by now; seed and offset count from there. Null: they
  /// are it all. For kernels that run again and again (core/graph.h).
  const RandomKey* live = nullptr;
};

/// The default generator's state of a device, copied out and set.
Generator get_generator(Device = kCPU);
void set_generator(const Generator&, Device = kCPU);
/// The default generators of all devices, to be put back as they are now.
struct RandomState {
  uint64_t seed = 0;  // of devices that have not drawn yet
  std::vector<std::pair<Device, Generator>> generators;
};
RandomState get_random_state();
void set_random_state(const RandomState&);
/// Seeds the default generators of all devices.
void manual_seed(uint64_t seed);
/// Takes `count` 32-bit words from the device's default stream. Safe from several threads.
RandomKey random_reserve(Device device, int64_t count);

}  // namespace halftape
