// Queues of work on a device: recordings, moments, and queues beside the threads' own.
#pragma once
#include <cstdint>
#include <functional>

namespace halftape {

/// Work that a device has recorded, to repeat it without the host.
class Recording {
 public:
  virtual ~Recording() = default;
  /// Calls `work` and carries out its calls of the backend, in the queue that record() will use;
  /// waits for them.
  virtual void rehearse(const std::function<void()>& work) = 0;
  /// Calls `work` and records its calls of the backend instead of carrying them out. Memory that
  /// `work` allocates stays with the recording.
  virtual void record(const std::function<void()>& work) = 0;
  /// Throws if replay() is refused in the current queue.
  virtual void check_queue() const = 0;
  /// Puts the recorded work into the current queue, and returns before it is done.
  virtual void replay() = 0;
  /// The number of recorded kernels and copies.
  virtual int64_t size() const = 0;
};

/// A moment in a queue of a device: all work that the queue had by then is done.
class QueueMoment {
 public:
  virtual ~QueueMoment() = default;
  /// Work that this thread gives to the device from now on begins after the moment. The host does
  /// not wait.
  virtual void await() = 0;
};

/// A queue of a device beside those into which its threads put their work.
class SideQueue {
 public:
  virtual ~SideQueue() = default;
  /// Calls `work`, during which this queue is the thread's.
  virtual void use(const std::function<void()>& work) = 0;
};

}  // namespace halftape
