// The base of all optimizers: parameter groups, options, state, zero_grad. Spelled as LibTorch's
// torch::optim.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "halftape/autograd/tensor.h"
#include "halftape/core/backend.h"

namespace halftape::optim {

/// Options of one parameter group. Every optimizer has a learning rate; schedulers and users set it
/// here.
class OptimizerOptions {
 public:
  virtual ~OptimizerOptions() = default;
  virtual std::unique_ptr<OptimizerOptions> clone() const = 0;
  virtual double get_lr() const = 0;
  virtual void set_lr(double lr) = 0;
  /// Throws when a value makes no sense, naming it and its range.
  virtual void validate() const = 0;
  /// The values that a resumed run depends on, by name.
  virtual std::map<std::string, double> to_map() const = 0;
  virtual void from_map(const std::map<std::string, double>&) = 0;
};

/// Parameters that share options.
class OptimizerParamGroup {
 public:
  OptimizerParamGroup(std::vector<Tensor> params)
      : params_(std::move(params)) {}  // NOLINT: as LibTorch
  OptimizerParamGroup(std::vector<Tensor> params, std::unique_ptr<OptimizerOptions> options)
      : params_(std::move(params)), options_(std::move(options)) {}
  OptimizerParamGroup(const OptimizerParamGroup& other);
  OptimizerParamGroup(OptimizerParamGroup&&) = default;
  OptimizerParamGroup& operator=(OptimizerParamGroup other);

  bool has_options() const { return options_ != nullptr; }
  OptimizerOptions& options() { return *options_; }
  const OptimizerOptions& options() const { return *options_; }
  void set_options(std::unique_ptr<OptimizerOptions> options) { options_ = std::move(options); }
  std::vector<Tensor>& params() { return params_; }
  const std::vector<Tensor>& params() const { return params_; }

 private:
  std::vector<Tensor> params_;
  std::unique_ptr<OptimizerOptions> options_;
};

/// What an optimizer remembers of one parameter, by name ("exp_avg", "step", …). Copied by a
/// state_dict.
using ParamState = std::map<std::string, Array>;

/// Everything the next step depends on: per group the options, per parameter (group by group, in
/// order) the state.
struct OptimizerState {
  std::vector<std::map<std::string, double>> groups;
  std::vector<ParamState> state;
};

class Optimizer {
 public:
  using LossClosure = std::function<Tensor()>;

  Optimizer(const std::vector<OptimizerParamGroup>& groups,
            std::unique_ptr<OptimizerOptions> defaults);
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  /// One update of every parameter that has a gradient. With a closure: calls it first (gradients
  /// on) and gives its value. Validates everything before the first byte changes; throws on
  /// gradients that a GradScaler has yet to unscale, and on sums of gradients of different scales.
  Tensor step(const LossClosure& closure = nullptr);
  /// The same, decided on the device: control.found_inf non-zero leaves parameters and state bit
  /// for bit as they are; control.inv_scale multiplies the gradients as they are read. Throws
  /// unless supports_control().
  void step(const StepControl& control);
  /// Does update() honour StepControl? Ours do and say so; for one that does not, a GradScaler
  /// unscales the gradients and waits for the verdict.
  virtual bool supports_control() const { return false; }

  /// By what it is known to those who remember it, while it lives and after: a number that no other
  /// optimizer of the process has or will have. An address is soon another one's.
  uint64_t id() const { return id_; }

  /// Forgets all gradients, or fills them with zeros.
  void zero_grad(bool set_to_none = true);

  std::vector<OptimizerParamGroup>& param_groups() { return groups_; }
  const std::vector<OptimizerParamGroup>& param_groups() const { return groups_; }
  void add_param_group(const OptimizerParamGroup& group);
  /// All parameters, group by group.
  std::vector<Tensor> parameters() const;
  OptimizerOptions& defaults() { return *defaults_; }
  /// The state of one parameter, empty before its first step.
  const ParamState& state_of(const Tensor& parameter) const;

  /// Deep copies; load throws, changing nothing, when groups, parameters, shapes or dtypes do not
  /// fit.
  OptimizerState state_dict() const;
  void load_state_dict(const OptimizerState& saved);

 protected:
  /// Updates the parameters of one group that have gradients. `params` all have defined gradients
  /// of their shape.
  virtual void update(const OptimizerOptions& options, const std::vector<Tensor>& params,
                      const StepControl& control) = 0;
  /// The mutable state of a parameter; made on first use.
  ParamState& state(const Tensor& parameter);

 private:
  void run(const StepControl& control);
  const uint64_t id_;
  std::vector<OptimizerParamGroup> groups_;
  std::unique_ptr<OptimizerOptions> defaults_;
  std::map<const detail::TensorImpl*, ParamState> state_;
};

}  // namespace halftape::optim
