// Random streams: a seed and a position, which drawing moves on. There is no other state, unless
// the CPU draws PyTorch's numbers.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "halftape/core/device.h"
#include "halftape/core/machine/region.h"
#include "halftape/core/random/mt19937.h"

namespace halftape {

/// The kind of the CPU's default generator.
enum class RandomEngine : uint8_t {
  Philox,   // counter-based: the same numbers on every device, for any number of threads
  Mt19937,  // PyTorch's: one number after the other (core/random/draw.h)
};
/// With Mt19937, a seed gives the same initial weights, masks and orders on the CPU as in PyTorch.
/// The CPU's stream restarts at the last seed. It keeps this kind for later seeds, until a
/// generator or a state of the other kind is set. Other devices draw as before.
void set_cpu_random_engine(RandomEngine engine);
RandomEngine cpu_random_engine();

/// A Philox stream or, on the CPU, PyTorch's. Not thread-safe by itself; random_reserve() locks the
/// default generators.
struct Generator {
  uint64_t seed = 5489;                 // of the stream
  uint64_t offset = 0;                  // in blocks of four 32-bit words
  std::optional<Mt19937> mt19937 = {};  // if set, this draws instead
};

/// A piece of a stream, from which a kernel draws its numbers.
struct RandomKey {
  uint64_t seed = 0, offset = 0;  // of the stream; as in Generator
  /// On the device: the position of the stream when the kernel runs, to which seed and offset are
  /// added; for kernels that are replayed (core/capture/graph.h). Null: seed and offset are all.
  const RandomKey* live = nullptr;
};

/// Copies or sets the state of a device's default generator.
Generator get_generator(Device = kCPU);
void set_generator(const Generator&, Device = kCPU);
/// A copy of the default generators of all devices.
struct RandomState {
  uint64_t seed = 0;                               // of devices that have not drawn yet
  RandomEngine cpu_engine = RandomEngine::Philox;  // what set_cpu_random_engine() chose
  std::vector<std::pair<Device, Generator>> generators;
};
/// Copies, and sets, the default generators of all devices.
RandomState get_random_state();
void set_random_state(const RandomState&);
/// Seeds the default generators of all devices.
void manual_seed(uint64_t seed);
/// Takes `count` 32-bit words from the device's default stream; from an Mt19937, two words as the
/// seed of a Philox stream. Thread-safe.
RandomKey random_reserve(Device device, int64_t count);

namespace detail {
struct RandomStreams;
}

/// Default generators of this thread's own, from a copy of a state on, for as long as it lives:
/// what it draws and seeds moves no other thread's numbers, nor do they move these.
class [[nodiscard]] RandomScope {
 public:
  [[nodiscard]] explicit RandomScope(const RandomState& begin);
  ~RandomScope();
  RandomScope(const RandomScope&) = delete;
  RandomScope& operator=(const RandomScope&) = delete;

 private:
  std::unique_ptr<detail::RandomStreams> own_;
  Region<detail::RandomStreams*> region_;
};

/// What a piece of work drew, for doing it again with the same numbers.
struct DrawLog {
  struct Draw {
    RandomKey key;
    std::shared_ptr<const Mt19937> engine;  // or PyTorch's stream before numbers were drawn from it
  };
  std::vector<Draw> draws;
};
/// While it lives, what this thread draws is noted in the log or, where the work is done again,
/// comes from it, for as long as it has something.
class [[nodiscard]] DrawScope {
 public:
  [[nodiscard]] DrawScope(DrawLog& log, bool again);
  ~DrawScope();
  DrawScope(const DrawScope&) = delete;
  DrawScope& operator=(const DrawScope&) = delete;

  /// Whether this thread has such a scope.
  static bool any() { return innermost; }
  /// What the log of the work that is done again holds next; null: this thread draws anew.
  static const DrawLog::Draw* logged();
  /// Takes a draw as made, after logged(). Work within that work notes it.
  static void note(const DrawLog::Draw& draw);

 private:
  DrawLog& log_;
  size_t next_ = 0;
  const bool again_;
  DrawScope* const outer_;
  static constinit thread_local DrawScope* innermost;
};

/// Locks the CPU's Mt19937 for several draws in a row. Null for another device, and while the CPU
/// draws from Philox.
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
  detail::RandomStreams* locked_ = nullptr;
  std::optional<Mt19937> logged_;  // engine_, where a log has the draw
};

}  // namespace halftape
