// A trace of the time of a training step, for chrome://tracing and ui.perfetto.dev.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>

namespace halftape {

/// While it lives, records the begin and end of each op, each backward rule and each optimizer
/// step, in every thread:
///
///     {
///       const Trace trace("step.json");
///       train_step();
///     }
///
/// Times are the host's: on a GPU, they measure the launch of a kernel and not its run, unless the
/// step calls cuda::synchronize(). Views and the kernels of an optimizer have no events of their
/// own. An op takes some 200 bytes: record a few steps, not a run.
///
/// The viewer shows dtype, shape and bytes of what an op that recorded itself computed (linear()
/// computes rows), and a track of the bytes that arrays hold in the CPU's memory.
class Trace {
 public:
  /// Throws Error while another trace records, and for an empty path.
  [[nodiscard]] explicit Trace(const std::filesystem::path& path);
  /// stop(); an error becomes a warning.
  ~Trace();
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  /// Ends the recording and writes the whole file or none. Throws FileError when it cannot.
  void stop();

  /// A part of the step under a name of your own: `const Trace::Span span("forward");`. Does
  /// nothing while no trace records.
  class [[nodiscard]] Span {
   public:
    [[nodiscard]] explicit Span(std::string name);
    ~Span();
    Span(const Span&) = delete;
    Span& operator=(const Span&) = delete;

   private:
    std::string name_;
    int64_t began_;  // −1: no trace records
  };

 private:
  std::filesystem::path path_;
  bool recording_ = true;
};

}  // namespace halftape
