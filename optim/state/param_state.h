// The state that an optimizer keeps for one parameter, in LibTorch's words:
//
//     auto& state = static_cast<AdamParamState&>(*optimizer.state()[p.unsafeGetTensorImpl()]);
//     state.exp_avg();
//
// It is a view: the optimizer owns the values under the same names, and state_dict() saves them.
#pragma once
#include <concepts>
#include <memory>
#include <string>
#include <typeinfo>

#include "halftape/optim/optimizer.h"

namespace halftape::optim {

/// The base of the views, which live as long as the optimizer.
class OptimizerParamState {
 public:
  virtual ~OptimizerParamState() = default;

 protected:
  /// Undefined, or 0, before the first step makes it. Reading a number waits for the device.
  Tensor tensor(const char* key) const;
  /// A count of this name; 0 before the first step. Waits for the device.
  double number(const char* key) const;
  void set(const char* key, const Tensor& value);
  /// As an array of one element.
  void set(const char* key, double value, Dtype dtype);

 private:
  friend class OptimizerStateView;
  ParamState* values_ = nullptr;
  Device device_;
};

/// optimizer.state(): looks up a parameter by the address of its TensorImpl, or by that address as
/// text, as in LibTorch 1.
class OptimizerStateView {
 public:
  explicit OptimizerStateView(Optimizer& optimizer) : optimizer_(&optimizer) {}

  /// One parameter's state; converts to any class of views.
  class Entry {
   public:
    const Entry& operator*() const { return *this; }
    template <std::derived_from<OptimizerParamState> View>
    operator View&() const {  // NOLINT: static_cast<AdamParamState&>(*entry)
      if (!shown(typeid(View))) show(std::make_shared<View>());
      return static_cast<View&>(*shown(typeid(View)));
    }

   private:
    friend class OptimizerStateView;
    Entry(Optimizer& optimizer, const Tensor& parameter)
        : optimizer_(&optimizer), parameter_(parameter) {}
    /// The view that was returned before; null for none.
    OptimizerParamState* shown(const std::type_info& view) const;
    void show(std::shared_ptr<OptimizerParamState> view) const;
    Optimizer* optimizer_;
    Tensor parameter_;
  };

  /// Throws when the optimizer has no such parameter.
  Entry at(const void* parameter) const;
  Entry at(const std::string& printed) const;
  Entry operator[](const void* parameter) const { return at(parameter); }
  Entry operator[](const std::string& printed) const { return at(printed); }
  /// The number of parameters that have a state.
  size_t size() const;

 private:
  template <class Matches>
  Entry find(const Matches& matches) const;
  Optimizer* optimizer_;
};

#define HALFTAPE_STATE_TENSOR(name)             \
  Tensor name() const { return tensor(#name); } \
  void name(const Tensor& value) { set(#name, value); }
#define HALFTAPE_STATE_COUNT(name, dtype)                              \
  int64_t name() const { return static_cast<int64_t>(number(#name)); } \
  void name(int64_t value) { set(#name, static_cast<double>(value), dtype); }

/// What SGD keeps of a parameter, under LibTorch's names.
struct SGDParamState : OptimizerParamState {
  HALFTAPE_STATE_TENSOR(momentum_buffer)
};
/// What Adam keeps.
struct AdamParamState : OptimizerParamState {
  HALFTAPE_STATE_COUNT(step, kFloat32)
  HALFTAPE_STATE_TENSOR(exp_avg)
  HALFTAPE_STATE_TENSOR(exp_avg_sq)
  HALFTAPE_STATE_TENSOR(max_exp_avg_sq)
};
using AdamWParamState = AdamParamState;
/// What Adagrad keeps.
struct AdagradParamState : OptimizerParamState {
  HALFTAPE_STATE_COUNT(step, kFloat32)
  HALFTAPE_STATE_TENSOR(sum)
};
/// What RMSprop keeps.
struct RMSpropParamState : OptimizerParamState {
  HALFTAPE_STATE_COUNT(step, kFloat32)
  HALFTAPE_STATE_TENSOR(square_avg)
  HALFTAPE_STATE_TENSOR(momentum_buffer)
  HALFTAPE_STATE_TENSOR(grad_avg)
};
/// LBFGS keeps one state for all parameters: that of the first.
struct LBFGSParamState : OptimizerParamState {
  HALFTAPE_STATE_COUNT(func_evals, kInt64)
  HALFTAPE_STATE_COUNT(n_iter, kInt64)
  HALFTAPE_STATE_TENSOR(d)
  HALFTAPE_STATE_TENSOR(H_diag)
  HALFTAPE_STATE_TENSOR(prev_flat_grad)
  double t() const { return number("t"); }
  double prev_loss() const { return number("prev_loss"); }
};

#undef HALFTAPE_STATE_TENSOR
#undef HALFTAPE_STATE_COUNT

}  // namespace halftape::optim
