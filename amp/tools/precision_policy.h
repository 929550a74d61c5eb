// PrecisionPolicy: the dtypes of one module's parameters, computation and output, as in jmp's
// Policy and Keras' dtype policies.
#pragma once
#include <memory>
#include <ostream>
#include <string_view>
#include <type_traits>
#include <utility>

#include "halftape/amp/autocast.h"
#include "halftape/nn/module.h"

namespace halftape::amp {

/// Three dtypes, each float16, bfloat16 or float32.
///
///     const amp::PrecisionPolicy half("params=float32,compute=float16,output=float32");
///     amp::Precise model(half, nn::Linear(784, 10));
///     Tensor y = model->forward(x);   // computed in float16, float32 again
///
/// Autocast chooses a dtype for each op; a PrecisionPolicy computes every op in one dtype, for
/// modules whose ranges are known.
class PrecisionPolicy {
 public:
  /// "params=float32,compute=float16,output=float32" in any order, or by first letters
  /// ("p=f32,c=f16,o=f32"); a missing role has the dtype of compute. One dtype alone ("bfloat16")
  /// sets all three. Throws for anything else.
  explicit PrecisionPolicy(std::string_view text);
  PrecisionPolicy(Dtype params, Dtype compute, Dtype output);

  Dtype params() const { return params_; }
  Dtype compute() const { return compute_; }
  Dtype output() const { return output_; }

  // Differentiable casts; float64 and integers stay as they are.
  Tensor cast_to_param(const Tensor& x) const { return convert(x, params_); }
  Tensor cast_to_compute(const Tensor& x) const { return convert(x, compute_); }
  Tensor cast_to_output(const Tensor& x) const { return convert(x, output_); }

  /// The autocast state in which every op computes in compute().
  AutocastState state() const;

  friend bool operator==(const PrecisionPolicy&, const PrecisionPolicy&) = default;

 private:
  static Tensor convert(const Tensor& x, Dtype dtype);
  Dtype params_, compute_, output_;
};

/// "params=float32,compute=float16,output=float32".
std::ostream& operator<<(std::ostream& out, const PrecisionPolicy& policy);

/// The implementation of Precise.
template <class Contained>
class PreciseImpl : public nn::Module {
 public:
  PreciseImpl(PrecisionPolicy policy, std::shared_ptr<Contained> module)
      : Module("halftape::amp::Precise"), policy_(policy), module_(std::move(module)) {
    register_module("module", module_);
    module_->to(policy_.params());
  }

  /// The contained module's forward(), with tensor arguments cast to compute(), and a returned
  /// tensor or list of tensors cast to output().
  template <class... Args>
  auto forward(const Args&... args) {
    auto result = [&] {
      const autocast region(policy_.state());
      return module_->forward(cast_argument(args)...);
    }();
    using Result = decltype(result);
    if constexpr (std::is_base_of_v<Tensor, Result>) {
      return policy_.cast_to_output(result);
    } else {
      if constexpr (std::is_same_v<Result, TensorList>)
        for (Tensor& t : result) t = policy_.cast_to_output(t);
      return result;
    }
  }

  const PrecisionPolicy& policy() const { return policy_; }
  std::shared_ptr<Contained> module() const { return module_; }
  void pretty_print(std::ostream& out) const override { out << name() << '(' << policy_ << ')'; }

 private:
  template <class A>
  auto cast_argument(const A& argument) const {
    if constexpr (std::is_base_of_v<Tensor, A>)
      return policy_.cast_to_compute(argument);
    else
      return argument;
  }

  PrecisionPolicy policy_;
  std::shared_ptr<Contained> module_;
};

/// A module under a PrecisionPolicy. Its parameters are those of the contained module, under
/// "module.", converted to policy.params(); their gradients have that dtype, too.
template <class Contained>
class Precise : public nn::ModuleHolder<PreciseImpl<Contained>> {
 public:
  template <class Holder>
  Precise(PrecisionPolicy policy, const Holder& module)
      : nn::ModuleHolder<PreciseImpl<Contained>>(
            std::make_shared<PreciseImpl<Contained>>(policy, module.ptr())) {}
};
template <class Holder>
Precise(PrecisionPolicy, const Holder&) -> Precise<typename Holder::ContainedType>;

}  // namespace halftape::amp
