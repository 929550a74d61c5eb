// Whether operations are recorded: one flag per thread.
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

}  // namespace halftape
