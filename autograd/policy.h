// All that autograd knows about mixed precision: a hook through which the casts of an op's inputs
// are decided. amp plugs in from above; with no policy installed the dtypes are left alone.
#pragma once
#include <array>
#include <span>

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

/// The first line of every frontend: the inputs as the policy wants them, through differentiable
/// casts.
template <class... T>
std::array<Tensor, sizeof...(T)> cast_inputs(Cast rule, const char* op, const T&... inputs) {
  DtypePolicy* policy = dtype_policy();
  if (!policy) [[likely]]
    return {inputs...};
  const Tensor* const all[] = {&inputs...};
  return {(inputs.defined() ? policy->cast(rule, op, inputs, all) : inputs)...};
}

}  // namespace halftape
