// How much the rig has run: which kernels, for which operands, in which order of threads.
#pragma once
#include <compare>
#include <cstdint>
#include <iosfwd>
#include <map>
#include <set>
#include <string>

#include "settings.h"

namespace simt {

/// Fingerprints of what a launch works on. Whoever calls the backend knows it: see set_operands().
struct Operands {
  std::uint64_t dtypes = 0, shapes = 0;
  auto operator<=>(const Operands&) const = default;
};

const char* name(Order order);

class Tally {
 public:
  /// `kernel`: its name with its template arguments.
  void add(const std::string& kernel, Order order, Operands operands, std::int64_t launches);
  /// Adds what write() wrote, of another process perhaps; false if that is not what is there.
  bool read(std::istream& in);
  void write(std::ostream& out) const;

  /// Those that ran in this order, without namespace and template arguments.
  std::set<std::string> kernels(Order order) const;
  /// "rig: 30 kernels (400 instantiations) x 50 dtypes of operands x 900 shapes x 3 orders of
  /// threads: 20000 of these combinations ran, 100000 launches"
  std::string line() const;

 private:
  struct Combination {
    Order order;
    Operands operands;
    auto operator<=>(const Combination&) const = default;
  };
  std::map<std::string, std::map<Combination, std::int64_t>> launches_;
};

}  // namespace simt
