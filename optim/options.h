// The base of all optimizers' options. Spelled as LibTorch's.
#pragma once
#include <map>
#include <memory>
#include <string>

#include "halftape/core/check.h"

namespace halftape::optim {

/// Options of one parameter group. Schedulers and users set the learning rate here. What a class of
/// options leaves open throws when it is asked for.
class OptimizerOptions {
 public:
  OptimizerOptions() = default;
  OptimizerOptions(const OptimizerOptions&) = default;
  OptimizerOptions& operator=(const OptimizerOptions&) = default;
  virtual ~OptimizerOptions() = default;
  virtual std::unique_ptr<OptimizerOptions> clone() const { missing("clone"); }
  virtual double get_lr() const { missing("get_lr"); }
  virtual void set_lr(double) { missing("set_lr"); }
  /// Throws when a value makes no sense, naming it and its range.
  virtual void validate() const {}
  /// The values that a resumed run depends on, by name.
  virtual std::map<std::string, double> to_map() const { missing("to_map"); }
  virtual void from_map(const std::map<std::string, double>&) { missing("from_map"); }

 private:
  [[noreturn]] static void missing(const char* what) {
    ::halftape::detail::fail("optimizer: its options do not say how to ", what, "(); override it");
  }
};

/// Do both say the same?
inline bool operator==(const OptimizerOptions& a, const OptimizerOptions& b) {
  return a.to_map() == b.to_map();
}

/// Options that are copied as what they are: struct MyOptions :
/// OptimizerCloneableOptions<MyOptions>.
template <class Derived>
class OptimizerCloneableOptions : public OptimizerOptions {
 public:
  std::unique_ptr<OptimizerOptions> clone() const override {
    return std::unique_ptr<OptimizerOptions>(new Derived(static_cast<const Derived&>(*this)));
  }
};

}  // namespace halftape::optim
