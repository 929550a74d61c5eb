// L-BFGS: steps towards the minimum of the quadratic that the last gradients suggest. Values as
// PyTorch's.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "halftape/core/options.h"
#include "halftape/optim/optimizer.h"

namespace halftape::optim {

class LBFGSOptions : public OptimizerCloneableOptions<LBFGSOptions> {
 public:
  LBFGSOptions(double lr = 1) : lr_(lr) {}  // NOLINT: as LibTorch
  double get_lr() const override { return lr_; }
  void set_lr(double lr) override { lr_ = lr; }
  void validate() const override;
  std::map<std::string, double> to_map() const override;
  void from_map(const std::map<std::string, double>&) override;

  HALFTAPE_ARG(double, lr) = 1;
  HALFTAPE_ARG(int64_t, max_iter) = 20;                 // of one step()
  HALFTAPE_ARG(std::optional<int64_t>, max_eval) = {};  // of the closure; 5/4·max_iter if not given
  HALFTAPE_ARG(double, tolerance_grad) = 1e-7;          // ends when no |gradient| is larger,
  HALFTAPE_ARG(double, tolerance_change) = 1e-9;        // or no change of the loss or a parameter
  HALFTAPE_ARG(int64_t, history_size) = 100;
  HALFTAPE_ARG(std::optional<std::string>, line_search_fn) = {};  // "strong_wolfe", or none
};

/// Liu & Nocedal 1989, Math. Programming 45; line search: Nocedal & Wright 2006, algorithms 3.5
/// and 3.6, with cubic interpolation.
///
/// step() needs a closure that clears the gradients, computes the loss, calls backward() and gives
/// the loss; it is called several times, and each call is waited for. One parameter group. Vectors
/// of all parameters together are kept in float32, in float64 where a parameter is: 2·history_size
/// + 3 of them.
class LBFGS : public Optimizer {
 public:
  explicit LBFGS(const std::vector<OptimizerParamGroup>& groups,
                 const LBFGSOptions& defaults = LBFGSOptions());
  explicit LBFGS(std::vector<Tensor> params, const LBFGSOptions& defaults = LBFGSOptions())
      : LBFGS(std::vector<OptimizerParamGroup>{OptimizerParamGroup(std::move(params))}, defaults) {}

  using Optimizer::step;
  /// Gives the loss before the step. Throws without a closure. What the closure throws leaves
  /// parameters and state as they were.
  Tensor step(LossClosure closure = nullptr) override;

 protected:
  StateEntry expected_state(const std::string& key, const Tensor& parameter,
                            const std::map<std::string, double>& options) const override;

 private:
  const std::vector<Tensor>& params() const { return param_groups()[0].params(); }
  Dtype dtype() const;
  Tensor run(const LBFGSOptions& options, const LossClosure& call);
  Tensor gathered_gradient() const;
  void move(double t, const Tensor& d) const;
  std::vector<Tensor> positions() const;
  void set_positions(const std::vector<Tensor>& positions) const;
};

}  // namespace halftape::optim
