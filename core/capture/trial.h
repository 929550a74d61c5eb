// The trial of a step, before it is captured.
#pragma once
#include <deque>
#include <string>
#include <vector>

#include "halftape/core/capture/stage.h"
#include "halftape/core/contract/forwarding_backend.h"

namespace halftape::detail {

/// Carries the step out, and can restore what it wrote: bytes that existed before, or were
/// allocated as lasting state, are copied before the step first writes them.
class Trial final : public ForwardingBackend, public Stage {
 public:
  Trial(Device device, Backend& to) : ForwardingBackend(to), device_(device) {}

  BufferPtr allocate(size_t bytes, bool pinned) override {
    BufferPtr made = to().allocate(bytes, pinned);
    if (pinned) {  // it may lie where a buffer was that is gone
      made_.erase(made.get());
      return made;
    }
    made_.insert(made.get());
    if (lasting_) fresh_.push_back(made);
    return made;
  }
  void begin_lasting() override { ++lasting_; }
  void end_lasting() override {
    if (--lasting_) return;
    for (const BufferPtr& b : fresh_) made_.erase(b.get());
    fresh_.clear();
  }
  void lent(BufferSlot& slot) override {
    if (slot.buffer()->device() != device_) return;
    made_.insert(slot.buffer().get());
    if (lasting_) fresh_.push_back(slot.buffer());
  }
  void touched(const Array& array, bool written) override {
    if (written) save(array);
  }
  void put_back() {
    // In reverse: a buffer and a part of it may both be saved.
    for (auto saved = saved_.rbegin(); saved != saved_.rend(); ++saved) {
      to().copy(saved->now.array, saved->before);
      saved->now.array.bump_version();  // copies of the trial's bytes are out of date
    }
    to().synchronize();
    saved_.clear();  // now that they were read: they are of the trial's queue, which waits for none
    known_.clear();
  }
  /// Buffers that the step allocated for itself. Some may still exist.
  const Buffers& made() const { return made_; }

 private:
  void before(const std::string&, const Touched& touched) override {
    for (const Array* a : touched.writes) save(*a);
  }
  void save(const Array& a) {
    if (!a.defined() || a.device() != device_) return;
    const BufferPtr& buffer = a.buffer();
    if (among(made_, buffer.get()) || !known_.insert(buffer.get()).second) return;
    const Array now = all_bytes(buffer);
    const Array before(to().allocate(buffer->size()), now.shape(), now.strides(), 0, kUInt8);
    to().copy(before, now);
    saved_.emplace_back(now, before);
  }

  Device device_;
  int lasting_ = 0;
  Buffers made_;  // by the step for itself
  std::vector<BufferPtr> fresh_;
  struct Saved {
    Saved(const Array& array, Array copy) : now(array), before(std::move(copy)) {}
    Hold now;
    Array before;
  };
  std::deque<Saved> saved_;
  Buffers known_;  // the saved ones
};

}  // namespace halftape::detail
