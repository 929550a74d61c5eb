// What the trial and the capture of a step have in common.
#pragma once
#include <unordered_set>
#include <utility>

#include "halftape/core/array.h"
#include "halftape/core/capture/buffer_slot.h"
#include "halftape/core/check.h"

namespace halftape::detail {

using Buffers = std::unordered_set<const Buffer*>;

/// True if the buffer, or the one that it is a part of, is among these.
inline bool among(const Buffers& buffers, const Buffer* buffer) {
  return buffers.contains(buffer) || (buffer->whole() && buffers.contains(buffer->whole()));
}

/// The trial or the capture that runs in this thread.
class Stage {
 public:
  static Stage*& current() {
    thread_local constinit Stage* stage = nullptr;
    return stage;
  }
  virtual void begin_lasting() = 0;
  virtual void end_lasting() = 0;
  virtual void lent(BufferSlot& slot) = 0;
  virtual void touched(const Array& array, bool written) = 0;

 protected:
  Stage() {
    HALFTAPE_CHECK(!current(), "Graph: made inside the step of another graph");
    current() = this;
  }
  ~Stage() { current() = nullptr; }
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;
};

inline Array all_bytes(const BufferPtr& buffer) {
  const auto size = static_cast<int64_t>(buffer->size());
  return Array(buffer, Shape{size}, Strides{1}, 0, kUInt8);
}

/// Holds an array for a graph or its trial.
struct Hold {
  explicit Hold(Array held) : array(std::move(held)) { array.buffer()->hold_for_graph(); }
  ~Hold() { array.buffer()->release_from_graph(); }
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;
  const Array array;
};

}  // namespace halftape::detail
