// Thread-local switches: whether operations are recorded.
#pragma once

namespace halftape {

/// The thread's recording switch; on by default.
struct GradMode {
  static bool is_enabled() { return enabled; }
  static void set_enabled(bool on) { enabled = on; }

 private:
  static inline thread_local bool enabled = true;
};

/// Sets the switch for a scope.
class [[nodiscard]] AutoGradMode {
 public:
  explicit AutoGradMode(bool on) : before_(GradMode::is_enabled()) { GradMode::set_enabled(on); }
  ~AutoGradMode() { GradMode::set_enabled(before_); }
  AutoGradMode(const AutoGradMode&) = delete;
  AutoGradMode& operator=(const AutoGradMode&) = delete;

 private:
  bool before_;
};

/// Nothing is recorded while it lives: `{ NoGradGuard no_grad; … }`.
class [[nodiscard]] NoGradGuard : public AutoGradMode {
 public:
  NoGradGuard() : AutoGradMode(false) {}
};

/// Nothing is recorded while it lives, and tensors made meanwhile can never be part of a graph: an
/// op that would save one for its backward pass throws.
class [[nodiscard]] InferenceMode {
 public:
  explicit InferenceMode(bool on = true) : grad_mode_(!on), before_(enabled) { enabled = on; }
  ~InferenceMode() { enabled = before_; }
  InferenceMode(const InferenceMode&) = delete;
  InferenceMode& operator=(const InferenceMode&) = delete;
  static bool is_enabled() { return enabled; }

 private:
  static inline thread_local bool enabled = false;
  AutoGradMode grad_mode_;
  bool before_;
};

}  // namespace halftape
