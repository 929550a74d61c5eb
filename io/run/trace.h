// Where the time of a training step goes: a trace that chrome://tracing and ui.perfetto.dev show.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>

namespace halftape {

/// Records, while it lives, when each op, each op's backward rule and each optimizer step begins
/// and ends, in every thread:
///
///     {
///       const Trace trace("step.json");
///       train_step();
///     }
///
/// The times are the host's: on a GPU, of launching a kernel and not of running it, unless a
/// cuda::synchronize() stands in the step. Views, and what an optimizer does on the device, are not
/// seen apart. A trace holds some 60 bytes an op; record a few steps, not a run.
class Trace {
 public:
  /// Throws Error while another one records.
  explicit Trace(std::filesystem::path path);
  /// stop(), but an error is a warning.
  ~Trace();
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  /// Writes the file, whole or not at all, and records no more. Throws FileError when it cannot.
  void stop();

  /// A part of the step, by the name that the user gives it: `const Trace::Span span("forward");`.
  /// Nothing while no trace records.
  class [[nodiscard]] Span {
   public:
    explicit Span(std::string name);
    ~Span();
    Span(const Span&) = delete;
    Span& operator=(const Span&) = delete;

   private:
    std::string name_;
    int64_t began_;  // −1: nobody records
  };

 private:
  std::filesystem::path path_;
  bool recording_ = true;
};

}  // namespace halftape
