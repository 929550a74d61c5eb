// A function that is called and not kept.
#pragma once
#include <type_traits>

namespace halftape {

template <class Signature>
class FunctionRef;

/// Refers to a function object, which must outlive it: as C++26's std::function_ref. What takes one
/// is compiled once, and not for every lambda as a template is.
template <class R, class... Arguments>
class FunctionRef<R(Arguments...)> {
 public:
  template <class F>
  requires std::is_invocable_r_v<R, const F&, Arguments...> FunctionRef(const F& f)
      : f_(&f), call_(&call<F>) {}  // NOLINT: stands for f
  R operator()(Arguments... arguments) const { return call_(f_, arguments...); }

 private:
  template <class F>
  static R call(const void* f, Arguments... arguments) {
    return static_cast<R>((*static_cast<const F*>(f))(arguments...));
  }

  const void* f_;
  R (*call_)(const void* f, Arguments... arguments);
};

}  // namespace halftape
