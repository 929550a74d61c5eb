// The base of all optimizers: parameter groups, options, state, zero_grad. Spelled as LibTorch's
// torch::optim.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

#include "halftape/autograd/tape/grad_mode.h"
#include "halftape/autograd/tape/grad_tag.h"
#include "halftape/autograd/tensor.h"
#include "halftape/core/contract/step_control.h"
#include "halftape/nn/ordered_dict.h"
#include "halftape/optim/state/state_fields.h"

namespace halftape::optim {

/// Options of one parameter group. Schedulers and users set the learning rate here. A class of
/// options overrides clone() and fields(). Without fields(), it overrides get_lr(), set_lr(),
/// to_map() and from_map(), or they throw.
class OptimizerOptions {
 public:
  OptimizerOptions() = default;
  OptimizerOptions(const OptimizerOptions&) = default;
  OptimizerOptions& operator=(const OptimizerOptions&) = default;
  virtual ~OptimizerOptions() = default;
  virtual std::unique_ptr<OptimizerOptions> clone() const;
  /// Takes over all values of options of its own class. False, with nothing done, for others, and
  /// for classes that cannot.
  virtual bool assign(const OptimizerOptions&) { return false; }
  virtual double get_lr() const;
  virtual void set_lr(double lr);
  /// What the class's constructor makes without arguments; null if it cannot.
  virtual std::unique_ptr<OptimizerOptions> unset() const { return nullptr; }
  /// Takes from `defaults` the values that are as unset() has them.
  void inherit(const OptimizerOptions& defaults);
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
  std::unique_ptr<OptimizerOptions> unset() const override {
    if constexpr (std::is_default_constructible_v<Derived>)
      if (typeid(*this) == typeid(Derived)) return std::make_unique<Derived>();
    return nullptr;  // a class below Derived may begin with other values
  }
  std::unique_ptr<OptimizerOptions> clone() const override {
    return std::unique_ptr<OptimizerOptions>(new Derived(static_cast<const Derived&>(*this)));
  }
  bool assign(const OptimizerOptions& other) override {
    if (typeid(*this) != typeid(Derived) || typeid(other) != typeid(Derived)) return false;
    static_cast<Derived&>(*this) = static_cast<const Derived&>(other);
    return true;
  }
};

/// Parameters that share options.
class OptimizerParamGroup {
 public:
  OptimizerParamGroup(std::vector<Tensor> params,  // NOLINT: as LibTorch
                      std::unique_ptr<OptimizerOptions> options = nullptr)
      : params_(std::move(params)), options_(std::move(options)) {}
  /// Under names, so that the state can be saved by them: AdamW({model->named_parameters()}, …).
  OptimizerParamGroup(const OrderedDict<std::string, Tensor>& params,  // NOLINT: as the one above
                      std::unique_ptr<OptimizerOptions> options = nullptr)
      : params_(params.values()), names_(params.keys()), options_(std::move(options)) {}
  OptimizerParamGroup(const OptimizerParamGroup& other);
  OptimizerParamGroup(OptimizerParamGroup&&) noexcept = default;
  OptimizerParamGroup& operator=(const OptimizerParamGroup& other) {
    return *this = OptimizerParamGroup(other);
  }
  OptimizerParamGroup& operator=(OptimizerParamGroup&&) noexcept = default;

  bool has_options() const { return options_ != nullptr; }
  /// Throws when the group has none.
  OptimizerOptions& options() {
    return const_cast<OptimizerOptions&>(std::as_const(*this).options());
  }
  const OptimizerOptions& options() const {
    HALFTAPE_CHECK(options_,
                   "optimizer: a parameter group has no options; give it some, or add it "
                   "to an optimizer, which gives it the defaults");
    return *options_;
  }
  void set_options(std::unique_ptr<OptimizerOptions> options) { options_ = std::move(options); }
  /// The same into the object that options() has returned references to, if their classes are one.
  void assign_options(std::unique_ptr<OptimizerOptions> options) {
    if (!options_ || !options_->assign(*options)) set_options(std::move(options));
  }
  std::vector<Tensor>& params() { return params_; }
  const std::vector<Tensor>& params() const { return params_; }
  /// The names of params(), in their order; empty if none were given.
  const std::vector<std::string>& names() const { return names_; }

  /// The options by name and, once there is one, "initial_lr": what is saved of a group.
  std::map<std::string, double> to_map() const;

  /// The learning rate before any schedule; the first schedule sets it.
  std::optional<double> initial_lr;

 private:
  std::vector<Tensor> params_;
  std::vector<std::string> names_;
  std::unique_ptr<OptimizerOptions> options_;
};

/// The state that an optimizer keeps for one parameter, by name ("exp_avg", "step", …).
using ParamState = std::map<std::string, Array, std::less<>>;

/// Everything that the next step depends on: the options of every group, and the state of every
/// parameter, group by group.
struct OptimizerState {
  std::vector<std::map<std::string, double>> groups;  // of each group: to_map()
  std::vector<ParamState> state;
  std::vector<size_t> group_sizes = {};  // of each group: its parameters; empty: not known
  bool ordered = false;  // it fits no other order of the parameters, as that of LBFGS
};

/// OptimizerState by name, for a program that has its parameters in another order. An ordered one
/// is refused there.
struct NamedOptimizerState {
  /// What is kept of one parameter.
  struct Parameter {
    size_t group;
    ParamState state;                  // as in OptimizerState
    std::optional<size_t> place = {};  // among all parameters, if the state is ordered
  };
  std::vector<std::map<std::string, double>> groups;  // of each group: to_map()
  std::map<std::string, Parameter> parameters;
};

class FlatRegion;
class Mismatches;
class OptimizerParamState;
class OptimizerStateView;
struct StateEntry;

/// All parameters, group by group.
std::vector<Tensor> parameters_of(const std::vector<OptimizerParamGroup>& groups);

/// The base of all optimizers: groups of parameters with options each, and what is kept of every
/// parameter between steps.
class Optimizer {
 public:
  using LossClosure = std::function<Tensor()>;

  Optimizer(const std::vector<OptimizerParamGroup>& groups,
            std::unique_ptr<OptimizerOptions> defaults);
  virtual ~Optimizer();
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  /// One update of every parameter that has a gradient. Calls the closure first, if there is one,
  /// with gradients enabled, and returns its value. Checks everything before the first byte
  /// changes; throws on gradients that a GradScaler has yet to unscale, and on sums of gradients of
  /// different scales. Where the GradScaler that unscaled the gradients found one of them, or the
  /// loss, not finite: throws on the CPU; on a GPU, where the host does not know, the device skips
  /// the step.
  virtual Tensor step(LossClosure closure = nullptr);
  /// A step that the device decides on: with a non-zero control.found_inf, parameters and state
  /// keep all their bits; control.inv_scale multiplies the gradients as they are read. Throws
  /// unless supports_control().
  void step(const StepControl& control);
  /// True if update() honours StepControl, as that of every RuleOptimizer does. For others, a
  /// GradScaler unscales the gradients and waits for the device to learn whether to step.
  virtual bool supports_control() const { return false; }
  /// True if step() throws without a closure, as that of LBFGS does.
  virtual bool needs_closure() const { return false; }
  /// True if step() sends messages to other processes, as that of a ZeroRedundancyOptimizer does.
  virtual bool is_collective() const { return false; }

  /// A number that no other optimizer of the process has or will have. An address may be reused.
  uint64_t id() const { return id_; }
  /// Expires with the optimizer: for objects that keep a plain pointer to it.
  std::weak_ptr<const void> lifetime() const { return alive_; }

  /// Clears all gradients, or fills them with zeros.
  void zero_grad(bool set_to_none = zero_grad_sets_to_none());

  std::vector<OptimizerParamGroup>& param_groups() { return groups_; }
  const std::vector<OptimizerParamGroup>& param_groups() const { return groups_; }
  /// Adds a group; one without options gets the defaults. Of its options, those that are as the
  /// constructor of their class makes them are taken from the defaults, as in LibTorch: after
  /// SGD(…, SGDOptions(0.1).momentum(0.9)), the group of SGDOptions(0.5) has momentum 0.9, and that
  /// of SGDOptions(0.5).momentum(0) has, too. To give a group the constructor's own value, set it
  /// in the options of param_groups(). A class of one's own inherits if it derives from
  /// OptimizerCloneableOptions, can be made without arguments and names its fields().
  ///
  /// Throws for options of another class, and for a parameter that is no leaf, or that another
  /// group has.
  virtual void add_param_group(const OptimizerParamGroup& group);
  /// All parameters, group by group.
  std::vector<Tensor> parameters() const;
  OptimizerOptions& defaults() { return *defaults_; }
  const OptimizerOptions& defaults() const { return *defaults_; }
  /// The state of one parameter, empty before its first step.
  const ParamState& state_of(const Tensor& parameter) const;
  /// All states, with LibTorch's access to them: optim/state/param_state.h.
  OptimizerStateView state();
  const std::map<const halftape::detail::TensorImpl*, ParamState>& state() const { return state_; }

  /// Moves parameters into one buffer for each group, dtype and device, and with them all that is
  /// remembered of them; gradients and 16-bit copies will lie side by side, too. Steps compute the
  /// same bits as without. optim/state/flat_storage.h says what it is good for.
  ///
  /// Parameters remain the same tensors and become contiguous; plain pointers to their elements
  /// become invalid. Call it before a Graph is captured, and again after parameters were added, or
  /// given other bytes by set_data() or their module's to(); the others stay in place. Throws,
  /// changing nothing, when a parameter or its state shares bytes with another tensor (a view, a
  /// detach(), one that a recorded graph saved), or is used by a Graph.
  std::vector<FlatRegion>& flatten();
  /// What flatten() made; empty before.
  std::vector<FlatRegion>& flat_regions() { return flat_; }

  // LibTorch's older words.
  /// The number of parameters.
  size_t size() const;
  /// Adds parameters to the first group.
  void add_parameters(const std::vector<Tensor>& parameters);

  /// state_dict() makes deep copies. Loading throws, changing nothing, when groups, options,
  /// parameters, names, shapes or dtypes do not fit; the error lists all mismatches.
  OptimizerState state_dict() const;
  /// Takes a state_dict() of an optimizer with the same groups of parameters.
  void load_state_dict(const OptimizerState& saved);
  /// Writes state_dict() into a serialize::OutputArchive.
  template <class Archive>
  void save(Archive& archive) const {
    write(archive, *this);
  }
  /// Takes it from a serialize::InputArchive, with load_state_dict().
  template <class Archive>
  void load(Archive& archive) {
    read(archive, *this);
  }
  /// State by parameter names. Throws when a parameter has no name, or two have the same.
  NamedOptimizerState named_state_dict() const;
  /// The same by the names of the parameters.
  void load_state_dict(const NamedOptimizerState& saved);

 protected:
  /// Updates `params`: those of one group that have gradients, each of its parameter's shape.
  /// Throws unless it, or step(), is overridden.
  virtual void update(const OptimizerOptions& options, const std::vector<Tensor>& params,
                      const StepControl& control);
  /// One step, after all checks: calls update() for each group. ready[i]: the parameters of group i
  /// that have gradients.
  virtual void update_groups(const std::vector<std::vector<Tensor>>& ready,
                             const StepControl& control);
  /// Whether the state that is kept fits no other order of the parameters.
  virtual bool state_is_ordered() const { return false; }
  /// Throws if the state is not all here, for state_dict().
  virtual void check_whole() const {}
  /// Called when a saved state has taken the place of the former one.
  virtual void state_was_loaded() noexcept {}
  /// Whether step() can use gradients of which each process has a part: autograd/tape/grad_tag.h.
  virtual GradParts takes_parts() const { return GradParts::Refused; }
  /// The expected form of the saved array `key`. By default: a moment, "step", or an array of
  /// optim/state/param_storage.h.
  virtual StateEntry expected_state(const std::string& key, const Tensor& parameter,
                                    const std::map<std::string, double>& options) const;
  /// Adds to `mismatches` what the saved state of a parameter lacks, and what does not belong
  /// there. `of` is the end of its name in errors: " of parameter 3".
  virtual void check_names(const ParamState& saved, const Tensor& parameter,
                           const OptimizerOptions& options, const std::string& of,
                           Mismatches& mismatches) const;
  /// Throws when a group has options of a class that update() cannot read.
  virtual void check_options(const OptimizerOptions&) const {}
  /// Throws when update() could not use what is kept of these parameters, which are those of one
  /// group that have gradients. Called for all groups before the first update().
  virtual void check_state(const OptimizerOptions&, const std::vector<Tensor>&) const {}
  /// Draws what the first update() of these parameters would draw from the default generator. An
  /// AsyncOptimizer calls it in its caller's thread, since update() runs beside the caller's draws.
  /// The parameters are copies of the originals.
  virtual void draw_keys(const OptimizerOptions&, const std::vector<Tensor>& /*parameters*/,
                         const std::vector<Tensor>& /*originals*/) {}
  /// Throws if the parameter has a gradient that this step must not use.
  static void check_gradient(const Tensor& parameter, const StepControl& control = {},
                             GradParts parts = GradParts::Refused);
  /// The state of a parameter, made on first use.
  ParamState& state(const Tensor& parameter);

 private:
  friend class AsyncOptimizer;
  friend class OptimizerStateView;
  void check_added(const std::vector<Tensor>& added) const;
  void check_movable(const std::vector<Tensor>& params) const;
  void run(const StepControl& control);
  /// called(i) names parameter i in errors; `mismatches` holds what is wrong already.
  void load(const OptimizerState& saved, const std::function<std::string(size_t)>& called,
            Mismatches& mismatches);
  struct Loaded;
  void put_in_place(Loaded& loaded);
  const uint64_t id_;
  std::shared_ptr<const void> alive_ = std::make_shared<char>();
  std::vector<OptimizerParamGroup> groups_;
  std::unique_ptr<OptimizerOptions> defaults_;
  std::map<const halftape::detail::TensorImpl*, ParamState> state_;
  std::vector<Tensor> held_;  // those of state_: no other tensor gets the address of one
  std::vector<std::shared_ptr<OptimizerParamState>> shown_;  // the views that state() has returned
  std::vector<FlatRegion> flat_;
};

/// Throws if a GradScaler found this gradient's list, or its loss, not finite. Waits for the
/// device.
void check_verdict(const Tensor& gradient);

/// Turns on LibTorch's warnings that parameters(), size() and add_parameters() will be removed;
/// here they stay. <torch/torch.h> turns them on.
void warn_of_old_interface(bool on);

}  // namespace halftape::optim
