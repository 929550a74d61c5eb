// L-BFGS: steps towards the minimum of a quadratic model, built from the last gradients. Values as
// PyTorch's.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "halftape/core/options.h"
#include "halftape/optim/optimizer.h"

namespace halftape::optim {

struct LBFGSOptions : OptimizerCloneableOptions<LBFGSOptions> {
  LBFGSOptions(double lr = 1) : lr_(lr) {}  // NOLINT: as LibTorch
  void validate() const override;

  HALFTAPE_ARG(double, lr) = 1;
  HALFTAPE_ARG(int64_t, max_iter) = 20;                 // in one step()
  HALFTAPE_ARG(std::optional<int64_t>, max_eval) = {};  // closure calls; none: 5/4·max_iter
  HALFTAPE_ARG(double, tolerance_grad) = 1e-7;    // ends when no |gradient| element is larger,
  HALFTAPE_ARG(double, tolerance_change) = 1e-9;  // or no change of the loss or of a parameter
  HALFTAPE_ARG(int64_t, history_size) = 100;
  HALFTAPE_ARG(std::optional<std::string>, line_search_fn) = {};  // "strong_wolfe", or none

 protected:
  void fields(StateFields& fields) override;
};

/// Liu & Nocedal 1989, Math. Programming 45; line search: Nocedal & Wright 2006, algorithms 3.5
/// and 3.6, with cubic interpolation.
///
/// step() needs a closure that clears the gradients, computes the loss, calls backward() and
/// returns the loss. It calls the closure several times, and waits for each loss. One parameter
/// group. Keeps 2·history_size + 2 vectors as long as all parameters together, in float32, or in
/// float64 if a parameter is float64; a step needs a few more.
class LBFGS : public Optimizer {
 public:
  explicit LBFGS(const std::vector<OptimizerParamGroup>& groups,
                 const LBFGSOptions& defaults = LBFGSOptions());
  explicit LBFGS(std::vector<Tensor> params, const LBFGSOptions& defaults = LBFGSOptions())
      : LBFGS(std::vector<OptimizerParamGroup>{OptimizerParamGroup(std::move(params))}, defaults) {}

  bool needs_closure() const override { return true; }
  /// Throws: all parameters are in one group.
  void add_param_group(const OptimizerParamGroup& group) override;
  using Optimizer::step;
  /// Returns the loss before the step. Throws without a closure. An exception of the closure leaves
  /// parameters and state unchanged.
  Tensor step(LossClosure closure = nullptr) override;

 protected:
  // Its vectors are of all parameters, one after the other.
  bool state_is_ordered() const override;
  StateEntry expected_state(const std::string& key, const Tensor& parameter,
                            const std::map<std::string, double>& options) const override;
  void check_names(const ParamState& saved, const Tensor& parameter,
                   const OptimizerOptions& options, const std::string& of,
                   Mismatches& mismatches) const override;
  void check_options(const OptimizerOptions& options) const override;

 private:
  const std::vector<Tensor>& params() const { return param_groups()[0].params(); }
  Tensor run(const LBFGSOptions& options, const LossClosure& call);
};

}  // namespace halftape::optim
