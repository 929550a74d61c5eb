#include "halftape/nn/modules/container/sequential.h"

#include <limits>

#include "halftape/autograd/ops/loss/loss.h"
#include "halftape/autograd/ops/loss/mlp_loss.h"
#include "halftape/autograd/ops/product/linear.h"
#include "halftape/autograd/tape/policy.h"
#include "halftape/nn/modules/activation.h"
#include "halftape/nn/modules/linear.h"

namespace halftape::nn {
namespace {

/// The part, if it is exactly an M; else null.
template <class M>
const M* exactly(const AnyModule& part) {
  return part.type_info() == typeid(M) ? &part.get<M>() : nullptr;
}

std::optional<Activation> activation_of(const AnyModule& part) {
  if (exactly<ReLUImpl>(part)) return Activation::Relu;
  if (exactly<SiLUImpl>(part)) return Activation::Silu;
  if (exactly<TanhImpl>(part)) return Activation::Tanh;
  if (exactly<SigmoidImpl>(part)) return Activation::Sigmoid;
  const auto* gelu = exactly<GELUImpl>(part);
  if (gelu && gelu->options.approximate() == "tanh") return Activation::Gelu;
  return {};
}

/// The Linear layers with one activation between them that begin at a part, and how many parts they
/// take.
struct LinearRun {
  TensorList weights, biases;
  std::optional<Activation> activation;
  size_t parts = 0;

  LinearRun(const std::vector<AnyModule>& all, size_t first, int64_t features) {
    for (size_t i = first; i < all.size(); i += 2) {
      const auto* layer = exactly<LinearImpl>(all[i]);
      if (!layer || layer->weight.size(1) != features) return;
      weights.push_back(layer->weight);
      biases.push_back(layer->bias);
      features = layer->weight.size(0);
      parts = i + 1 - first;
      const auto next = i + 1 < all.size() ? activation_of(all[i + 1]) : std::nullopt;
      if (!next || (activation && next != activation)) return;
      activation = next;
    }
  }
};

/// A policy that must see every op (DtypePolicy::every_op), and who watches results, get the parts
/// one by one.
bool fuses(const Tensor& x) {
  return x.defined() && !detail::result_watcher && x.dim() > 0 &&
         !(dtype_policy() && dtype_policy()->every_op);
}

}  // namespace

FunctionalImpl::FunctionalImpl(Function function) : function_(std::move(function)) {
  HALFTAPE_CHECK(function_, "Functional: the function is empty");
}
Functional::Functional(Tensor (*function)(const Tensor&))
    : ModuleHolder(FunctionalImpl::Function(function)) {}
Tensor FunctionalImpl::forward(Tensor x) const {
  const PlaceScope scope(*this);
  return scope.result(function_(std::move(x)));
}
void FunctionalImpl::pretty_print(std::ostream& out) const { out << "halftape::nn::Functional()"; }

SequentialImpl::SequentialImpl(std::initializer_list<NamedAnyModule> named) {
  for (const NamedAnyModule& part : named) insert(part.name(), part.module());
}
SequentialImpl::SequentialImpl(const OrderedDict<std::string, AnyModule>& named) {
  for (const auto& part : named) insert(part.key(), part.value());
}

Sequential::Sequential() = default;
Sequential::Sequential(std::initializer_list<NamedAnyModule> named)
    : ModuleHolder(std::make_shared<SequentialImpl>(named)) {}

void SequentialImpl::insert(const std::string& name, AnyModule part) {
  register_module(name, part.ptr());
  parts_.push_back(std::move(part));
}

const AnyModule& SequentialImpl::any(size_t index) const {
  HALFTAPE_CHECK(index < size(), "Index out of range: ", index, " of a Sequential of ", size());
  return parts_[index];
}

size_t SequentialImpl::forward_fused(size_t first, AnyValue& value) const {
  const auto* x = value.try_get<Tensor>();
  if (!x || !fuses(*x)) return 0;
  try {
    const LinearRun run(parts_, first, x->size(-1));
    if (run.weights.size() < 2 || run.activation != Activation::Relu) return 0;
    value = AnyValue(mlp(*x, run.weights, run.biases));
    return run.parts;
  } catch (const Error&) {
    return 0;
  }
}

AnyValue SequentialImpl::forward_any(std::vector<AnyValue> arguments) const {
  const PlaceScope scope(*this);
  HALFTAPE_CHECK(!parts_.empty(), "Cannot call forward() on an empty Sequential");
  size_t i = 0;
  AnyValue value = arguments.size() == 1 ? std::move(arguments[0])
                                         : parts_[i++].forward_any(std::move(arguments));
  while (i < parts_.size()) {
    if (const size_t taken = forward_fused(i, value))
      i += taken;
    else
      value = parts_[i++].any_forward(std::move(value));
  }
  return scope.result(std::move(value));
}

Tensor SequentialImpl::loss(const Tensor& x, const Tensor& target, const Tensor& scale) const {
  const PlaceScope scope(*this);
  if (fuses(x) && x.is_cuda()) {  // the CPU has no kernel for all layers at once
    const LinearRun net(parts_, 0, x.size(-1));
    if (net.parts > 0 && net.parts == size())
      return mlp_loss(x, target, net.weights, net.biases, net.activation.value_or(Activation::None),
                      scale);
  }
  const Tensor y = forward(x);
  if (target.dtype() != kInt64) return mse_loss(y, target);
  HALFTAPE_CHECK(y.dim() > 0, "Sequential: the loss of classes needs logits (…, C), and the last ",
                 "part gives a 0-dim tensor");
  return cross_entropy(y.reshape({-1, y.size(-1)}), target.reshape({-1}), {}, Reduction::Mean,
                       std::numeric_limits<int64_t>::min());
}

void SequentialImpl::before_exchange(const std::string& name,
                                     const std::shared_ptr<Module>& module) {
  const size_t at = position(name, parts_, [](const AnyModule& part) { return part.ptr(); });
  if (at == size()) return;
  if (!module) {
    parts_.erase(parts_.begin() + static_cast<std::ptrdiff_t>(at));
    return;
  }
  const Module &now = *parts_[at].ptr(), &then = *module;
  HALFTAPE_CHECK(typeid(now) == typeid(then), "Sequential: part \"", name, "\" is a ", now.name(),
                 ", whose place a ", then.name(), " cannot take; make another Sequential");
  parts_[at] = parts_[at].with(module);
}

void SequentialImpl::pretty_print(std::ostream& out) const { out << "halftape::nn::Sequential"; }

}  // namespace halftape::nn
