// Sequential: modules and functions one after another. Spelled as torch::nn::Sequential.
#pragma once
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "halftape/nn/any_module.h"
#include "halftape/nn/modules/container/functional.h"

namespace halftape::nn {

/// Calls its parts in order, each on the result of the one before. Parts are whatever an AnyModule
/// is made of (modules, holders, pointers, other Sequentials), or functions of a Tensor; each is a
/// submodule under its number, or the name it is given.
///
///     nn::Sequential net(nn::Linear(3, 4), relu, nn::Linear(4, 2));
///     nn::Sequential named({{"fc", nn::Linear(3, 4)}, {"act", nn::ReLU()}});
class SequentialImpl : public Cloneable<SequentialImpl> {
  template <class Part>  // asks the second question only if it must: a holder has no answer
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

  template <class Part>
  void push_back(Part&& part) {
    push_back(std::to_string(size()), std::forward<Part>(part));
  }
  template <class Part>
  void push_back(const std::string& name, Part&& part) {
    if constexpr (std::is_same_v<std::decay_t<Part>, AnyModule>) {
      insert(name, std::forward<Part>(part));
    } else if constexpr (std::is_constructible_v<AnyModule, Part>) {
      insert(name, AnyModule(std::forward<Part>(part)));
    } else {
      static_assert(kIsPart<Part>, "Sequential takes modules, and functions of a Tensor");
      insert(name, AnyModule(Functional(std::forward<Part>(part))));
    }
  }
  /// push_back() for all that a container holds, another Sequential's parts, say.
  template <class Container>
  void extend(const Container& container) {
    for (const auto& part : container) push_back(part);
  }

  /// The result of the last part, whose type must be R. The first is called with the arguments.
  /// Throws when empty.
  template <class R = Tensor, class... Args>
  R forward(Args&&... args) const {
    AnyValue result = forward_any(detail::packed(std::forward<Args>(args)...));
    R* value = result.template try_get<R>();
    HALFTAPE_CHECK(value, "The type of the return value is ", detail::name_of(result.type_info()),
                   ", but you asked for type ", detail::name_of(typeid(R)));
    return std::move(*value);
  }
  AnyValue forward_any(std::vector<AnyValue> arguments) const;
  /// What forward(x), (…, C), loses against a target: the mean cross-entropy with int64 classes
  /// (…), each of which counts, or else the mean squared distance to (…, C). On a GPU, Linear
  /// layers with one activation between them (ReLU, GELU in its tanh form, SiLU, Tanh, Sigmoid)
  /// and nothing else are mlp_loss(), which computes a small network's whole pass at once and does
  /// not round its outputs; `scale` as it takes it, from a GradScaler's factor().
  Tensor loss(const Tensor& x, const Tensor& target, const Tensor& scale = {}) const;

  /// The part at a position, as an M; as a pointer; or as what it is.
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

  std::shared_ptr<Module> clone(const std::optional<Device>& device = {}) const override;
  void pretty_print(std::ostream& out) const override;

 private:
  void insert(const std::string& name, AnyModule part);
  const AnyModule& any(size_t index) const;

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
