// The numbers that options and schedules save, under names: one list of them serves saving, loading
// and the check of their ranges.
#pragma once
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <ostream>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace halftape::optim {

/// The allowed values of a number, from low to high. NaN is in no range.
struct NumberRange {
  double low, high;
  bool with_low = true, with_high = false;  // whether the ends belong to it
  constexpr bool contains(double x) const {
    return (x > low || (with_low && x == low)) && (x < high || (with_high && x == high));
  }
  friend std::ostream& operator<<(std::ostream& out, const NumberRange& r) {
    return out << (r.with_low ? '[' : '(') << r.low << ", " << r.high << (r.with_high ? ']' : ')');
  }
};
inline constexpr double kInfinity = std::numeric_limits<double>::infinity();
inline constexpr NumberRange kFinite{-kInfinity, kInfinity, false};
inline constexpr NumberRange kNonNegative{0, kInfinity};
inline constexpr NumberRange kAtLeastOne{1, kInfinity};
inline constexpr NumberRange kBelowOne{0, 1};
inline constexpr NumberRange kFraction{0, 1, true, true};
inline constexpr NumberRange kPositiveFraction{0, 1, false, true};

/// The name under which a group's rate before any schedule is saved.
inline constexpr auto kInitialLr = "initial_lr";

/// A list of named numbers, each with a way to set it.
class StateFields {
 public:
  /// Doubles are saved as they are, other kinds as doubles.
  using Numbers = std::map<std::string, double>;
  /// One number.
  struct Field {
    std::string name;
    double value;                     // now
    std::function<void(double)> set;  // writes it back
    bool whole = false;               // a count, a switch or an enumerator: of at most 53 bits
    NumberRange range = kFinite;      // of what may be loaded
    bool accepts(double x) const {
      return range.contains(x) && (!whole || (x == std::floor(x) && std::abs(x) <= 0x1p53));
    }
  };

  /// A double, an integer, a bool or an enumerator.
  template <class T>
  void add(std::string_view name, T& value, const NumberRange& range = range_of<T>()) {
    const auto number = static_cast<double>(value);
    if (!only_ranges_)
      put({std::string(name), number, [&value](double n) { value = static_cast<T>(n); },
           !std::is_same_v<T, double>, range});
    else if (!range.contains(number) || (std::is_same_v<T, int64_t> && std::abs(number) > 0x1p53))
      in_range_ = false;
  }
  /// A list, saved as "name.0", "name.1" …; its length is not saved.
  template <class T>
  void add(std::string_view name, std::vector<T>& values,
           const NumberRange& range = range_of<T>()) {
    for (size_t i = 0; i < values.size(); ++i)
      add(std::string(name) + "." + std::to_string(i), values[i], range);
  }
  /// Appends a field.
  void put(Field field);
  using List = std::function<void(StateFields&)>;
  /// The fields of a part, under "name.".
  void part(const std::string& name, const List& list);

  explicit StateFields(const List& list) { list(*this); }
  /// True if all numbers are in their ranges. Makes no list: optimizers ask before every step.
  template <class AnyList>
  static bool in_range(const AnyList& list) {
    StateFields checked;
    checked.only_ranges_ = true;
    list(checked);
    return checked.in_range_;
  }
  /// The first number that is out of its range; null for none.
  const Field* out_of_range() const;
  const std::vector<Field>& all() const { return fields_; }
  const Field* find(const std::string& name) const;  // null for none
  /// All numbers by name.
  Numbers save() const;
  /// Takes from `defaults` each option that equals that of `unset`, a fresh object of this class.
  /// The numbers of a pair or list, whose names differ in the last digits, are one option.
  void inherit(const StateFields& unset, const StateFields& defaults) const;
  enum class Unknown : uint8_t { Refuse, Ignore };
  /// Throws, changing nothing, unless `saved` has every name and each number in its range, and when
  /// `check`, called with all of them set, throws. The error lists all that is wrong with names and
  /// ranges. Unknown names are refused, or ignored.
  void load(const Numbers& saved, Unknown names = Unknown::Refuse,
            const std::function<void()>& check = {}) const;

  const char* owner = "optimizer";  // begins errors

 private:
  StateFields() = default;
  template <class T>
  static constexpr NumberRange range_of() {
    return std::is_same_v<T, bool> ? kFraction : kFinite;
  }
  bool only_ranges_ = false, in_range_ = true;
  std::string prefix_;
  std::vector<Field> fields_;
};

}  // namespace halftape::optim
