// Every optimizer of optim/algorithms, in one table: tests that hold for any optimizer loop over
// it. tests/optim/optimizer_test.cpp holds that no class is missing.
#pragma once
#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "halftape/autograd/ops/creation/create.h"
#include "halftape/optim/optim.h"

namespace halftape::testing {

/// One class of optimizers. `make` sets options so that it keeps all the state that it can.
struct OptimizerKind {
  using Groups = std::vector<optim::OptimizerParamGroup>;
  using Made = std::unique_ptr<optim::Optimizer>;

  std::string name;  // the class, and behind a space or comma the options that `make` sets
  std::function<Made(const Groups&, optim::Weights)> make_groups;
  std::function<Made(const Groups&)> make_defaults;
  /// The step is a rule of core/formula/update.h: it runs on CUDA, in a Graph, in an
  /// AsyncOptimizer, with flat storage, under a StepControl, and with any Weights. Without it,
  /// step() needs a closure, and `make` ignores the Weights.
  bool has_rule;

  std::string class_name() const { return name.substr(0, name.find_first_of(" ,")); }
  Made make(const std::vector<Tensor>& params, optim::Weights weights = {}) const {
    return make_groups({optim::OptimizerParamGroup(params)}, weights);
  }
};

template <class Optimizer, class Options>
OptimizerKind optimizer_kind(const char* name, const Options& options) {
  constexpr bool has_rule = requires(Options o) { o.weights(); };
  return {name,
          [options](const OptimizerKind::Groups& groups, optim::Weights weights) {
            Options set = options;
            if constexpr (has_rule) set.weights(weights);
            return std::make_unique<Optimizer>(groups, set);
          },
          [](const OptimizerKind::Groups& groups) { return std::make_unique<Optimizer>(groups); },
          has_rule};
}

inline const std::vector<OptimizerKind>& optimizers() {
  using namespace optim;
  static const std::vector<OptimizerKind> table = {
      optimizer_kind<SGD>("SGD", SGDOptions(0.01)),
      optimizer_kind<SGD>("SGD with momentum", SGDOptions(0.01).momentum(0.9).weight_decay(0.01)),
      optimizer_kind<Adam>("Adam", AdamOptions(0.01)),
      optimizer_kind<AdamW>("AdamW", AdamWOptions(0.01)),
      optimizer_kind<AdamW>("AdamW with amsgrad", AdamWOptions(0.01).amsgrad(true)),
      optimizer_kind<RMSprop>("RMSprop, centered, with momentum",
                              RMSpropOptions(0.002).momentum(0.5).centered(true)),
      optimizer_kind<Adagrad>("Adagrad",
                              AdagradOptions(0.02).lr_decay(0.01).initial_accumulator_value(0.1)),
      optimizer_kind<Lion>("Lion", LionOptions(0.01).weight_decay(0.1)),
      optimizer_kind<LBFGS>("LBFGS", LBFGSOptions(0.5).line_search_fn("strong_wolfe"))};
  return table;
}

/// Those whose step is a rule.
inline const std::vector<OptimizerKind>& rule_optimizers() {
  static const std::vector<OptimizerKind> table = [] {
    std::vector<OptimizerKind> all = optimizers();
    std::erase_if(all, [](const OptimizerKind& kind) { return !kind.has_rule; });
    return all;
  }();
  return table;
}

inline const OptimizerKind& optimizer_kind(const std::string& name) {
  const auto& all = optimizers();
  const auto found = std::find_if(all.begin(), all.end(), [&](auto& k) { return k.name == name; });
  HALFTAPE_CHECK(found != all.end(), "no optimizer is called \"", name, "\" in the table of tests");
  return *found;
}

/// Of a leaf in float64.
inline const TensorOptions wide_leaf = TensorOptions(kFloat64).requires_grad(true);
/// A leaf whose elements are all equal.
inline Tensor leaf(const Shape& shape, double value = 1, Dtype dtype = kFloat32) {
  return full(shape, value, TensorOptions(dtype).requires_grad(true));
}
/// Gives every parameter a gradient whose elements are all equal.
inline void give_gradients(const optim::Optimizer& optimizer, double value) {
  for (const Tensor& p : optim::parameters_of(optimizer.param_groups()))
    p.mutable_grad() = full(p.sizes(), value, p.dtype());
}
/// One step with a gradient whose elements are all equal, of all parameters or of one.
inline void step_with(optim::Optimizer& optimizer, double gradient) {
  give_gradients(optimizer, gradient);
  optimizer.step();
}
inline void step_with(optim::Optimizer& optimizer, const Tensor& p, double gradient) {
  p.mutable_grad() = full(p.sizes(), gradient, p.dtype());
  optimizer.step();
}

}  // namespace halftape::testing
