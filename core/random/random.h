// Random streams: a seed and a position. Drawing n numbers moves the position; nothing else is
// state, unless the CPU is asked for PyTorch's numbers.
#pragma once
#include <cstdint>
#include <utility>
#include <vector>

#include "halftape/core/device.h"
#include "halftape/core/random/mt19937.h"

namespace halftape {

/// What the CPU's default generator is.
enum class RandomEngine : uint8_t {
  Philox,   // counted: the same numbers on every device and for any number of threads
  Mt19937,  // PyTorch's: one number after the other, made in PyTorch's ways (core/random/draw.h)
};
/// With Mt19937, a seed gives on the CPU what it gives in PyTorch: initial weights, masks, orders.
/// The CPU's stream begins anew at the last seed, and is of this kind for later seeds too, until a
/// generator or a state of the other kind is set. Other devices draw as before.
void set_cpu_random_engine(RandomEngine engine);
RandomEngine cpu_random_engine();

/// A Philox stream; or, on the CPU, PyTorch's. Not thread-safe by itself; the default generators
/// are locked by random_reserve().
struct Generator {
  uint64_t seed = 5489;
  uint64_t offset = 0;                  // in blocks of four 32-bit words
  std::optional<Mt19937> mt19937 = {};  // which draws in place of them
};

/// A piece of a stream: what a kernel needs to draw its numbers.
struct RandomKey {
  uint64_t seed = 0, offset = 0;
  /// On the device: where the stream stands by now; seed and offset count from there. Null: they
  /// are it all. For kernels that run again and again (core/capture/graph.h).
  const RandomKey* live = nullptr;
};

/// The default generator's state of a device, copied out and set.
Generator get_generator(Device = kCPU);
void set_generator(const Generator&, Device = kCPU);
/// The default generators of all devices, to be put back as they are now.
struct RandomState {
  uint64_t seed = 0;  // of devices that have not drawn yet
  RandomEngine cpu_engine = RandomEngine::Philox;
  std::vector<std::pair<Device, Generator>> generators;
};
RandomState get_random_state();
void set_random_state(const RandomState&);
/// Seeds the default generators of all devices.
void manual_seed(uint64_t seed);
/// Takes `count` 32-bit words from the device's default stream; from an Mt19937, two that make a
/// Philox seed. Safe from several threads.
RandomKey random_reserve(Device device, int64_t count);

/// The CPU's Mt19937 for a row of draws, into which no other thread comes; null for another device,
/// and while Philox draws.
class LockedMt19937 {
 public:
  explicit LockedMt19937(Device device);
  ~LockedMt19937();
  LockedMt19937(const LockedMt19937&) = delete;
  LockedMt19937& operator=(const LockedMt19937&) = delete;
  explicit operator bool() const { return engine_ != nullptr; }
  Mt19937& operator*() const { return *engine_; }
  Mt19937* operator->() const { return engine_; }

 private:
  Mt19937* engine_ = nullptr;
};

}  // namespace halftape
