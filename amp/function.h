// Custom autograd functions under autocast: torch's custom_fwd and custom_bwd in one.
#pragma once
#include <optional>
#include <string_view>
#include <type_traits>

#include "halftape/amp/autocast.h"
#include "halftape/autograd/function.h"

namespace halftape::amp {
namespace detail {

/// This thread's state without regions, but with their dtypes.
inline AutocastState state_without_regions() {
  AutocastState state = capture();
  for (AutocastState::PerDevice& device : state.devices) device.enabled = false;
  return state;
}

/// The argument with its eligible tensors cast, also in lists, maps and optionals.
template <class A>
auto cast_argument(const A& argument, Dtype dtype) {
  if constexpr (std::is_base_of_v<Tensor, A>) {
    return cast_if_eligible(argument, dtype);
  } else if constexpr (requires { typename A::mapped_type; }) {
    A out;
    for (const auto& [key, value] : argument) out.emplace(key, cast_argument(value, dtype));
    return out;
  } else if constexpr (std::is_same_v<A, std::optional<Tensor>>) {
    return argument ? A(cast_argument(*argument, dtype)) : A();
  } else if constexpr (requires(A a) { a.push_back(*a.begin()), a.clear(); } &&
                       !std::is_convertible_v<A, std::string_view>) {
    A out;
    for (const auto& value : argument) out.push_back(cast_argument(value, dtype));
    return out;
  } else {
    return argument;
  }
}

}  // namespace detail

/// An autograd::Function whose backward() runs in the autocast state of its forward(), in any
/// thread:
///
///     struct MatMul : amp::Function<MatMul> {
///       static Tensor forward(AutogradContext* ctx, Tensor a, Tensor b);
///       static variable_list backward(AutogradContext* ctx, variable_list grads);
///     };
///
/// With `static constexpr Dtype cast_inputs = kFloat32;`, for kernels of one dtype, a call inside a
/// region casts its eligible tensors (also in lists, maps and optionals) to that dtype,
/// differentiably, and runs both directions with autocast off. Outside a region nothing is cast.
template <class T>
struct Function {
  /// Runs T::forward(), recorded with T::backward() as its rule.
  template <class... Args>
  static auto apply(const Args&... args) {
    if constexpr (requires { T::cast_inputs; }) {
      const auto call = [](const auto&... in) {
        const autocast off(detail::state_without_regions());
        return AutogradFunction::apply(in...);
      };
      return call(detail::cast_argument(args, T::cast_inputs)...);
    } else {
      return AutogradFunction::apply(args...);
    }
  }

 private:
  struct AutogradFunction : autograd::Function<AutogradFunction> {
    static constexpr const char* name = [] {
      if constexpr (requires { T::name; })
        return T::name;
      else
        return "Function";
    }();
    template <class... Args>
    static auto forward(autograd::AutogradContext* ctx, Args&&... args) {
      ctx->policy_of_backward = policy_snapshot();
      return T::forward(ctx, std::forward<Args>(args)...);
    }
    static autograd::variable_list backward(autograd::AutogradContext* ctx,
                                            autograd::variable_list grads) {
      return T::backward(ctx, std::move(grads));
    }
  };
};

}  // namespace halftape::amp
