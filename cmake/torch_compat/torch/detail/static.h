// LibTorch's helpers for templates, which programs of LibTorch's time take from it.
#pragma once
#include <halftape/nn/module.h>

#include <type_traits>
#include <utility>

namespace torch {

template <bool Condition, class T = void>
using enable_if_t = std::enable_if_t<Condition, T>;
template <bool Condition, class Then, class Else>
using conditional_t = std::conditional_t<Condition, Then, Else>;
template <class T>
using decay_t = std::decay_t<T>;

template <bool... Values>
struct all_of : std::bool_constant<(Values && ...)> {};
template <bool... Values>
struct any_of : std::bool_constant<(Values || ...)> {};

/// f of each of the others, in their order.
template <class F, class... Values>
void apply(F f, Values&&... values) {
  (f(std::forward<Values>(values)), ...);
}

namespace detail {

template <class M>
using is_module = std::is_base_of<halftape::nn::Module, std::decay_t<M>>;
template <class M, class T = void>
using enable_if_module_t = std::enable_if_t<is_module<M>::value, T>;

template <class... Values>
constexpr bool check_not_lvalue_references() {
  return (!std::is_lvalue_reference_v<Values> && ...);
}

/// What M::forward() returns for such arguments; void for a module without one.
template <class M, class... Args>
struct return_type_of_forward {
  using type = void;
};
template <class M, class... Args>
requires requires(M& m, Args&&... args) { m.forward(std::forward<Args>(args)...); }
struct return_type_of_forward<M, Args...> {
  using type = decltype(std::declval<M&>().forward(std::declval<Args>()...));
};
template <class M, class... Args>
using return_type_of_forward_t = typename return_type_of_forward<M, Args...>::type;

}  // namespace detail
}  // namespace torch
