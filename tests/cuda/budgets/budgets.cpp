#include "budgets.h"

#include <fstream>
#include <sstream>
#include <stdexcept>

namespace halftape::testing {
namespace {

/// Bytes and operations may grow a little, counts may not.
bool is_measure(const std::string& number) { return number == "GFLOP" || number.ends_with("MB"); }

double as_written(const Budget& b) { return std::stod(written(b.value)); }

std::string line(const Budget& b, const std::string& said) {
  return b.workload + ": " + written(b.value) + " " + b.number + ", " + said + "\n";
}

}  // namespace

std::string written(double value) {
  std::ostringstream text;
  text.precision(4);
  if (value >= 1000) text.precision(0), text << std::fixed;
  text << value;
  return text.str();
}

std::vector<Budget> budgets_of(const std::string& workload, const Count& count) {
  return {{workload, "nodes", static_cast<double>(count.nodes)},
          {workload, "library calls", static_cast<double>(count.library_calls)},
          {workload, "host waits", static_cast<double>(count.host_waits)},
          {workload, "MB", count.bytes / 1e6},
          {workload, "GFLOP", count.operations / 1e9},
          {workload, "arena MB", count.arena_bytes / 1e6}};
}

BudgetFile::BudgetFile(const std::string& path) {
  std::ifstream in(path);
  if (!in) throw std::runtime_error(path + " cannot be read");
  for (std::string text; std::getline(in, text);) {
    const size_t first = text.find('\t'), last = text.rfind('\t');
    const std::string value = last == std::string::npos ? "" : text.substr(last + 1);
    size_t used = 0;
    double number = 0;
    try {
      number = std::stod(value, &used);
    } catch (const std::logic_error&) {  // no number, or none that a double holds
    }
    if (first == last || used == 0 || used != value.size() || !(number >= 0) ||
        !values_
             .emplace(std::pair(text.substr(0, first), text.substr(first + 1, last - first - 1)),
                      number)
             .second)
      throw std::runtime_error(path + ": no budget, or one that was there already: " + text);
  }
}

std::string BudgetFile::worse(const std::vector<Budget>& found) const {
  std::string all;
  auto left = values_;
  for (const Budget& b : found) {
    const auto known = left.find({b.workload, b.number});
    if (known == left.end()) {
      all += line(b, "which has no budget");
      continue;
    }
    const double most = is_measure(b.number) ? 1.05 * known->second : known->second;
    if (as_written(b) > most) all += line(b, "budget " + written(known->second));
    left.erase(known);
  }
  for (const auto& [name, value] : left)
    all += line({name.first, name.second, value}, "a budget of nothing that is counted");
  return all;
}

std::string BudgetFile::better(const std::vector<Budget>& found) const {
  std::string all;
  for (const Budget& b : found)
    if (const auto known = values_.find({b.workload, b.number});
        known != values_.end() && as_written(b) < known->second)
      all += line(b, "budget " + written(known->second));
  return all;
}

void BudgetFile::write(const std::string& path, const std::vector<Budget>& budgets) {
  std::ofstream out(path);
  for (const Budget& b : budgets)
    out << b.workload << '\t' << b.number << '\t' << written(b.value) << '\n';
  out.close();
  if (!out) throw std::runtime_error(path + " cannot be written");
}

}  // namespace halftape::testing
