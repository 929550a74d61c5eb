// Queues of work on a device: recordings, moments, and queues beside the threads' own.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>

#include "halftape/core/device.h"

namespace halftape {

class Buffer;

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

/// The queues of a device that carries calls out after they have returned.
class Queues {
 public:
  virtual ~Queues() = default;
  virtual void* current() = 0;  // this thread's
  /// Work that this thread gives to the device from now on begins after what `queue` has got by
  /// now. The host does not wait. Does nothing while this thread records: before it did, everything
  /// was done.
  virtual void follow(void* queue) = 0;
  /// Says that this thread's queue uses these bytes, which another one may have taken: whoever gets
  /// their memory next begins after what this thread's queue has got by now.
  virtual void record_use(const Buffer& bytes) = 0;
  virtual std::unique_ptr<QueueMoment> now() = 0;  // in this thread's queue
  virtual std::unique_ptr<SideQueue> new_side_queue() = 0;
  virtual std::unique_ptr<Recording> new_recording() = 0;
};

/// This thread's queue on the device; null if the device has none.
void* current_queue(Device device);
/// Makes its caller's queues, on all devices, those of the thread that got this. Beside
/// cuda_backend() in the CUDA loader.
std::function<void()> queues_of_thread();

}  // namespace halftape
