// Switches: whether a thread records operations, and what zero_grad() does by default.
#pragma once
#include <atomic>
#include <utility>

#include "halftape/core/machine/region.h"
#include "halftape/core/machine/shared.h"

namespace halftape {

/// The thread's recording switch; on by default.
struct GradMode {
  static bool is_enabled() { return enabled; }
  static void set_enabled(bool on) { enabled = on; }

 private:
  friend class AutoGradMode;
  HALFTAPE_SHARED static inline thread_local bool enabled = true;
};

/// Sets the switch for a scope. Scopes end in the thread that began them, the innermost first. One
/// that ends while an inner one is open changes nothing for that one; one that is destroyed in
/// another thread stays open in its own. Both warn, once per process. Likewise InferenceMode.
class [[nodiscard]] HALFTAPE_SHARED AutoGradMode {
 public:
  [[nodiscard]] explicit AutoGradMode(bool on)
      : region_([&] { return Before{std::exchange(GradMode::enabled, on)}; }) {}
  ~AutoGradMode() {
    region_.end("AutoGradMode", [](Before before) { GradMode::enabled = before.on; });
  }

 private:
  struct Before {
    bool on;
  };
  Region<Before> region_;
};

/// Nothing is recorded while it lives: `{ NoGradGuard no_grad; … }`. A view made meanwhile is
/// refused where ops are recorded, once its base was written in place with a gradient to follow.
class [[nodiscard]] NoGradGuard : public AutoGradMode {
 public:
  [[nodiscard]] NoGradGuard() : AutoGradMode(false) {}
};

/// Nothing is recorded while it lives, and tensors made meanwhile, but for views of others, can
/// never be part of a graph: an op that would save one for its backward pass throws, and so does
/// one that would change it outside the mode.
class [[nodiscard]] HALFTAPE_SHARED InferenceMode {
 public:
  [[nodiscard]] explicit InferenceMode(bool on = true)
      : grad_mode_(!on), region_([&] { return Before{std::exchange(enabled, on)}; }) {}
  ~InferenceMode() {
    region_.end("InferenceMode", [](Before before) { enabled = before.on; });
  }
  static bool is_enabled() { return enabled; }

 private:
  struct Before {
    bool on;
  };
  HALFTAPE_SHARED static inline thread_local bool enabled = false;
  AutoGradMode grad_mode_;
  Region<Before> region_;
};

namespace detail {
HALFTAPE_SHARED inline std::atomic<bool> zero_grad_drops{true};
}

/// True, the default, if zero_grad() without an argument drops gradients, as LibTorch 2 does; false
/// if it fills them with 0, as LibTorch 1 did.
inline bool zero_grad_sets_to_none() {
  return detail::zero_grad_drops.load(std::memory_order_relaxed);
}
/// For the whole process; false serves programs that read a gradient after zero_grad().
inline void set_zero_grad_sets_to_none(bool drops) {
  detail::zero_grad_drops.store(drops, std::memory_order_relaxed);
}

}  // namespace halftape
