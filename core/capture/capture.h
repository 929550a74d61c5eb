// What a step may ask of the Graph that captures it (core/capture/graph.h): bytes that are
// refreshed before each replay, and state that outlasts the step.
#pragma once
#include <cstddef>
#include <functional>

#include "halftape/core/array.h"
#include "halftape/core/random/random.h"

namespace halftape {

/// The capture of a step, in this thread. A number that the host passes to a kernel by value is the
/// same at every replay; one that may change must come through here.
class Capture {
 public:
  /// The capture that runs in this thread on that device, else null.
  static Capture* on(Device device);
  /// True while a capture runs in this thread, on any device.
  static bool active();
  /// True also during the trial that comes before the capture.
  static bool active_or_tried();

  using Refresh = std::function<void(std::byte* bytes)>;
  /// `size` bytes on the device, aligned to 16, that `refresh` writes before every replay.
  /// `refresh` must stay callable as long as the graph lives.
  virtual Array value(size_t size, Refresh refresh) = 0;
  /// True if the step allocated the array, so that it belongs to the replays alone.
  virtual bool made_here(const Array& array) const = 0;
  /// random_reserve() for a kernel that draws the next numbers at each replay.
  virtual RandomKey reserve_random(int64_t count) = 0;
  /// What these keys lead to. Who draws with one after the step keeps it.
  virtual Array random_start() const = 0;
  /// random_start() of this thread's capture on that device; undefined without one.
  static Array random_start_on(Device device);

  using Renew = std::function<void(const Array& source, const Array& copy)>;
  /// `copy`, which outlasts the step, is made of `source` and fits it when a replay begins:
  /// replay() calls `renew` if either was written in between.
  virtual void keep(const Array& source, const Array& copy, Renew renew) = 0;
  /// True if keep() was called for this copy.
  virtual bool keeps(const Array& copy) const = 0;
  /// The step calls this when it has written both so that the copy fits its source.
  virtual void wrote_alike(const Array& copy) = 0;
  /// True if the step has written the array, which is older than the step.
  virtual bool writes(const Array& array) const = 0;

  /// Passes on the call that is held back to be joined with its neighbours
  /// (core/capture/peephole.h). Must be called before work enters the device's queue without the
  /// backend.
  virtual void settle() = 0;

 protected:
  ~Capture() = default;
};

class BufferSlot;
/// BufferSlot::lend() calls this. If this thread is trying or capturing a step, the slot's bytes
/// count as allocated by the step.
void lent_to_step(BufferSlot& slot);

/// For work that enters the device's queue without the backend, before it does: such work reads the
/// array, or writes it. If this thread is trying or capturing a step, that is noted as of a call of
/// the backend. settle() is still the caller's to call.
void touched_in_step(const Array& array, bool written);

/// While one lives, memory that this thread allocates is state that outlasts the step: a
/// parameter's moments, for one. A Graph restores its first contents after the trial.
class [[nodiscard]] LastingState {
 public:
  [[nodiscard]] LastingState();
  ~LastingState();
  LastingState(const LastingState&) = delete;
  LastingState& operator=(const LastingState&) = delete;
};

}  // namespace halftape
