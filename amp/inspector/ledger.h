// Where a training step stores its numbers, and how they lie in the range of their dtype.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>

#include "halftape/amp/tools/exponents.h"
#include "halftape/core/formula/number_class.h"

namespace halftape::amp {

/// How many numbers are of each class of their own dtype.
struct ClassCounts {
  std::array<int64_t, kNumberClasses> counts{};

  int64_t operator[](NumberClass c) const { return counts[static_cast<size_t>(c)]; }
  /// Of all classes.
  int64_t total() const;
  int64_t nonfinite() const { return (*this)[NumberClass::Infinite] + (*this)[NumberClass::NaN]; }
  ClassCounts& operator+=(const ClassCounts& other);
  bool operator==(const ClassCounts&) const = default;
};

/// A place in a training step where numbers are stored: the value of a recorded op, the gradient of
/// such a value, the sum of several gradients of it, or the gradient of a parameter. Steps that do
/// the same have the same places.
struct LedgerPlace {
  /// What is stored: an op's result, a gradient of it, their sum, or a parameter's gradient.
  enum class Kind : uint8_t { Value, Gradient, Sum, Parameter } kind = Kind::Value;
  std::string op = {};         // whose value it is, or whose value's gradient: "linear"
  std::string module = {};     // in which op was called: "encoder.fc2"; empty outside of modules
  int64_t output = 0;          // of op
  std::string parameter = {};  // its name, of Kind::Parameter; empty if it is not the model's
  /// Of gradients: the op whose rule gave it, and the module in which that op was called.
  std::string rule = {}, rule_module = {};
  Dtype dtype = kFloat32;  // in which it is stored

  bool operator==(const LedgerPlace&) const = default;
};
/// "gradient of linear in fc2, by the rule of relu in act1, float16"
std::ostream& operator<<(std::ostream& out, const LedgerPlace& place);

/// The module to which a parameter of that name belongs: "encoder.fc2" for "encoder.fc2.weight",
/// nothing for "weight".
std::string_view module_of(std::string_view parameter);

/// The share of the numbers counted in `exact` that a 16-bit dtype has lost if it has `zeros`
/// zeros.
double lost_share(int64_t zeros, const ExponentCounts& exact);

/// The numbers of one place in one step, by powers of two.
struct LedgerRow {
  size_t place = 0;  // in Inspector::places()
  int64_t step = 0;
  double scale = 1;     // of the loss
  ExponentCounts seen;  // as they were stored, scaled
  /// The same gradient of the same batch computed in float32 without a scale: what `seen` has more
  /// zeros than this, the dtype has lost.
  std::optional<ExponentCounts> shadow;
  /// The share of the shadow's numbers that are lost; nothing without a shadow that has numbers.
  std::optional<double> lost() const;
  /// Of a parameter's gradient g: ‖g/scale − shadow‖ / ‖shadow‖; NaN where that is 0/0.
  std::optional<double> error;
};

}  // namespace halftape::amp
