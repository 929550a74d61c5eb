// The base of all optimizers: parameter groups, options, state, zero_grad. Spelled as LibTorch's
// torch::optim.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "halftape/autograd/tensor.h"
#include "halftape/autograd/zero_grad.h"
#include "halftape/core/contract/step_control.h"
#include "halftape/nn/ordered_dict.h"
#include "halftape/optim/options.h"

namespace halftape::optim {

/// Parameters that share options.
class OptimizerParamGroup {
 public:
  OptimizerParamGroup(std::vector<Tensor> params);  // NOLINT: as LibTorch
  OptimizerParamGroup(std::vector<Tensor> params, std::unique_ptr<OptimizerOptions> options);
  /// Under names, so that the state can be saved by them: AdamW({model->named_parameters()}, …).
  OptimizerParamGroup(const OrderedDict<std::string, Tensor>& params,  // NOLINT: as the one above
                      std::unique_ptr<OptimizerOptions> options = nullptr);
  ~OptimizerParamGroup();
  OptimizerParamGroup(const OptimizerParamGroup& other);
  OptimizerParamGroup(OptimizerParamGroup&&) noexcept;
  OptimizerParamGroup& operator=(OptimizerParamGroup other);

  bool has_options() const { return options_ != nullptr; }
  OptimizerOptions& options() { return *options_; }
  const OptimizerOptions& options() const { return *options_; }
  void set_options(std::unique_ptr<OptimizerOptions> options);
  std::vector<Tensor>& params() { return params_; }
  const std::vector<Tensor>& params() const { return params_; }
  /// Of params(), in their order; empty where none were given.
  const std::vector<std::string>& names() const { return names_; }

  /// The learning rate before any schedule: set by the first schedule that is made.
  std::optional<double> initial_lr;

 private:
  std::vector<Tensor> params_;
  std::vector<std::string> names_;
  std::unique_ptr<OptimizerOptions> options_;
};

/// What an optimizer remembers of one parameter, by name ("exp_avg", "step", …). Copied by a
/// state_dict.
using ParamState = std::map<std::string, Array, std::less<>>;

/// Everything the next step depends on: per group the options, per parameter (group by group, in
/// order) the state.
struct OptimizerState {
  std::vector<std::map<std::string, double>> groups;
  std::vector<ParamState> state;
};

/// The same by name, for a program that has its parameters in another order.
struct NamedOptimizerState {
  struct Parameter {
    size_t group;
    ParamState state;
  };
  std::vector<std::map<std::string, double>> groups;
  std::map<std::string, Parameter> parameters;
};

class FlatRegion;
class OptimizerParamState;
class OptimizerStateView;
struct StateEntry;

/// All parameters, group by group.
std::vector<Tensor> parameters_of(const std::vector<OptimizerParamGroup>& groups);

class Optimizer {
 public:
  using LossClosure = std::function<Tensor()>;

  Optimizer(const std::vector<OptimizerParamGroup>& groups,
            std::unique_ptr<OptimizerOptions> defaults);
  virtual ~Optimizer();
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  /// One update of every parameter that has a gradient. With a closure: calls it first (gradients
  /// on) and gives its value. Validates everything before the first byte changes; throws on
  /// gradients that a GradScaler has yet to unscale, and on sums of gradients of different scales.
  virtual Tensor step(LossClosure closure = nullptr);
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
  void zero_grad(bool set_to_none = zero_grad_sets_to_none());

  std::vector<OptimizerParamGroup>& param_groups() { return groups_; }
  const std::vector<OptimizerParamGroup>& param_groups() const { return groups_; }
  void add_param_group(const OptimizerParamGroup& group);
  /// All parameters, group by group.
  std::vector<Tensor> parameters() const;
  OptimizerOptions& defaults() { return *defaults_; }
  const OptimizerOptions& defaults() const { return *defaults_; }
  /// The state of one parameter, empty before its first step.
  const ParamState& state_of(const Tensor& parameter) const;
  /// The same as LibTorch has it: optim/state/param_state.h.
  OptimizerStateView state();
  const std::map<const halftape::detail::TensorImpl*, ParamState>& state() const { return state_; }

  /// Moves parameters into one buffer for each group, dtype and device, and with them all that is
  /// remembered of them; gradients and 16-bit copies will lie side by side, too. Steps compute the
  /// same bits as without. optim/state/flat_storage.h says what it is good for.
  ///
  /// Parameters remain the tensors that they are, contiguous from now on; plain pointers to their
  /// elements point to them no more. Call it before a Graph is captured, and again for parameters
  /// that were added, or were given other bytes by set_data() or their module's to(); what is in
  /// place stays there. Throws, changing nothing, when a parameter or its state shares bytes with
  /// another tensor (a view, a detach(), what a recorded graph saved), or is used by a Graph.
  std::vector<FlatRegion>& flatten();
  /// What flatten() made; empty before.
  std::vector<FlatRegion>& flat_regions() { return flat_; }

  // LibTorch's older words.
  /// How many parameters there are.
  size_t size() const;
  /// More parameters for the first group.
  void add_parameters(const std::vector<Tensor>& parameters);

  /// Deep copies; load throws, changing nothing, when groups, parameters, shapes or dtypes do not
  /// fit; the error lists every difference.
  OptimizerState state_dict() const;
  void load_state_dict(const OptimizerState& saved);
  /// The same by name. Throws where parameters have no names, or two have the same.
  NamedOptimizerState named_state_dict() const;
  void load_state_dict(const NamedOptimizerState& saved);

 protected:
  /// Updates the parameters of one group that have gradients. `params` all have defined gradients
  /// of their shape. Throws unless it, or step(), is overridden.
  virtual void update(const OptimizerOptions& options, const std::vector<Tensor>& params,
                      const StepControl& control);
  /// What a saved state must have under `key`; those of optim/state/param_storage.h, and moments.
  virtual StateEntry expected_state(const std::string& key, const Tensor& parameter,
                                    const std::map<std::string, double>& options) const;
  /// Throws unless the parameter's gradient, if there is one, may be used by this step.
  static void check_gradient(const Tensor& parameter, const StepControl& control = {});
  /// The mutable state of a parameter; made on first use.
  ParamState& state(const Tensor& parameter);

 private:
  friend class OptimizerStateView;
  void check_added(const std::vector<Tensor>& added) const;
  void check_movable(const std::vector<Tensor>& params) const;
  void run(const StepControl& control);
  const uint64_t id_;
  std::vector<OptimizerParamGroup> groups_;
  std::unique_ptr<OptimizerOptions> defaults_;
  std::map<const halftape::detail::TensorImpl*, ParamState> state_;
  std::vector<std::shared_ptr<OptimizerParamState>> shown_;  // what state() gave references to
  std::vector<FlatRegion> flat_;
};

/// LibTorch says that parameters(), size() and add_parameters() will be removed. They stay here,
/// and only a program that includes <torch/torch.h> is told what LibTorch would tell it.
void warn_of_old_interface(bool on);

}  // namespace halftape::optim
