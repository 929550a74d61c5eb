// Custom ops: a forward and a backward function, as torch::autograd::Function.
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <variant>

#include "halftape/autograd/tape/grad_mode.h"
#include "halftape/autograd/tape/node.h"
#include "halftape/autograd/tape/policy.h"

namespace halftape::autograd {

using Variable = Tensor;
using variable_list = TensorList;
using IndexRange = std::pair<size_t, size_t>;

/// A value of AutogradContext::saved_data.
class SavedValue {
 public:
  SavedValue() = default;
  SavedValue(bool v) : value_(v) {}                      // NOLINT: assigned from plain values
  SavedValue(int64_t v) : value_(v) {}                   // NOLINT
  SavedValue(double v) : value_(v) {}                    // NOLINT
  SavedValue(std::string v) : value_(std::move(v)) {}    // NOLINT
  SavedValue(const char* v) : value_(std::string(v)) {}  // NOLINT
  SavedValue(Tensor v) : value_(std::move(v)) {}         // NOLINT
  SavedValue(TensorList v) : value_(std::move(v)) {}     // NOLINT
  template <class T>
  requires std::is_integral_v<T> SavedValue(T v) : SavedValue(static_cast<int64_t>(v)) {}  // NOLINT

  bool isBool() const { return std::holds_alternative<bool>(value_); }
  bool isInt() const { return std::holds_alternative<int64_t>(value_); }
  bool isDouble() const { return std::holds_alternative<double>(value_); }
  bool isString() const { return std::holds_alternative<std::string>(value_); }
  bool isTensor() const { return std::holds_alternative<Tensor>(value_); }
  bool isTensorList() const { return std::holds_alternative<TensorList>(value_); }
  /// These throw when the value is of another kind.
  bool toBool() const { return get<bool>("bool"); }
  int64_t toInt() const { return get<int64_t>("integer"); }
  double toDouble() const { return get<double>("double"); }
  const std::string& toStringRef() const { return get<std::string>("string"); }
  const Tensor& toTensor() const { return get<Tensor>("tensor"); }
  const TensorList& toTensorVector() const { return get<TensorList>("list of tensors"); }

 private:
  template <class T>
  const T& get(const char* kind) const {
    const T* v = std::get_if<T>(&value_);
    HALFTAPE_CHECK(v, "saved_data: the value is not a ", kind);
    return *v;
  }
  std::variant<std::monostate, bool, int64_t, double, std::string, Tensor, TensorList> value_;
};

class FunctionNode;

/// Values that forward() keeps for backward().
class AutogradContext {
 public:
  AutogradContext() = default;
  AutogradContext(const AutogradContext&) = delete;
  AutogradContext& operator=(const AutogradContext&) = delete;

  /// Values that are not tensors. Tensors belong in save_for_backward(), which notices in-place
  /// changes and makes no cycle of references.
  std::map<std::string, SavedValue> saved_data;

  /// Inputs and outputs of forward() that backward() needs. Undefined tensors stay undefined.
  void save_for_backward(variable_list tensors) { to_save_ = std::move(tensors); }
  /// In backward(): the saved tensors, with their history.
  variable_list get_saved_variables() const;
  /// Inputs that forward() changed in place; they must be returned.
  void mark_dirty(const variable_list& inputs) { dirty_ = inputs; }
  /// Outputs without a gradient.
  void mark_non_differentiable(const variable_list& outputs) { non_differentiable_ = outputs; }
  /// With false, gradients of unused outputs arrive undefined instead of zero. Those of undefined
  /// outputs always do.
  void set_materialize_grads(bool on) { materialize_ = on; }
  /// In backward(): true if this one of the tensors among forward()'s arguments wants a gradient.
  /// As in LibTorch only tensors are counted, those of lists one by one; in Python all arguments
  /// are.
  bool needs_input_grad(size_t tensor) const;
  /// True if any tensor of these ranges (first, one past the last) does.
  bool needs_input_grad(std::initializer_list<IndexRange> ranges) const;

  /// The dtype policy under which backward() runs; null for none (amp/function.h).
  std::shared_ptr<const DtypePolicy> policy_of_backward;

 private:
  friend class FunctionNode;
  variable_list to_save_, dirty_, non_differentiable_;
  std::vector<Saved> saved_;
  bool materialize_ = true;
  const FunctionNode* node_ = nullptr;
};

/// The node behind a Function: outputs and gradients as lists.
class FunctionNode : public Node {
 public:
  using Backward = variable_list (*)(AutogradContext*, variable_list);
  FunctionNode(const char* name, Backward backward) : Node(name), backward_(backward) {}
  Grads vjp(Grads g) override;

  AutogradContext context;  // what forward() saved for backward()
  // For each argument of forward(), and each tensor of a list: its index in `next`, or −1.
  std::vector<int> arguments;

  /// Gives the outputs of forward() their history. `inputs`: the tensors among its arguments.
  variable_list finish(variable_list outputs, const variable_list& inputs);

 private:
  friend class AutogradContext;
  void release() override { context.saved_.clear(); }
  Backward backward_;
  std::vector<bool> given_;  // which outputs of forward() are defined
};

/// struct Twice : Function<Twice> {
///   static Tensor forward(AutogradContext* ctx, Tensor x, double factor);
///   static variable_list backward(AutogradContext* ctx, variable_list grad_outputs);
/// };
/// Tensor y = Twice::apply(x, 2.0);
///
/// forward() runs unrecorded. It returns a Tensor or a variable_list, and so does apply(). A
/// view among them, as which an input counts that is returned unchanged, may not be written in
/// place, nor used for more gradients once its base was. backward() returns one gradient for each
/// argument of forward(), undefined for arguments that are no tensors or need none. Written in
/// Tensor ops, it can itself be differentiated.
template <class T>
struct Function {
  /// Runs T::forward(), recorded with T::backward() as its rule.
  template <class... Args>
  static auto apply(Args&&... args) {
    // Not a list of braces: the node must know its arguments before forward() runs.
    Ref<FunctionNode> node(new FunctionNode(op_name(), &T::backward));  // NOLINT: counted
    variable_list inputs;
    (collect(*node, inputs, args), ...);
    using Result = decltype(T::forward(&node->context, args...));
    Result result = [&] {
      const NoGradGuard unrecorded;
      return T::forward(&node->context, std::forward<Args>(args)...);
    }();
    if constexpr (std::is_base_of_v<Tensor, Result>)
      return node->finish({std::move(result)}, inputs)[0];
    else
      return node->finish(std::move(result), inputs);
  }

 private:
  static const char* op_name() {
    if constexpr (requires { T::name; })
      return T::name;
    else
      return "Function";
  }
  template <class A>
  static void collect(FunctionNode& node, variable_list& inputs, const A& argument) {
    if constexpr (std::is_convertible_v<const A&, const Tensor&>) {
      node.arguments.push_back(static_cast<int>(inputs.size()));
      inputs.push_back(argument);
    } else if constexpr (std::is_same_v<A, std::optional<Tensor>>) {
      collect(node, inputs, argument.value_or(Tensor()));
    } else if constexpr (std::is_same_v<A, TensorList>) {
      for (const Tensor& t : argument) collect(node, inputs, t);
    } else {
      node.arguments.push_back(-1);
    }
  }
};

}  // namespace halftape::autograd
