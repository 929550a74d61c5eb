// All that autograd knows about mixed precision: a policy decides how the inputs of an op are cast.
// amp installs one; without a policy the dtypes are left alone.
#pragma once
#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "halftape/autograd/tape/error_scope.h"
#include "halftape/autograd/tape/op_timer.h"
#include "halftape/autograd/tensor.h"
#include "halftape/core/formula/ops.h"
#include "halftape/core/machine/scoped_value.h"

namespace halftape {

/// An op as policies know it: its name and its Cast, declared in its formula or in
/// autograd/ops/cast_list.h.
struct CastOp {
  const char* name;
  Cast cast;
  bool decided = false;  // the caller chose a dtype, which overrides every policy
  // Dtypes to which the op converts its inputs itself, as it reads them. A policy that decides for
  // one of them casts nothing and returns it; null: none.
  bool (*converts)(Dtype) = nullptr;

  /// For ops with an optional dtype argument.
  CastOp unless(const std::optional<Dtype>& dtype) const { return {name, cast, dtype.has_value()}; }
  CastOp converting(bool (*to)(Dtype)) const { return {name, cast, decided, to}; }
};

class DtypePolicy {
 public:
  virtual ~DtypePolicy() = default;
  /// Decides for one op. casts[i] becomes given[i] in the dtype in which `op` is to run, or stays
  /// undefined where given[i] is right as it is. Undefined inputs are skipped. Returns a dtype only
  /// if `op` is to convert its inputs to it by itself.
  virtual std::optional<Dtype> cast(const CastOp& op, std::span<const Tensor* const> given,
                                    std::span<Tensor> casts) = 0;
  /// A policy that decides as this one does now, for work done later or in another thread.
  virtual std::shared_ptr<DtypePolicy> snapshot() const = 0;

  /// Whether cast() is called for Keep ops, too.
  bool every_op = false;
};

/// The thread's policy; null: leave dtypes alone.
DtypePolicy* dtype_policy();
void set_dtype_policy(DtypePolicy* policy);

namespace detail {
/// Set by amp: a snapshot of this thread's policy and settings, on or off.
inline std::shared_ptr<DtypePolicy> (*snapshot_of_thread)() = nullptr;
}  // namespace detail
/// What work that is done later or in another thread runs under to decide as it would now, also in
/// regions that it opens itself; null without amp.
inline std::shared_ptr<DtypePolicy> policy_snapshot() {
  return detail::snapshot_of_thread ? detail::snapshot_of_thread() : nullptr;
}

/// Installs a policy for a scope. The engine runs rules under PolicyScope(nullptr): dtypes were
/// decided in the forward pass.
class [[nodiscard]] PolicyScope : ScopedValue<DtypePolicy*> {
 public:
  [[nodiscard]] explicit PolicyScope(DtypePolicy* policy);
  /// The number of this thread's innermost one; 0: there is none.
  static uint64_t current();

 private:
  ScopedValue<uint64_t> number_;
};

namespace detail {
struct Decision {
  DtypePolicy* resume = nullptr;    // the policy to switch on again; null: none was called
  std::optional<Dtype> compute_as;  // the dtype to which the op converts its inputs itself
};
/// Calls the thread's policy and switches it off, where it has a say in this op.
Decision decide(const CastOp& op, std::span<const Tensor* const> given, std::span<Tensor> casts);
}  // namespace detail

/// An op's inputs as the policy wants them: each as given, or cast. The policy is off while this
/// lives, so that it does not decide again for the ops that this op calls.
template <size_t N>
class CastInputs {
 public:
  CastInputs(const CastOp& op, const std::array<const Tensor*, N>& given)
      : span_(op.name), given_(given) {
    if (dtype_policy()) [[unlikely]]
      decision_ = detail::decide(op, given_, cast_);
  }
  CastInputs(const CastInputs&) = delete;
  CastInputs& operator=(const CastInputs&) = delete;
  ~CastInputs() {
    if (decision_.resume) set_dtype_policy(decision_.resume);
  }

  /// Where the policy decided for a dtype in op.converts: that dtype. The inputs are as given.
  std::optional<Dtype> compute_as() const { return decision_.compute_as; }
  const Tensor& operator[](size_t i) const { return cast_[i].defined() ? cast_[i] : *given_[i]; }
  template <size_t I>
  const Tensor& get() const {
    return (*this)[I];
  }

 private:
  OpTimer span_;  // lives as long as the op runs
  std::array<const Tensor*, N> given_;
  std::array<Tensor, N> cast_;  // undefined: as given
  detail::Decision decision_;
};

/// The first line of every frontend: `const auto [a, b] = cast_inputs(cast_list::matmul, a_in,
/// b_in);` makes a and b references to the inputs, or to differentiable casts of them. Throws if
/// one of the first `needed` inputs is undefined; further inputs are optional.
template <size_t needed = kMaxDims, class... T>
CastInputs<sizeof...(T)> cast_inputs(const CastOp& op, T&&... inputs) {
  static_assert((std::is_lvalue_reference_v<T> && ...), "temporaries would not live long enough");
  const std::array<const Tensor*, sizeof...(T)> given{&inputs...};
  for (size_t i = 0; i < std::min(needed, given.size()); ++i) check_given(op.name, *given[i], i);
  return {op, given};
}

/// The same for a list; PolicyScope(nullptr) after it switches the policy off.
inline TensorList cast_inputs(const CastOp& op, const TensorList& inputs) {
  check_defined(op.name, inputs);
  DtypePolicy* policy = dtype_policy();
  if (!policy || (op.cast == Cast::Keep && !policy->every_op)) return inputs;
  std::vector<const Tensor*> given;
  for (const Tensor& t : inputs) given.push_back(&t);
  TensorList out(inputs.size());
  policy->cast(op, given, out);
  for (size_t i = 0; i < out.size(); ++i)
    if (!out[i].defined()) out[i] = inputs[i];
  return out;
}

}  // namespace halftape

template <size_t N>
struct std::tuple_size<halftape::CastInputs<N>> : std::integral_constant<size_t, N> {};
template <size_t I, size_t N>
struct std::tuple_element<I, halftape::CastInputs<N>> {
  using type = const halftape::Tensor&;
};
