// The profilers' hook: a watcher learns when ops begin and end. Without a watcher it costs one load
// per op.
#pragma once
#include <atomic>
#include <cstdint>

#include "halftape/core/machine/shared.h"

namespace halftape {

class Array;

class OpWatcher {
 public:
  enum class Phase : uint8_t {
    Op,        // called by the user, or by another op or rule
    Backward,  // the rule of a recorded op
    Step,      // Optimizer::step()
  };
  virtual ~OpWatcher() = default;
  /// Returns a time, which ended() gets as `began`.
  virtual int64_t began() noexcept = 0;
  /// `name` is valid during the call.
  virtual void ended(const char* name, Phase phase, int64_t began) noexcept = 0;

  /// An op that recorded itself gave this value; not called for views, and only while
  /// detail::tape_watchers counts the watcher (autograd/tape/value_watcher.h).
  virtual void made(const Array& /*value*/) noexcept {}

  /// The watcher of all threads, or null. Ops may end after it was replaced, so a watcher must live
  /// as long as the process.
  static OpWatcher* current() { return watcher.load(std::memory_order_acquire); }
  static void set_current(OpWatcher* w) { watcher.store(w, std::memory_order_release); }

 private:
  HALFTAPE_SHARED static inline std::atomic<OpWatcher*> watcher{nullptr};
};

/// Reports the scope of one op to the watcher.
class [[nodiscard]] OpTimer {
 public:
  [[nodiscard]] explicit OpTimer(const char* name, OpWatcher::Phase phase = OpWatcher::Phase::Op)
      : watcher_(OpWatcher::current()), name_(name), phase_(phase) {
    if (watcher_) [[unlikely]]
      began_ = watcher_->began();
  }
  ~OpTimer() {
    if (watcher_) [[unlikely]]
      watcher_->ended(name_, phase_, began_);
  }
  OpTimer(const OpTimer&) = delete;
  OpTimer& operator=(const OpTimer&) = delete;

 private:
  OpWatcher* watcher_;
  const char* name_;
  int64_t began_ = 0;
  OpWatcher::Phase phase_;
};

}  // namespace halftape
