// The record of what the rig has run: kernels, their operands, orders of threads.
#pragma once
#include <compare>
#include <cstdint>
#include <iosfwd>
#include <map>
#include <set>
#include <string>

#include "settings.h"

namespace simt {

/// Fingerprints of the operands of a launch, which the caller of the backend sets: set_operands().
struct Operands {
  std::uint64_t dtypes = 0, shapes = 0;
  auto operator<=>(const Operands&) const = default;
};

const char* name(Order order);
/// "halftape::cuda::(anonymous namespace)::scan_lines<float>" -> "scan_lines"
std::string plain_name(std::string name);

class Tally {
 public:
  /// `kernel`: its name with its template arguments.
  void add(const std::string& kernel, Order order, Operands operands, std::int64_t launches);
  /// Adds a tally that write() wrote, maybe in another process; false if it is damaged.
  bool read(std::istream& in);
  void write(std::ostream& out) const;

  /// The kernels that ran in this order, without namespace and template arguments.
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
