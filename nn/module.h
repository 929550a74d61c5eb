// The base of all modules: named parameters, buffers and submodules; Cloneable, for modules that
// can make another of their kind. Spelled as in LibTorch's torch::nn.
#pragma once
#include <iterator>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <tuple>
#include <type_traits>
#include <typeinfo>
#include <vector>

#include "halftape/autograd/tape/grad_mode.h"
#include "halftape/autograd/tensor.h"
#include "halftape/core/place.h"
#include "halftape/nn/module_holder.h"
#include "halftape/nn/ordered_dict.h"

namespace halftape::nn {

class Module;

namespace detail {
/// The name of a type as it is written in a program.
std::string name_of(const std::type_info& type);
/// "prefix.name"; the name alone behind an empty prefix.
std::string joined(const std::string& prefix, const std::string& name);
template <class T>
concept Holder = requires(const T& holder) {
  typename T::ContainedType;
  holder.ptr();
};

/// Sees what forward() of each module gives, in one thread: the seam for summary().
class ResultWatcher {
 public:
  /// `again`: the same call, told once more by what called forward().
  virtual void gave(const Module& module, bool again, const std::vector<Tensor>& results) = 0;

 protected:
  ~ResultWatcher() = default;
};
/// This thread's; null: none.
extern thread_local constinit ResultWatcher* result_watcher;

/// Appends the tensors in a result of forward(): a tensor, or a tuple, list or box of them.
template <class T>
void collect_tensors(const T& value, std::vector<Tensor>& into) {
  if constexpr (std::is_convertible_v<const T&, Tensor>) {
    into.push_back(value);
  } else if constexpr (requires { std::tuple_size<T>::value; }) {
    std::apply([&](const auto&... part) { (collect_tensors(part, into), ...); }, value);
  } else if constexpr (std::is_same_v<T, std::vector<Tensor>>) {
    into.insert(into.end(), value.begin(), value.end());
  } else if constexpr (requires { value.template try_get<Tensor>(); }) {  // AnyValue
    if (const Tensor* tensor = value.template try_get<Tensor>()) into.push_back(*tensor);
  }
}

/// The elements of a container, copied: it may be the one to which they are added.
template <class Container>
auto elements_of(const Container& container) {
  std::vector<std::decay_t<decltype(*std::begin(container))>> all;
  for (const auto& element : container) all.push_back(element);
  return all;
}

/// The module that a holder holds; a module itself.
template <class M>
struct Contained {
  using Type = M;
};
template <Holder M>
struct Contained<M> {
  using Type = typename M::ContainedType;
};
}  // namespace detail

/// Copies share parameters, buffers and submodules; clone() makes others.
class Module : public std::enable_shared_from_this<Module> {
 public:
  Module() = default;
  explicit Module(std::string name) : name_(std::move(name)) {}
  virtual ~Module() = default;

  /// While it lives, the errors of this thread begin with the module's place in its model:
  /// "encoder.fc2 (Linear): linear: input …". The path starts below the top module and has the
  /// names under which modules were registered last; the top module itself is not named.
  ///
  /// forward() of the library's modules begins with one, and so do the calls model(x), AnyModule's
  /// and Sequential's. model->forward(x) of a class of your own does not: begin that forward() with
  /// `const PlaceScope scope(*this);` if errors of the ops that it calls itself shall name it, and
  /// end it with `return scope.result(y);` if summary() shall show what it gives. Errors of the
  /// modules in it name those in any case.
  class [[nodiscard]] PlaceScope {
   public:
    [[nodiscard]] explicit PlaceScope(const Module& module)
        : module_(module), before_(halftape::detail::place_at_work) {
      if (!module.place_.path.empty()) halftape::detail::place_at_work = &module.place_;
    }
    ~PlaceScope() { halftape::detail::place_at_work = before_; }
    PlaceScope(const PlaceScope&) = delete;
    PlaceScope& operator=(const PlaceScope&) = delete;

    /// Gives `value` back, and tells nn::summary() what the module's forward() returns.
    template <class T>
    T result(T value) const {
      if (detail::result_watcher) [[unlikely]] {
        std::vector<Tensor> tensors;
        detail::collect_tensors(value, tensors);
        detail::result_watcher->gave(module_, before_ == &module_.place_, tensors);
      }
      return value;
    }

   private:
    const Module& module_;
    const halftape::detail::Place* before_;
  };

  /// The name given to the constructor; otherwise that of the class: "halftape::nn::LinearImpl".
  std::string name() const { return name_ ? *name_ : detail::name_of(typeid(*this)); }
  /// The same without namespaces, arguments of templates and "Impl": "Linear".
  std::string kind() const;

  /// All parameters of this module and, with `recurse`, of its submodules, in order of
  /// registration; undefined ones are left out.
  std::vector<Tensor> parameters(bool recurse = true) const;
  /// The same with dotted names: "0.weight".
  OrderedDict<std::string, Tensor> named_parameters(bool recurse = true) const;
  /// Tensors that are saved and moved with the module but not trained.
  std::vector<Tensor> buffers(bool recurse = true) const;
  /// The same with dotted names.
  OrderedDict<std::string, Tensor> named_buffers(bool recurse = true) const;
  /// The submodules one level below.
  std::vector<std::shared_ptr<Module>> children() const { return children_.values(); }
  const OrderedDict<std::string, std::shared_ptr<Module>>& named_children() const {
    return children_;
  }
  /// All modules from this one down, each before those below it. With itself only if a shared_ptr
  /// owns it: throws otherwise.
  std::vector<std::shared_ptr<Module>> modules(bool include_self = true) const;
  /// The same with dotted names, which start with the prefix: this module's own.
  OrderedDict<std::string, std::shared_ptr<Module>> named_modules(
      const std::string& name_prefix = {}, bool include_self = true) const;

  /// Training or evaluation, for this module and all below it. Dropout is active in training only.
  virtual void train(bool on = true);
  void eval() { train(false); }
  bool is_training() const { return training_; }

  /// Moves or converts parameters and buffers in place: handles to them stay valid. Only
  /// floating-point tensors change dtype. Gradients go along. `non_blocking` as in Tensor::to.
  virtual void to(Device device, Dtype dtype, bool non_blocking = false);
  virtual void to(Dtype dtype, bool non_blocking = false);
  virtual void to(Device device, bool non_blocking = false);
  /// Drops the gradients, or fills them with 0.
  virtual void zero_grad(bool set_to_none = zero_grad_sets_to_none());

  /// A deep copy, on `device` if one is given. Throws unless the class derives from Cloneable or
  /// overrides this.
  virtual std::shared_ptr<Module> clone(const std::optional<Device>& device = {}) const;

  /// This module as an M, or as the module that holder M holds; null when it is not one.
  template <class M>
  auto* as() {
    return dynamic_cast<typename detail::Contained<M>::Type*>(this);
  }
  template <class M>
  const auto* as() const {
    return dynamic_cast<const typename detail::Contained<M>::Type*>(this);
  }

  /// A name is unique and has no dot. Returns the registered tensor or module. An undefined tensor
  /// reserves its name and is listed nowhere. Throws for a module that is this one or holds it, and
  /// where modules would be nested more than 500 deep.
  Tensor& register_parameter(const std::string& name, Tensor tensor, bool requires_grad = true);
  /// A tensor that is saved and moved with the module, but not trained; names as above.
  Tensor& register_buffer(const std::string& name, Tensor tensor);
  /// A part of this module; names as above.
  template <class M>
  requires std::is_base_of_v<Module, M> std::shared_ptr<M> register_module(
      const std::string& name, std::shared_ptr<M> module) {
    insert_module(name, module);
    return module;
  }
  template <detail::Holder H>
  H register_module(const std::string& name, H holder) {
    insert_module(name, holder.ptr());
    return holder;
  }
  /// Replaces the module registered under a name. A Sequential takes one of the same class.
  template <class M>
  requires std::is_base_of_v<Module, M> std::shared_ptr<M> replace_module(
      const std::string& name, std::shared_ptr<M> module) {
    exchange_module(name, module);
    return module;
  }
  template <detail::Holder H>
  H replace_module(const std::string& name, H holder) {
    exchange_module(name, holder.ptr());
    return holder;
  }
  /// Removes a direct submodule; throws when the name is unknown.
  void unregister_module(const std::string& name);

  /// Calls `f` for this module and all below it, each before those below it. It takes one of
  ///
  ///     Module&                      (const Module& from a const module)
  ///     const std::string&, Module&  the dotted name, which starts with the prefix
  ///     const std::shared_ptr<Module>&
  ///     const std::string&, const std::shared_ptr<Module>&
  template <class F>
  void apply(F&& f, const std::string& name_prefix = {}) {
    visit(*this, f, name_prefix);
  }
  template <class F>
  void apply(F&& f, const std::string& name_prefix = {}) const {
    visit(*this, f, name_prefix);
  }

  /// Writes parameters, buffers and submodules into a serialize::OutputArchive.
  template <class Archive>
  void save(Archive& archive) const {
    write(archive, *this);
  }
  /// Takes them from a serialize::InputArchive, as load(module, path) does from a file.
  template <class Archive>
  void load(Archive& archive) {
    read(archive, *this);
  }

  /// Prints one line: "halftape::nn::Linear(in_features=4, out_features=2, bias=true)"; by default
  /// the name alone.
  virtual void pretty_print(std::ostream& out) const;

 protected:
  // For containers and Cloneable.
  void unregister_all();
  /// Tells this module and all below it where they are; `depth`: modules above this one.
  void give_place(const std::string& path, int depth);
  void unregister_parameter(const std::string& name) { parameters_.erase(name); }
  /// Copies the other's tensors and requires_grad, and clones its submodules. Throws unless the
  /// same names are registered.
  void copy_registered(const Module& other, const std::optional<Device>& device);
  /// Comes before a submodule is replaced by another one, or by null where it is taken out.
  virtual void before_exchange(const std::string& /*name*/,
                               const std::shared_ptr<Module>& /*module*/) {}
  OrderedDict<std::string, Tensor> parameters_{"Parameter"};
  OrderedDict<std::string, Tensor> buffers_{"Buffer"};
  OrderedDict<std::string, std::shared_ptr<Module>> children_{"Submodule"};
  /// The first number from `first` on that no child has as its name.
  std::string next_number(size_t first) const {
    while (children_.contains(std::to_string(first))) ++first;
    return std::to_string(first);
  }

 private:
  friend std::ostream& operator<<(std::ostream& out, const Module& module);
  friend class SummaryPass;
  /// Becomes a clone of a module of the same class.
  virtual void clone_(const Module& other, const std::optional<Device>& device);
  void insert_module(const std::string& name, const std::shared_ptr<Module>& module);
  void exchange_module(const std::string& name, const std::shared_ptr<Module>& module);
  void check_part(const char* op, const std::string& name, const Module* module) const;
  void take_place(const std::string& name);
  std::shared_ptr<Module> shared() const;
  void collect(OrderedDict<std::string, Tensor> Module::*own, const std::string& prefix,
               bool recurse, OrderedDict<std::string, Tensor>& into) const;
  template <class Convert>
  void convert_own(const Convert& convert);
  void print_tree(std::ostream& out, const std::string& indent) const;

  template <class Self, class F>
  static void visit(Self& module, F& f, const std::string& name) {
    if constexpr (std::is_invocable_v<F&, Self&>)
      f(module);
    else if constexpr (std::is_invocable_v<F&, const std::string&, Self&>)
      f(name, module);
    else if constexpr (std::is_invocable_v<F&, const std::shared_ptr<Module>&>)
      f(module.shared());
    else
      f(name, module.shared());
    const auto below = module.children_;  // a copy: `f` may replace children
    for (const auto& child : below)
      visit<Self>(*child.value(), f, detail::joined(name, child.key()));
  }

  std::optional<std::string> name_;
  halftape::detail::Place place_;
  bool training_ = true;
};

/// The module and everything below it, indented.
std::ostream& operator<<(std::ostream& out, const Module& module);

/// The part of Cloneable that does not depend on the class.
class CloneableModule : public Module {
 public:
  using Module::Module;

  /// Registers parameters, buffers and submodules with fresh values; by default there are none.
  virtual void reset() {}

  std::shared_ptr<Module> clone(const std::optional<Device>& device = {}) const override;

 protected:
  /// A copy of the object, which shares its tensors and submodules.
  virtual CloneableModule* shallow_copy() const = 0;
  /// Becomes a copy that shares its tensors with `other`; false if the classes differ.
  virtual bool assign_from(const Module& other) = 0;

 private:
  void clone_(const Module& other, const std::optional<Device>& device) override;
};

/// The base of containers, which register what they are given: a clone has copies of it all.
class ContainerModule : public CloneableModule {
 public:
  std::shared_ptr<Module> clone(const std::optional<Device>& device = {}) const override;

 protected:
  /// Where a submodule stands among `parts`, the pointers to submodules in their order, perhaps
  /// with others between them; parts.size() for one of those.
  template <class Parts, class Pointer>
  size_t position(const std::string& name, const Parts& parts, const Pointer& pointer) const {
    size_t at = 0;
    for (const auto& child : children_) {
      const bool is_part = at < parts.size() && pointer(parts[at]) == child.value();
      if (child.key() == name) return is_part ? at : parts.size();
      if (is_part) ++at;
    }
    return parts.size();
  }
};

/// clone() for a module that registers all it has in reset(), and calls that in its constructor:
///
///     struct Net : nn::Cloneable<Net> {
///       Net() { reset(); }
///       void reset() override { fc = register_module("fc", nn::Linear(4, 2)); }
///       nn::Linear fc{nullptr};
///     };
///
/// The clone copies the object, calls reset() so that its members are its own, and then takes over
/// values, dtypes and submodules. Frozen parameters stay frozen. A tensor or module registered
/// under several names becomes several in the clone.
///
/// `Base`: a common base, derived from CloneableModule, as of the convolutions of 1, 2 and 3
/// dimensions.
template <class Derived, class Base = CloneableModule>
class Cloneable : public Base {
 public:
  using Base::Base;

 protected:
  CloneableModule* shallow_copy() const override {
    return new Derived(static_cast<const Derived&>(*this));  // NOLINT: clone() owns it
  }
  bool assign_from(const Module& other) override {
    const auto* same = dynamic_cast<const Derived*>(&other);
    if (same) static_cast<Derived&>(*this) = *same;
    return same;
  }
};

}  // namespace halftape::nn
