// The base of all optimizers' options. Spelled as LibTorch's.
#pragma once
#include <map>
#include <memory>
#include <string>

#include "halftape/core/check.h"
#include "halftape/optim/state/state_fields.h"

namespace halftape::optim {

/// Options of one parameter group. Schedulers and users set the learning rate here. A class of
/// options overrides clone() and fields(). One without fields() overrides what its program calls of
/// get_lr(), set_lr(), to_map() and from_map(): the rest throws.
class OptimizerOptions {
 public:
  OptimizerOptions() = default;
  OptimizerOptions(const OptimizerOptions&) = default;
  OptimizerOptions& operator=(const OptimizerOptions&) = default;
  virtual ~OptimizerOptions() = default;
  virtual std::unique_ptr<OptimizerOptions> clone() const;
  virtual double get_lr() const;
  virtual void set_lr(double lr);
  /// Throws when a value is out of its range, naming both.
  virtual void validate() const;
  /// The values that a resumed run depends on, by name.
  virtual std::map<std::string, double> to_map() const;
  /// Throws, changing nothing, when a value is missing or out of its range.
  virtual void from_map(const std::map<std::string, double>& saved);

 protected:
  /// Names every option once: saving, loading, ranges and the learning rate ("lr") follow from it.
  virtual void fields(StateFields&) {}

 private:
  StateFields::List list() const;
};

/// True if all values are equal.
inline bool operator==(const OptimizerOptions& a, const OptimizerOptions& b) {
  return a.to_map() == b.to_map();
}

/// Options whose clone() is a copy: struct MyOptions : OptimizerCloneableOptions<MyOptions>.
template <class Derived>
class OptimizerCloneableOptions : public OptimizerOptions {
 public:
  std::unique_ptr<OptimizerOptions> clone() const override {
    return std::unique_ptr<OptimizerOptions>(new Derived(static_cast<const Derived&>(*this)));
  }
};

}  // namespace halftape::optim
