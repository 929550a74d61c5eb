// What a captured step may do, and what its replays touch.
#pragma once
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "halftape/core/capture/capture.h"
#include "halftape/core/capture/stage.h"
#include "halftape/core/contract/forwarding_backend.h"

namespace halftape::detail {

/// Buffers that existed before the step was captured, and must exist as long as it is replayed.
class Held {
 public:
  void add(const BufferPtr& buffer, bool written) {
    entries_.try_emplace(buffer.get(), all_bytes(buffer)).first->second.written |= written;
  }
  /// True if the step writes the buffer, or the one that it is a part of.
  bool written(const Buffer* buffer) const {
    const auto found = entries_.find(buffer);
    if (found != entries_.end() && found->second.written) return true;
    return buffer->whole() && written(buffer->whole());
  }
  /// A replay has written these buffers.
  void raise_versions() const {
    for (const auto& [buffer, entry] : entries_)
      if (entry.written) entry.hold.array.bump_version();
  }

 private:
  struct Entry {
    explicit Entry(Array all) : hold(std::move(all)) {}
    Hold hold;
    bool written = false;
  };
  std::unordered_map<const Buffer*, Entry> entries_;
};

/// An array made of another one, as a cast is, which is made again before a replay if it is out of
/// date.
class KeptCopy {
 public:
  KeptCopy(const Array& source, const Array& copy, Capture::Renew renew)
      : source_(source), copy_(copy), renew_(std::move(renew)) {
    agree();
  }
  bool is(const Array& copy) const { return copy_.array.buffer() == copy.buffer(); }
  /// The copy now fits the source.
  void agree() { agreed_ = versions(); }
  /// The capture has ended. If the step leaves the copy up to date, every replay does.
  void captured() {
    stays_ = agreed_ == versions();
    agreed_ = {};
  }
  void refresh() const {
    if (agreed_ != versions() || source_.array.buffer()->exposed())
      renew_(source_.array, copy_.array);
  }
  void replayed() { agreed_ = stays_ ? versions() : std::nullopt; }

 private:
  using Versions = std::optional<std::pair<uint64_t, uint64_t>>;
  Versions versions() const { return std::pair(source_.array.version(), copy_.array.version()); }
  Hold source_, copy_;
  Capture::Renew renew_;
  Versions agreed_;
  bool stays_ = false;
};

/// Passes on the calls that a replay can repeat, and refuses the others; notes the buffers that the
/// replays will touch.
class Watch final : public ForwardingBackend, public Stage {
 public:
  /// `left`: the buffers that the trial allocated.
  Watch(Device device, Backend& to, Held& held, Buffers left)
      : ForwardingBackend(to), device_(device), held_(held), left_(std::move(left)) {}

  BufferPtr allocate(size_t bytes, bool pinned) override {
    if (!pinned) check_no_state();
    BufferPtr made = to().allocate(bytes, pinned);
    // It may lie where a buffer was that is gone.
    pinned_.erase(made.get());
    if (pinned) {
      made_.erase(made.get());
      left_.erase(made.get());
      pinned_.insert(made.get());
    } else {
      made_.insert(made.get());  // it stays with the recording
    }
    return made;
  }
  void begin_lasting() override { ++lasting_; }
  void end_lasting() override { --lasting_; }
  void lent(BufferSlot& slot) override {
    if (slot.buffer()->device() != device_) return;
    check_no_state();
    made_.insert(slot.buffer().get());
    lent_.emplace_back(&slot);
  }
  void touched(const Array& array, bool written) override { note(array, written); }
  bool made(const Buffer* buffer) const { return among(made_, buffer); }
  /// The slots that the step used: replays write there.
  const std::vector<Ref<BufferSlot>>& lent() const { return lent_; }

 private:
  void before(const std::string& call, const Touched& touched) override {
    HALFTAPE_CHECK(call != "read", "item(), or another read of a value by the host, inside a ",
                   "captured step: log after replay(), or every n steps outside it");
    HALFTAPE_CHECK(call != "synchronize", "synchronize() inside a captured step; wait outside it");
    for (const Array* a : touched.writes) note(*a, true);
    for (const Array* a : touched.reads) note(*a, false);
  }
  void check_no_state() const {
    HALFTAPE_CHECK(!lasting_,
                   "Graph: state is made for the first time while the step is captured, ",
                   "though the step was tried before: does it do something else each time?");
  }
  void note(const Array& a, bool written) {
    if (!a.defined()) return;
    HALFTAPE_CHECK(a.device() == device_ || a.buffer()->pinned(), "a copy between ", device_,
                   " and ", a.device(), " inside a captured step: make the tensor on the device ",
                   "outside it, and copy new values into it between replays");
    if (written) pinned_.erase(a.buffer().get());
    HALFTAPE_CHECK(
        !among(pinned_, a.buffer().get()),
        "a copy from memory that was pinned inside a captured step, whose replays would ",
        "copy what it holds now: call pin_memory() outside it");
    if (made(a.buffer().get())) return;
    HALFTAPE_CHECK(!among(left_, a.buffer().get()),
                   "Graph: the captured step goes on with what its trial has left, gradients that ",
                   "are accumulated perhaps; begin the step with zero_grad(), or call it once ",
                   "before the graph is made");
    held_.add(a.buffer(), written);
  }

  Device device_;
  Held& held_;
  int lasting_ = 0;
  Buffers left_;
  Buffers made_;
  Buffers pinned_;  // that the step made, and the device has not written
  std::vector<Ref<BufferSlot>> lent_;
};

}  // namespace halftape::detail
