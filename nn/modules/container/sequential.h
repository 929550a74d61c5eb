// Sequential: modules and functions one after another; Functional: a function as a module. Spelled
// as in torch::nn.
#pragma once
#include <functional>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "halftape/nn/any_module.h"

namespace halftape::nn {

/// Calls a function of a Tensor, with further arguments bound once:
///
///     nn::Sequential net{nn::Linear(3, 4), nn::Functional(relu), nn::Functional(elu, 1, 0, 1)};
class FunctionalImpl : public Cloneable<FunctionalImpl> {
 public:
  using Function = std::function<Tensor(Tensor)>;
  explicit FunctionalImpl(Function function);
  template <class F, class... Args>
  requires(sizeof...(Args) > 0) explicit FunctionalImpl(F function, Args&&... args)
      : FunctionalImpl(
            std::bind(std::move(function), std::placeholders::_1, std::forward<Args>(args)...)) {}
  Tensor forward(Tensor x) const;
  Tensor operator()(Tensor x) const { return forward(std::move(x)); }
  void pretty_print(std::ostream& out) const override;

 private:
  Function function_;
};
class Functional : public ModuleHolder<FunctionalImpl> {
 public:
  using ModuleHolder<FunctionalImpl>::ModuleHolder;
  /// Chooses the overload of a function name that takes one Tensor.
  Functional(Tensor (*function)(const Tensor&));  // NOLINT: as LibTorch
};

/// Calls its parts in order, each with the result of the one before. A part is whatever AnyModule
/// takes (a module, holder, pointer or another Sequential), or a function of a Tensor. Each is a
/// submodule under its number, or under the name it is given.
///
/// forward() runs two or more Linear layers with ReLU between them as one op, mlp(), which puts the
/// ReLU into the product. The bits are those of the separate layers, on each device, and so are the
/// errors. Subclasses of Linear or ReLU are called one by one, and so is every part under a dtype
/// policy that asks for every op.
///
/// In braces, the parts are made, and draw their first weights, in the order in which they stand:
///
///     nn::Sequential net{nn::Linear(3, 4), relu, nn::Linear(4, 2)};
///     nn::Sequential named({{"fc", nn::Linear(3, 4)}, {"act", nn::ReLU()}});
class SequentialImpl : public Cloneable<SequentialImpl, ContainerModule> {
  template <class Part>  // a holder satisfies the first; the second does not compile for it
  static constexpr bool kIsPart =
      std::disjunction_v<std::is_constructible<AnyModule, Part>,
                         std::is_invocable_r<Tensor, std::decay_t<Part>&, Tensor>>;

 public:
  SequentialImpl() = default;
  template <class... Parts>
  requires(sizeof...(Parts) > 0 && (kIsPart<Parts> && ...) &&
           (sizeof...(Parts) > 1 || !(std::is_base_of_v<SequentialImpl, std::decay_t<Parts>> ||
                                      ...))) explicit SequentialImpl(Parts&&... parts) {
    parts_.reserve(sizeof...(Parts));
    (push_back(std::forward<Parts>(parts)), ...);
  }
  explicit SequentialImpl(std::initializer_list<NamedAnyModule> named);
  explicit SequentialImpl(const OrderedDict<std::string, AnyModule>& named);

  /// Adds a module, a holder or a function of a Tensor behind the last. Its name is its place, or
  /// the next number if that is taken, as after unregister_module().
  template <class Part>
  void push_back(Part&& part) {
    push_back(next_number(size()), std::forward<Part>(part));
  }
  template <class Part>
  void push_back(const std::string& name, Part&& part) {
    if constexpr (std::is_same_v<std::decay_t<Part>, AnyModule>) {
      insert(name, std::forward<Part>(part));
    } else if constexpr (std::is_constructible_v<AnyModule, Part>) {
      insert(name, AnyModule(std::forward<Part>(part)));
    } else if constexpr (!kIsPart<Part>) {
      static_assert(kIsPart<Part>, "Sequential takes modules, and functions of a Tensor");
    } else {
      insert(name, AnyModule(Functional(std::forward<Part>(part))));
    }
  }
  /// push_back() for each element of a container, for example of another Sequential.
  template <class Container>
  void extend(const Container& container) {
    for (const auto& part : detail::elements_of(container)) push_back(part);
  }

  /// Calls the first part with the arguments and returns the result of the last. Throws when empty,
  /// or if the result is no R.
  template <class R = Tensor, class... Args>
  R forward(Args&&... args) const {
    AnyValue result = forward_any(detail::packed(std::forward<Args>(args)...));
    R* value = result.template try_get<R>();
    HALFTAPE_CHECK(value, "The type of the return value is ", detail::name_of(result.type_info()),
                   ", but you asked for type ", detail::name_of(typeid(R)));
    return std::move(*value);
  }
  /// The same with arguments and result in boxes.
  AnyValue forward_any(std::vector<AnyValue> arguments) const;
  /// The loss of forward(x), (…, C): the mean cross_entropy for int64 classes (…), none of them
  /// ignored, else mse_loss with a target (…, C). `scale`: as mlp_loss() takes it, from
  /// GradScaler::factor().
  ///
  /// The last digits differ by device: on a GPU, Linear layers with one activation between them
  /// (ReLU, tanh GELU, SiLU, Tanh or Sigmoid) and nothing else run as mlp_loss(), which does not
  /// round the outputs to x's dtype before the loss. On the CPU, and for other parts, the outputs
  /// are rounded first and `scale` is not used. Call mse_loss(net->forward(x), target) for one
  /// program on both.
  Tensor loss(const Tensor& x, const Tensor& target, const Tensor& scale = {}) const;

  /// The part at a position; throws if there is none, or if it is no M.
  template <class M>
  M& at(size_t index) const {
    return any(index).template get<M>();
  }
  std::shared_ptr<Module> ptr(size_t index) const { return any(index).ptr(); }
  template <class M>
  std::shared_ptr<M> ptr(size_t index) const {
    return any(index).template ptr<M>();
  }
  std::shared_ptr<Module> operator[](size_t index) const { return ptr(index); }
  auto begin() { return parts_.begin(); }
  auto end() { return parts_.end(); }
  auto begin() const { return parts_.begin(); }
  auto end() const { return parts_.end(); }
  size_t size() const { return parts_.size(); }
  bool is_empty() const { return parts_.empty(); }

  void pretty_print(std::ostream& out) const override;

 private:
  void before_exchange(const std::string& name, const std::shared_ptr<Module>& module) override;
  void insert(const std::string& name, AnyModule part);
  const AnyModule& any(size_t index) const;
  /// Replaces the value by that behind the Linear layers which begin at a part, run as one op, and
  /// returns how many parts these are. 0: there are none, or the op throws; the layers, called one
  /// by one, then say which of them fails.
  size_t forward_fused(size_t first, AnyValue& value) const;

  std::vector<AnyModule> parts_;
};

class Sequential : public ModuleHolder<SequentialImpl> {
 public:
  using ModuleHolder<SequentialImpl>::ModuleHolder;
  using Impl = SequentialImpl;
  Sequential();
  Sequential(std::initializer_list<NamedAnyModule> named);
};

}  // namespace halftape::nn
