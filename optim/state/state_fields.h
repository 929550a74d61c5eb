// The numbers that options and schedules save, under names: one list of them serves saving, loading
// and the check of their ranges.
#pragma once
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace halftape::optim {

/// The allowed values of a number: low ≤ value < high.
struct NumberRange {
  double low, high;
  bool contains(double x) const { return x >= low && x < high; }
};
inline constexpr NumberRange kNonNegative{0, std::numeric_limits<double>::infinity()};
inline constexpr NumberRange kAtLeastOne{1, std::numeric_limits<double>::infinity()};
inline constexpr NumberRange kBelowOne{0, 1};

/// A list of named numbers, each with a way to set it.
class StateFields {
 public:
  /// Doubles are saved as they are, other kinds as doubles.
  using Numbers = std::map<std::string, double>;
  struct Field {
    std::string name;
    double value;
    std::function<void(double)> set;
    bool whole = false;  // a count, a switch or an enumerator
    std::optional<NumberRange> range = {};
  };

  /// A double, an integer, a bool or an enumerator.
  template <class T>
  void add(std::string_view name, T& value, std::optional<NumberRange> range = {}) {
    const auto number = static_cast<double>(value);
    if (only_ranges_)
      in_range_ = in_range_ && (!range || range->contains(number));
    else
      put({std::string(name), number, [&value](double n) { value = static_cast<T>(n); },
           !std::is_same_v<T, double>, range});
  }
  /// A list, saved as "name.0", "name.1" …; its length is not saved.
  template <class T>
  void add(std::string_view name, std::vector<T>& values) {
    for (size_t i = 0; i < values.size(); ++i)
      add(std::string(name) + "." + std::to_string(i), values[i]);
  }
  void put(Field field);
  using List = std::function<void(StateFields&)>;
  /// The fields of a part, under "name.".
  void part(const std::string& name, const List& list);

  explicit StateFields(const List& list) { list(*this); }
  /// True if all numbers are in their ranges. Makes no list: optimizers ask before every step.
  static bool in_range(const List& list);
  const std::vector<Field>& all() const { return fields_; }
  const Field* find(const std::string& name) const;  // null for none
  Numbers save() const;
  enum class Unknown : uint8_t { Refuse, Ignore };
  /// Throws, changing nothing, unless `saved` has every name, a whole number for each that is one,
  /// and each number in its range; the error lists all that is wrong. Unknown names are refused, or
  /// ignored.
  void load(const Numbers& saved, Unknown names = Unknown::Refuse) const;

  const char* owner = "optimizer";  // begins errors

 private:
  StateFields() = default;
  bool only_ranges_ = false, in_range_ = true;
  std::string prefix_;
  std::vector<Field> fields_;
};

}  // namespace halftape::optim
