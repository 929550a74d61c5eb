// Finds the first NaN, or inf, of a backward pass, and the call that led to it.
#pragma once
#include <atomic>
#include <string>

#include "halftape/autograd/tape/value_watcher.h"
#include "halftape/core/machine/shared.h"

namespace halftape::autograd {

/// The process-wide switch. While it is on, every recorded op stores where it was called, and every
/// error says at which call. With check_nan, backward throws at the first op whose rule makes a
/// NaN; with check_inf, an infinity, too, as the overflow that a GradScaler is about to skip. Slow,
/// for debugging.
class AnomalyMode {
 public:
  static bool is_enabled() { return mode.load(std::memory_order_relaxed) != Mode::Off; }
  static bool should_check_nan() { return mode.load(std::memory_order_relaxed) >= Mode::NaN; }
  static bool should_check_inf() { return mode.load(std::memory_order_relaxed) == Mode::Inf; }
  /// For all threads. check_inf includes check_nan.
  static void set_enabled(bool enabled, bool check_nan = true, bool check_inf = false);

 private:
  enum class Mode : uint8_t { Off, Calls, NaN, Inf };
  HALFTAPE_SHARED static inline std::atomic<Mode> mode{Mode::Off};
};

/// Switches AnomalyMode on for a scope.
class [[nodiscard]] DetectAnomalyGuard {
 public:
  [[nodiscard]] explicit DetectAnomalyGuard(bool check_nan = true, bool check_inf = false)
      : enabled_(AnomalyMode::is_enabled()),
        checked_nan_(AnomalyMode::should_check_nan()),
        checked_inf_(AnomalyMode::should_check_inf()) {
    AnomalyMode::set_enabled(true, check_nan, check_inf);
  }
  ~DetectAnomalyGuard() { AnomalyMode::set_enabled(enabled_, checked_nan_, checked_inf_); }
  DetectAnomalyGuard(const DetectAnomalyGuard&) = delete;
  DetectAnomalyGuard& operator=(const DetectAnomalyGuard&) = delete;

 private:
  bool enabled_, checked_nan_, checked_inf_;
};

/// The addresses of the call stack, as bytes.
std::string call_site();
/// The user's function of what call_site() returned, with file and line where debug information has
/// them; "" for an empty one.
std::string described_call(const std::string& call_site);
/// " in encoder.fc2; it was called at …", as far as anomaly mode has seen it; else "".
std::string where_called(const Node& node);
/// Throws if a rule's result has a NaN, or an infinity, and AnomalyMode checks it. Names the op,
/// its input and the function that called it, with file and line where debug information has them;
/// with HALFTAPE_BACKTRACE=1 all functions.
void refuse_nonfinite(const Node& node, const Grads& grads);

}  // namespace halftape::autograd
