// ModuleHolder: a shared handle that reads like the module it holds.
#pragma once
#include <concepts>
#include <cstddef>
#include <memory>
#include <ostream>
#include <type_traits>
#include <utility>

namespace halftape::nn {

namespace detail {
[[noreturn]] void empty_holder();

/// True for arguments of which a module is made, or an empty holder, or a copy.
template <class Holder, class Contained, class... Args>
inline constexpr bool kTaken =
    sizeof...(Args) == 0 || std::is_constructible_v<Contained, Args...> ||
    (sizeof...(Args) == 1 && ((std::is_base_of_v<Holder, std::decay_t<Args>> && ...) ||
                              (std::is_convertible_v<Args, std::shared_ptr<Contained>> && ...)));
}  // namespace detail

/// A shared handle to a module that reads like the module: made by HALFTAPE_MODULE(Linear) from
/// LinearImpl. Copies share the module; nullptr makes an empty holder, and using that throws.
///
/// The pointer is a shared_ptr<void>, so that a program does not instantiate one for each module.
template <class Contained>
class ModuleHolder {
 public:
  using ContainedType = Contained;
  ModuleHolder() : impl_(std::make_shared<Contained>()) {}
  // Templates, so that a 0 among the arguments is a number and not an empty holder. Conversions, as
  // in LibTorch.
  template <std::same_as<std::nullptr_t> Null>
  ModuleHolder(Null) {}  // NOLINT
  template <class Module>
  requires std::is_convertible_v<Module*, Contained*> ModuleHolder(std::shared_ptr<Module> module)
      : impl_(std::shared_ptr<Contained>(std::move(module))) {}  // NOLINT
  /// The module made from these arguments. A holder of the same module alone is copied instead.
  template <class Head, class... Tail>
  requires((sizeof...(Tail) > 0 || !std::is_base_of_v<ModuleHolder, std::decay_t<Head>>)&&std::
               is_constructible_v<Contained, Head, Tail...>) explicit ModuleHolder(Head&& head,
                                                                                   Tail&&... tail)
      : impl_(std::make_shared<Contained>(std::forward<Head>(head), std::forward<Tail>(tail)...)) {}
  explicit operator bool() const { return impl_ != nullptr; }
  bool is_empty() const { return !impl_; }
  Contained* operator->() const { return get(); }
  Contained& operator*() const { return *get(); }
  std::shared_ptr<Contained> ptr() const { return {impl_, get()}; }
  /// The module; throws when the holder is empty.
  Contained* get() const {
    if (!impl_) detail::empty_holder();
    return static_cast<Contained*>(impl_.get());
  }
  /// forward() of the module.
  template <class... Args>
  auto operator()(Args&&... args) const {
    Contained& module = *get();
    const typename Contained::PlaceScope scope(module);
    using Result = decltype(module.forward(std::forward<Args>(args)...));
    if constexpr (std::is_object_v<Result>)
      return scope.template result<Result>(module.forward(std::forward<Args>(args)...));
    else
      return module.forward(std::forward<Args>(args)...);
  }
  /// An element of a container by number or name: sequential[0].
  template <class Key>
  decltype(auto) operator[](Key&& key) const {
    return (*get())[std::forward<Key>(key)];
  }

 private:
  // What compilers say of other arguments: this line, and not every constructor. Private, as of a
  // deleted one g++ says twice for each macro that it was inherited through.
  template <class... no_module_is_made_of_these>
  requires(!detail::kTaken<ModuleHolder, Contained, no_module_is_made_of_these...>)
      // clang-format off
  explicit ModuleHolder(no_module_is_made_of_these&&...);  // see the module's options
  // clang-format on

  std::shared_ptr<void> impl_;  // to a Contained
};

template <class Contained>
std::ostream& operator<<(std::ostream& out, const ModuleHolder<Contained>& holder) {
  return out << *holder;
}

/// Declares class Name, a holder of Impl.
#define HALFTAPE_MODULE_IMPL(Name, ImplType)                    \
  class Name : public ::halftape::nn::ModuleHolder<ImplType> {  \
   public:                                                      \
    using ::halftape::nn::ModuleHolder<ImplType>::ModuleHolder; \
    using Impl = ImplType;                                      \
  }
/// Declares class Name, a holder of NameImpl.
#define HALFTAPE_MODULE(Name) HALFTAPE_MODULE_IMPL(Name, Name##Impl)

}  // namespace halftape::nn
