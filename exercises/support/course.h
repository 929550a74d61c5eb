// What the tests of several exercises share.
#pragma once
#include <cstdint>
#include <sstream>
#include <string>

namespace course {

/// The number of this class (scripts/course --seed), from which exercises 7 and 13 make their data;
/// 0 by default.
uint64_t seed();

/// The parts one after the other, numbers with all digits that a float has.
template <class... Part>
std::string text(const Part&... part) {
  std::ostringstream out;
  out.precision(9);
  (out << ... << part);
  return out.str();
}

/// Random numbers that are the same everywhere: SplitMix64 (Steele et al. 2014).
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t word() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
  }
  /// 0 … n − 1.
  uint64_t below(uint64_t n) { return word() % n; }
  /// Uniform in [0, 1).
  double uniform() { return static_cast<double>(word() >> 11) * 0x1p-53; }

 private:
  uint64_t state_;
};

}  // namespace course
