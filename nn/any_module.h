// A module of any type, with any arguments and result of forward(). Spelled as
// torch::nn::AnyModule.
#pragma once
#include <any>
#include <concepts>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <typeinfo>
#include <utility>
#include <vector>

#include "halftape/autograd/tensor.h"
#include "halftape/nn/module.h"

namespace halftape::nn {

/// A value of any type that can be copied, without references and const; a string literal is a
/// const char*.
class AnyValue {
 public:
  template <class T, class = std::enable_if_t<!std::is_same_v<std::decay_t<T>, AnyValue>>>
  explicit AnyValue(T&& value) : value_(Kept<T>(std::forward<T>(value))) {}

  /// Null when the value is not a T. There are no conversions: an int is not a float.
  template <class T>
  T* try_get() {
    return std::any_cast<T>(&value_);
  }
  template <class T>
  const T* try_get() const {
    return std::any_cast<T>(&value_);
  }
  /// Throws when the value is not a T.
  template <class T>
  T get() {
    T* value = try_get<T>();
    HALFTAPE_CHECK(value, "Attempted to cast AnyValue to ", detail::name_of(typeid(T)),
                   ", but its actual type is ", detail::name_of(type_info()));
    return *value;
  }
  const std::type_info& type_info() const { return value_.type(); }

 private:
  /// What x[mask] gives is a Tensor here, too.
  template <class T, class D = std::decay_t<T>>
  using Kept = std::conditional_t<std::is_base_of_v<Tensor, D>, Tensor, D>;
  std::any value_;
};

namespace detail {

using DefaultArguments = std::vector<std::pair<size_t, AnyValue>>;

/// Reads the arguments of FORWARD_HAS_DEFAULT_ARGS, which may be private and names this a friend.
struct ForwardDefaults {
  template <class M>
  static DefaultArguments of() {
    if constexpr (requires { M::forward_default_arguments(); })
      return M::forward_default_arguments();
    else
      return {};
  }
};

/// Appends missing defaults; throws when the number of arguments still differs from forward()'s.
void complete_arguments(const std::type_info& module, size_t count, DefaultArguments defaults,
                        std::vector<AnyValue>& arguments);

[[noreturn]] void refuse_argument(size_t index, const std::type_info& expected,
                                  const std::type_info& received);

/// An argument as forward() takes it: by value, by const reference, or as an rvalue.
template <class T>
std::decay_t<T>&& argument(std::vector<AnyValue>& arguments, size_t index) {
  static_assert(!std::is_lvalue_reference_v<T> || std::is_const_v<std::remove_reference_t<T>>,
                "AnyModule: forward() must not take references to what it changes; use pointers");
  auto* value = arguments[index].try_get<std::decay_t<T>>();
  if (!value) refuse_argument(index, typeid(T), arguments[index].type_info());
  return std::move(*value);
}

using AnyForward = std::function<AnyValue(std::vector<AnyValue>)>;

/// The type R(Args…) of a method.
template <class Method>
struct Call;
template <class C, class R, class... Args>
struct Call<R (C::*)(Args...)> {
  using Type = R(Args...);
};
template <class C, class R, class... Args>
struct Call<R (C::*)(Args...) const> {
  using Type = R(Args...);
};

template <class M, class Method, class R, class... Args>
AnyForward erased(M& module, Method method, std::type_identity<R(Args...)>) {
  static_assert(!std::is_void_v<R>, "AnyModule: forward() has to return a value");
  return [&module, method](std::vector<AnyValue> arguments) {
    const Module::PlaceScope scope(module);
    complete_arguments(typeid(M), sizeof...(Args), ForwardDefaults::of<M>(), arguments);
    return [&]<size_t... I>(std::index_sequence<I...>) {
      return AnyValue(scope.result<R>((module.*method)(argument<Args>(arguments, I)...)));
    }
    (std::index_sequence_for<Args...>());
  };
}
/// forward() of a module; forward_any() of one that takes any arguments, as Sequential.
template <class M>
AnyForward erased(M& module) {
  if constexpr (requires(std::vector<AnyValue> arguments) {
                  { module.forward_any(std::move(arguments)) } -> std::same_as<AnyValue>;
                })
    return [&module](std::vector<AnyValue> arguments) {
      return module.forward_any(std::move(arguments));
    };
  else
    return erased(module, &M::forward,
                  std::type_identity<typename Call<decltype(&M::forward)>::Type>());
}

template <class... Args>
std::vector<AnyValue> packed(Args&&... args) {
  std::vector<AnyValue> arguments;
  arguments.reserve(sizeof...(Args));
  (arguments.push_back(AnyValue(std::forward<Args>(args))), ...);
  return arguments;
}

}  // namespace detail

/// Holds a module whose forward() is neither overloaded nor a template, and calls it with arguments
/// whose types are checked at run time, exactly: an int is no float. Copies share the module.
///
///     AnyModule any(Linear(3, 4));
///     Tensor y = any.forward(x);
///     int n = AnyModule(Count()).forward<int>(x);
class AnyModule {
 public:
  /// Holds nothing: every call throws, except is_empty(), clone() and assignment.
  AnyModule() = default;
  template <class M>
  explicit AnyModule(std::shared_ptr<M> module) {
    HALFTAPE_CHECK(module, "AnyModule: the pointer to a ", detail::name_of(typeid(M)), " is null");
    type_ = &typeid(M);
    forward_ = detail::erased(*module);
    make_ = [](std::shared_ptr<Module> other) {
      return AnyModule(std::dynamic_pointer_cast<M>(std::move(other)));
    };
    module_ = std::move(module);
  }
  template <class M, class = std::enable_if_t<std::is_base_of_v<Module, std::decay_t<M>>>>
  explicit AnyModule(M&& module)
      : AnyModule(std::make_shared<std::decay_t<M>>(std::forward<M>(module))) {}
  template <class Contained>
  explicit AnyModule(const ModuleHolder<Contained>& holder) : AnyModule(holder.ptr()) {}

  template <class M>
  AnyModule& operator=(std::shared_ptr<M> module) {
    return *this = AnyModule(std::move(module));
  }

  /// Another AnyModule with a clone() of the module.
  AnyModule clone(std::optional<Device> device = {}) const;
  /// Another AnyModule of the same class with this module; throws if it is of another.
  AnyModule with(std::shared_ptr<Module> module) const;

  /// forward() of the module. Throws when the types of the arguments or the result do not match.
  template <class R = Tensor, class... Args>
  R forward(Args&&... args) const {
    return any_forward(std::forward<Args>(args)...).template get<R>();
  }
  template <class... Args>
  AnyValue any_forward(Args&&... args) const {
    return forward_any(detail::packed(std::forward<Args>(args)...));
  }
  /// The same with arguments and result in boxes.
  AnyValue forward_any(std::vector<AnyValue> arguments) const {
    check_holds("forward");
    return forward_(std::move(arguments));
  }

  /// The module as an M; throws unless AnyModule was made from exactly an M.
  template <class M>
  requires std::is_base_of_v<Module, M> M& get() const { return cast<M>("get"); }
  /// The same for holders: get<Linear>().
  template <class Holder, class Contained = typename Holder::ContainedType>
  Holder get() const {
    cast<Contained>("get");
    return Holder(ptr<Contained>());
  }
  /// The module; with M, as an M, and throws unless AnyModule was made from exactly an M.
  std::shared_ptr<Module> ptr() const;
  template <class M>
  std::shared_ptr<M> ptr() const {
    return {module_, &cast<M>("ptr")};
  }
  /// The module's type.
  const std::type_info& type_info() const;
  bool is_empty() const { return module_ == nullptr; }

 private:
  void check_holds(const char* call) const;
  template <class M>
  M& cast(const char* call) const {
    check_holds(call);
    HALFTAPE_CHECK(*type_ == typeid(M), "Attempted to cast module of type ",
                   detail::name_of(*type_), " to type ", detail::name_of(typeid(M)));
    return static_cast<M&>(*module_);
  }

  std::shared_ptr<Module> module_;
  const std::type_info* type_ = nullptr;
  detail::AnyForward forward_;
  AnyModule (*make_)(std::shared_ptr<Module>) = nullptr;  // of the same class
};

/// A name with anything that AnyModule takes: Sequential({{"fc", Linear(3, 4)}, {"act", ReLU()}}).
class NamedAnyModule {
 public:
  template <class M>
  requires std::is_constructible_v<AnyModule, M> NamedAnyModule(std::string name, M&& module)
      : name_(std::move(name)), module_(std::forward<M>(module)) {}
  const std::string& name() const { return name_; }
  AnyModule& module() { return module_; }
  const AnyModule& module() const { return module_; }

 private:
  std::string name_;
  AnyModule module_;
};

}  // namespace halftape::nn

/// Gives AnyModule the defaults of forward()'s last arguments, in order, with their positions:
///
///     Tensor forward(Tensor x, int n = 2, double scale = 3.0);
///     FORWARD_HAS_DEFAULT_ARGS({1, nn::AnyValue(2)}, {2, nn::AnyValue(3.0)})
#define FORWARD_HAS_DEFAULT_ARGS(...)                                           \
  friend struct ::halftape::nn::detail::ForwardDefaults;                        \
  static ::halftape::nn::detail::DefaultArguments forward_default_arguments() { \
    return {__VA_ARGS__};                                                       \
  }
