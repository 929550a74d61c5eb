// All that autograd knows about mixed precision: a hook through which the casts of an op's inputs
// are decided. amp plugs in from above; with no policy installed the dtypes are left alone.
#pragma once
#include <array>
#include <memory>
#include <span>
#include <tuple>

#include "halftape/autograd/tensor.h"
#include "halftape/core/formula/ops.h"

namespace halftape {

class DtypePolicy {
 public:
  virtual ~DtypePolicy() = default;
  /// `x` in the dtype in which `op` is to run. `all`: the op's tensor inputs, `x` among them;
  /// undefined ones are left out.
  virtual Tensor cast(Cast rule, const char* op, const Tensor& x,
                      std::span<const Tensor* const> all) = 0;
  /// A policy that decides as this one does now, for work done later or in another thread.
  virtual std::shared_ptr<DtypePolicy> snapshot() const = 0;
};

/// The thread's policy; null: leave dtypes alone.
DtypePolicy* dtype_policy();

/// Installs a policy for a scope. The engine runs rules under PolicyScope(nullptr): dtypes were
/// decided in the forward pass.
class [[nodiscard]] PolicyScope {
 public:
  explicit PolicyScope(DtypePolicy* policy);
  ~PolicyScope();
  PolicyScope(const PolicyScope&) = delete;
  PolicyScope& operator=(const PolicyScope&) = delete;

 private:
  DtypePolicy* before_;
};

/// An op's inputs as the policy wants them: what was given, or a cast of it.
template <size_t N>
class CastInputs {
 public:
  std::array<const Tensor*, N> given;
  std::array<Tensor, N> cast;  // undefined: as given
  const Tensor& operator[](size_t i) const { return cast[i].defined() ? cast[i] : *given[i]; }
  template <size_t I>
  const Tensor& get() const {
    return (*this)[I];
  }
};

/// The first line of every frontend: `const auto [a, b] = cast_inputs(Cast::Lower, "matmul", a_in,
/// b_in);` makes a and b references to the inputs, or to differentiable casts of them.
template <class... T>
CastInputs<sizeof...(T)> cast_inputs(Cast rule, const char* op, T&&... inputs) {
  static_assert((std::is_lvalue_reference_v<T> && ...), "temporaries would not live long enough");
  CastInputs<sizeof...(T)> in{{&inputs...}, {}};
  DtypePolicy* policy = dtype_policy();
  if (!policy || rule == Cast::Keep) [[likely]]
    return in;
  for (size_t i = 0; i < in.given.size(); ++i)
    if (in.given[i]->defined()) in.cast[i] = policy->cast(rule, op, *in.given[i], in.given);
  return in;
}

/// The same for a list.
inline TensorList cast_inputs(Cast rule, const char* op, const TensorList& inputs) {
  DtypePolicy* policy = dtype_policy();
  if (!policy) return inputs;
  std::vector<const Tensor*> all;
  for (const Tensor& t : inputs) all.push_back(&t);
  TensorList out;
  for (const Tensor& t : inputs) out.push_back(t.defined() ? policy->cast(rule, op, t, all) : t);
  return out;
}

}  // namespace halftape

template <size_t N>
struct std::tuple_size<halftape::CastInputs<N>> : std::integral_constant<size_t, N> {};
template <size_t I, size_t N>
struct std::tuple_element<I, halftape::CastInputs<N>> {
  using type = const halftape::Tensor&;
};
