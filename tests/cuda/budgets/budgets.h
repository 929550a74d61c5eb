// The file of budgets: for each workload, what a captured step of it may cost.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "count.h"

namespace halftape::testing {

/// A number that has a line in the file: "a128<TAB>nodes<TAB>13".
struct Budget {
  std::string workload, number;
  double value = 0;
};
/// Those of a workload: nodes, library calls, host waits, MB, GFLOP, arena MB.
std::vector<Budget> budgets_of(const std::string& workload, const Count& count);
/// A number as the file holds it; comparisons are of such.
std::string written(double value);

class BudgetFile {
 public:
  /// Throws if there is no such file, or a line of it is no budget or comes twice.
  explicit BudgetFile(const std::string& path);
  /// "" if the numbers are the file's, or better. Else a line for each that is worse (nodes, calls
  /// and waits by anything; bytes and operations by more than 5 %), missing, or no longer counted.
  std::string worse(const std::vector<Budget>& found) const;
  /// A line for each that is better.
  std::string better(const std::vector<Budget>& found) const;
  static void write(const std::string& path, const std::vector<Budget>& budgets);

 private:
  std::map<std::pair<std::string, std::string>, double> values_;
};

}  // namespace halftape::testing
