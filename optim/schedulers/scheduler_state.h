// What a learning-rate schedule saves: numbers under names. One list of them serves both ways.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace halftape::optim {

/// Doubles are kept as they are, counts and switches as doubles; lists as "name.0", "name.1" ….
using SchedulerState = std::map<std::string, double>;

/// Where a schedule names its numbers.
class SchedulerFields {
 public:
  void number(const std::string& name, double& value);
  void count(const std::string& name, int64_t& value);
  void flag(const std::string& name, bool& value);
  void numbers(const std::string& name, std::vector<double>& values);
  void counts(const std::string& name, std::vector<int64_t>& values);
  /// Fields of a part, under "name.".
  void part(const std::string& name, const std::function<void(SchedulerFields&)>& list);

  using List = std::function<void(SchedulerFields&)>;
  static SchedulerState save(const List& list);
  /// Throws, changing nothing, unless `saved` has the names that `list` gives, and whole numbers
  /// where counts are meant.
  static void load(const SchedulerState& saved, const List& list);

 private:
  struct Field {
    std::string name;
    double value;
    bool whole;
    std::function<void(double)> set;
  };
  template <class T>
  void put(const std::string& name, T& value);
  std::string prefix_;
  std::vector<Field> fields_;
};

}  // namespace halftape::optim
