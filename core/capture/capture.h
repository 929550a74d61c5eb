// What a step may ask while a Graph is made of it (core/capture/graph.h): for bytes that are
// brought up to date before each replay, and to have state made for good.
#pragma once
#include <cstddef>
#include <functional>

#include "halftape/core/array.h"
#include "halftape/core/random/random.h"

namespace halftape {

/// A step on its way into a Graph, in this thread. What the host passes to a kernel by value stands
/// still from then on; what may differ at the next replay must come through here.
class Capture {
 public:
  /// The one that goes on in this thread on that device, else null.
  static Capture* on(Device device);
  /// Does one go on in this thread, on any device?
  static bool active();
  /// The same, or the trial that comes before it.
  static bool active_or_tried();

  using Refresh = std::function<void(std::byte* bytes)>;
  /// `size` bytes on the device, aligned to 16, that hold what `refresh` writes: now, and anew
  /// before every replay. `refresh` must stay callable as long as the graph lives.
  virtual Array value(size_t size, Refresh refresh) = 0;
  /// Was it allocated in the step, so that it belongs to its replays alone?
  virtual bool made_here(const Array& array) const = 0;
  /// random_reserve() for a kernel that runs at every replay, each time on the next numbers.
  virtual RandomKey reserve_random(int64_t count) = 0;

  /// `copy`, which outlasts the step, holds `source` cast when a replay begins: it is made anew
  /// there if others have written either since. False where this cannot be, because the step has
  /// written one of them by now.
  virtual bool keep_cast(const Array& source, const Array& copy) = 0;
  /// Is it kept so?
  virtual bool keeps(const Array& copy) const = 0;
  /// The step has just written both alike.
  virtual void wrote_alike(const Array& copy) = 0;

  /// Calls are held back, to be joined with their neighbours (core/capture/peephole.h). Who puts
  /// work into the device's queue beside its backend has them passed on first.
  virtual void settle() = 0;

 protected:
  ~Capture() = default;
};

class BufferSlot;
/// BufferSlot::lend() calls this. If this thread is trying or capturing a step, the slot's bytes
/// count as allocated by the step.
void lent_to_step(BufferSlot& slot);

/// What this thread allocates while one lives is state that outlasts the step in which it is made:
/// an optimizer's moments, a scaler's scale. A Graph, which tries a step before it captures it,
/// puts back what was written there first.
class [[nodiscard]] LastingState {
 public:
  LastingState();
  ~LastingState();
  LastingState(const LastingState&) = delete;
  LastingState& operator=(const LastingState&) = delete;
};

}  // namespace halftape
