// A scope that its user may end in a wrong order, or in another thread: a guard on the heap or in a
// std::optional can.
#pragma once
#include <atomic>
#include <utility>

#include "halftape/core/machine/free_list.h"

namespace halftape {

namespace detail {
/// Warns, the first time, that a region of the class `what` ended so.
void warn_of_thread(const char* what, std::atomic<bool>& warned) noexcept;
void warn_of_order(const char* what, std::atomic<bool>& warned) noexcept;
}  // namespace detail

/// What the end of a scope brings back. Scopes with one State that change the state of one owner
/// are one kind: a thread's lie within each other.
template <class State>
class Region {
 public:
  /// begin() changes what it will, and returns what was before. Its memory is had first: without
  /// any, nothing has changed.
  template <class F>
  explicit Region(const F& begin, const void* owner = nullptr)
      : open_(new Open(begin(), owner, innermost)) {
    innermost = open_;
  }
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  /// For the destructor of the class `what`: calls restore(State before). Where an inner region is
  /// open, that one's end does it. In another thread nothing ends, as it would change the first
  /// thread's state under its feet. True if it has ended.
  template <class F>
  bool end(const char* what, const F& restore) noexcept {
    static std::atomic<bool> warned_of_thread{false}, warned_of_order{false};
    Open **at = &innermost, *inner = nullptr;
    for (; *at && *at != open_; at = &(*at)->outer)
      if ((*at)->owner == open_->owner) inner = *at;
    if (!*at) {
      open_->lost = lost.exchange(open_);
      detail::warn_of_thread(what, warned_of_thread);
      return false;
    }
    *at = open_->outer;
    if (inner)
      inner->before = std::move(open_->before), detail::warn_of_order(what, warned_of_order);
    else
      restore(std::move(open_->before));
    delete open_;
    return true;
  }

 private:
  struct Open : FreeListed {
    State before;
    const void* owner;
    Open *outer, *lost = nullptr;
    Open(State s, const void* of, Open* o) : before(std::move(s)), owner(of), outer(o) {}
  };
  // Without destructors: a guard may end after the thread's other variables, or at exit.
  HALFTAPE_SHARED static inline constinit thread_local Open* innermost = nullptr;
  /// What no thread will delete.
  HALFTAPE_SHARED static inline constinit std::atomic<Open*> lost{nullptr};
  Open* open_;
};

}  // namespace halftape
