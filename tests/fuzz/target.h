// What fuzzing calls with arbitrary bytes. A target returns for input that is taken and for input
// that is refused with an Error; it throws Finding, or dies, where the library did wrong.
#pragma once
#include <cstdint>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace halftape::fuzz {

/// The library accepted what it must refuse, gave a wrong result, or threw what is no Error.
class Finding : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct Target {
  std::string_view name;
  /// Returns true if the library took the input, false if it refused it.
  bool (*run)(std::string_view input);
  /// Small inputs from which mutate() starts.
  std::vector<std::string> (*seeds)();
};

/// Readers of files, archives, connections, saved states, and programs of calls.
std::span<const Target> targets();
std::span<const Target> reader_targets();
std::span<const Target> archive_targets();
/// Empty where there are no sockets.
std::span<const Target> connection_targets();
std::span<const Target> state_targets();
std::span<const Target> program_targets();

/// Runs the target; every exception but Error becomes a Finding that names it.
bool run(const Target& target, std::string_view input);

/// A few changes to one of the seeds: bits, bytes, numbers at the ends of their ranges, pieces cut
/// out, doubled or taken from another seed.
std::string mutate(const std::vector<std::string>& seeds, std::mt19937_64& random);

/// Numbers read from the input; zeros at its end.
class Reader {
 public:
  explicit Reader(std::string_view input) : rest_(input) {}
  bool done() const { return rest_.empty(); }
  uint8_t byte() {
    if (rest_.empty()) return 0;
    const auto value = static_cast<uint8_t>(rest_.front());
    rest_.remove_prefix(1);
    return value;
  }
  /// 0 … n - 1.
  int64_t below(int64_t n) { return n > 0 ? byte() % n : 0; }
  /// low … high.
  int64_t between(int64_t low, int64_t high) { return low + below(high - low + 1); }

 private:
  std::string_view rest_;
};

}  // namespace halftape::fuzz
