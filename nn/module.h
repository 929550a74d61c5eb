// The base of all modules: named parameters, buffers and submodules. Spelled as LibTorch's
// torch::nn::Module.
#pragma once
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <type_traits>
#include <vector>

#include "halftape/autograd/tensor.h"
#include "halftape/nn/ordered_dict.h"

namespace halftape::nn {

class Module : public std::enable_shared_from_this<Module> {
 public:
  Module() = default;
  explicit Module(std::string name) : name_(std::move(name)) {}
  virtual ~Module() = default;

  /// The name given to the constructor; otherwise "Module" or what the class says.
  const std::string& name() const { return name_; }

  /// All parameters of this module and, with `recurse`, of its submodules, in order of
  /// registration.
  std::vector<Tensor> parameters(bool recurse = true) const;
  /// The same with dotted names: "0.weight".
  OrderedDict<std::string, Tensor> named_parameters(bool recurse = true) const;
  std::vector<Tensor> buffers(bool recurse = true) const;
  OrderedDict<std::string, Tensor> named_buffers(bool recurse = true) const;
  std::vector<std::shared_ptr<Module>> children() const { return children_.values(); }
  const OrderedDict<std::string, std::shared_ptr<Module>>& named_children() const {
    return children_;
  }
  /// All submodules, depth first, without this one.
  OrderedDict<std::string, std::shared_ptr<Module>> named_modules() const;

  /// Training or evaluation, for this module and all below it. Dropout is active in training only.
  virtual void train(bool on = true);
  void eval() { train(false); }
  bool is_training() const { return training_; }

  /// Moves or converts parameters and buffers in place: handles to them stay valid. Only
  /// floating-point tensors change dtype. Gradients go along.
  void to(Device device);
  void to(Dtype dtype);
  void to(Device device, Dtype dtype);
  void zero_grad(bool set_to_none = true);

  /// Another module of the same class with values of its own, on `device` if one is given. Throws
  /// for a class that does not say how.
  virtual std::shared_ptr<Module> clone(const std::optional<Device>& device = {}) const;

  /// Names may be anything without a dot; each once. Gives back what was registered.
  Tensor& register_parameter(const std::string& name, Tensor tensor, bool requires_grad = true);
  Tensor& register_buffer(const std::string& name, Tensor tensor);
  template <class M>
  requires std::is_base_of_v<Module, M> std::shared_ptr<M> register_module(
      const std::string& name, std::shared_ptr<M> module) {
    insert_module(name, module);
    return module;
  }
  template <class Holder>
  requires requires(const Holder& h) {
    typename Holder::ContainedType;
    h.ptr();
  }
  Holder register_module(const std::string& name, Holder holder) {
    insert_module(name, holder.ptr());
    return holder;
  }

  /// f(module) for this module and all below it.
  template <class F>
  void apply(const F& f) {
    f(*this);
    for (const auto& [key, child] : pairs()) child->apply(f);
  }

  /// One line: "halftape::nn::Linear(in_features=4, out_features=2, bias=true)".
  virtual void pretty_print(std::ostream& out) const;

 private:
  friend std::ostream& operator<<(std::ostream& out, const Module& module);
  void insert_module(const std::string& name, std::shared_ptr<Module> module);
  std::vector<std::pair<std::string, std::shared_ptr<Module>>> pairs() const;
  template <class F>
  void for_each_tensor(const F& f);
  void print_tree(std::ostream& out, const std::string& indent) const;

  std::string name_ = "Module";
  bool training_ = true;
  OrderedDict<std::string, Tensor> parameters_;
  OrderedDict<std::string, Tensor> buffers_;
  OrderedDict<std::string, std::shared_ptr<Module>> children_;
};

/// The module and everything below it, indented.
std::ostream& operator<<(std::ostream& out, const Module& module);

/// A shared handle to a module that reads like the module: made by HALFTAPE_MODULE(Linear) from
/// LinearImpl.
template <class Contained>
class ModuleHolder {
 public:
  using ContainedType = Contained;
  ModuleHolder() : impl_(std::make_shared<Contained>()) {}
  ModuleHolder(std::nullptr_t) {}  // NOLINT: as LibTorch, an empty holder
  ModuleHolder(std::shared_ptr<Contained> module)
      : impl_(std::move(module)) {}  // NOLINT: as LibTorch
  template <class Head, class... Tail>
  requires(!std::is_base_of_v<ModuleHolder, std::decay_t<Head>> &&
           std::is_constructible_v<Contained, Head, Tail...>) explicit ModuleHolder(Head&& head,
                                                                                    Tail&&... tail)
      : impl_(std::make_shared<Contained>(std::forward<Head>(head), std::forward<Tail>(tail)...)) {}

  explicit operator bool() const { return impl_ != nullptr; }
  bool is_empty() const { return !impl_; }
  Contained* operator->() const { return get(); }
  Contained& operator*() const { return *get(); }
  const std::shared_ptr<Contained>& ptr() const {
    get();
    return impl_;
  }
  Contained* get() const {
    HALFTAPE_CHECK(impl_,
                   "an empty module holder was used (made from nullptr and not assigned since)");
    return impl_.get();
  }
  template <class... Args>
  auto operator()(Args&&... args) const {
    return get()->forward(std::forward<Args>(args)...);
  }

 private:
  std::shared_ptr<Contained> impl_;
};

template <class Contained>
std::ostream& operator<<(std::ostream& out, const ModuleHolder<Contained>& holder) {
  return out << *holder;
}

/// Declares class Name, a holder of NameImpl.
#define HALFTAPE_MODULE(Name)                                     \
  class Name : public ::halftape::nn::ModuleHolder<Name##Impl> {  \
   public:                                                        \
    using ::halftape::nn::ModuleHolder<Name##Impl>::ModuleHolder; \
  }

}  // namespace halftape::nn
