// Shared by the samples' command lines: device, seed and threads, and errors that tell the user
// what to do.
#pragma once
#include <fmt/format.h>
#include <halftape/halftape.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <type_traits>

namespace sample {

/// A mistake of the user; the text says what to do.
struct UserError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// --device, --seed and --threads.
struct Machine {
  std::string device = "auto";
  uint64_t seed = 1;
  int threads = 0;  // 0: as the library chooses

  void add_options(CLI::App& app);
  /// Sets the threads, seeds the generators, and gives the device. Throws UserError for a device
  /// that this build or machine does not have. `local_rank`, of several processes on a machine,
  /// chooses among its GPUs, unless the user has named one by its number.
  halftape::Device prepare(int local_rank = 0) const;
};

/// --precision: float32, fp16, amp (fp16 with a GradScaler) or bf16.
struct Precision {
  std::string name = "amp";

  void add_option(CLI::App& app);
  /// The dtype of matrix products; weights, and ops that need it, stay in float32.
  halftape::Dtype dtype() const;
  bool scaled() const { return name == "amp"; }
};

/// Checks that an option is a number from `least` to `most`; CLI11's own check says of a word that
/// it is "not in range".
template <class T>
CLI::Validator between(T least, T most) {
  const CLI::Range range(least, most);
  return {[=](const std::string& given) {
            std::string text = given;
            return range(text).empty()
                       ? std::string()
                       : fmt::format("expected a {}number from {} to {}, found {}",
                                     std::is_integral_v<T> ? "whole " : "", least, most, given);
          },
          range.get_description()};
}

/// Parses the command line and calls `body`. Returns the exit code: 0; 2 for what the user can mend
/// (wrong arguments, a missing device, files that are missing, damaged or of another run); else 1,
/// also if standard output has not taken all that was printed.
int run(CLI::App& app, int argc, char** argv, const std::function<void()>& body);

/// While it lives, the first Ctrl-C, or SIGTERM, asks the program to end by itself, with what it
/// has; the second one ends it. Once asked, run() returns 130, or 143, as of a program that the
/// signal has ended.
class Interrupt {
 public:
  Interrupt();
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;
  static bool asked() { return signal() != 0; }
  /// SIGINT or SIGTERM, by which the program was asked; 0 if it was not.
  static int signal();
  /// As if that signal had come, for one that has reached another process.
  static void ask(int signal);

 private:
  void (*before_[2])(int);
};

/// The command, for a shell: the program's file name, and its arguments in quotes where they need
/// them.
std::string command_line(int argc, char** argv);

/// Throws, before the work begins, if image::save() could not write a picture of 1 or 3 channels
/// there.
void check_picture(const std::string& path, int64_t channels);

/// Throws if an option names a file to be written, and it is also the one of another option.
void check_other_file(const char* option, const std::string& path, const char* other_option,
                      const std::string& other);

/// Saves (C, H, W) with each pixel as a square, so that a small picture is some 600 pixels wide.
void save_picture(const std::string& path, const halftape::Tensor& picture);

/// FNV-1a, 64 bits, over the bytes of all parameters in order: equal for equal weights.
uint64_t hash(const halftape::nn::Module& module);

/// The autocast region of a step: on for 16-bit dtypes, off for others.
halftape::amp::autocast autocast_to(halftape::Dtype dtype, halftape::Device device);

}  // namespace sample
