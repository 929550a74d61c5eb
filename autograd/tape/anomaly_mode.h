// Finds the first NaN of a backward pass, and the call that led to it.
#pragma once
#include <atomic>
#include <string>

#include "halftape/autograd/tape/node.h"

namespace halftape::autograd {

/// The process-wide switch. While it is on, every recorded op stores where it was called, and
/// backward throws at the first op whose rule makes a NaN. Slow, for debugging.
class AnomalyMode {
 public:
  static bool is_enabled() { return enabled.load(std::memory_order_relaxed); }
  static void set_enabled(bool on) { enabled.store(on, std::memory_order_relaxed); }

 private:
  static inline std::atomic<bool> enabled{false};
};

/// Sets AnomalyMode for a scope.
class [[nodiscard]] DetectAnomalyGuard {
 public:
  [[nodiscard]] explicit DetectAnomalyGuard(bool on = true) : before_(AnomalyMode::is_enabled()) {
    AnomalyMode::set_enabled(on);
  }
  ~DetectAnomalyGuard() { AnomalyMode::set_enabled(before_); }
  DetectAnomalyGuard(const DetectAnomalyGuard&) = delete;
  DetectAnomalyGuard& operator=(const DetectAnomalyGuard&) = delete;

 private:
  bool before_;
};

/// The addresses of the call stack, as bytes; refuse_nan() looks up their names.
std::string call_site();
/// Throws if a rule's result has a NaN. Names the op, its input and the function that called it,
/// with file and line where debug information has them; with HALFTAPE_BACKTRACE=1 all functions.
void refuse_nan(const Node& node, const Grads& grads);

}  // namespace halftape::autograd
