// ParameterList and ParameterDict: parameters by number and by name.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "halftape/nn/module.h"

namespace halftape::nn {

/// Parameters under the names "0", "1", … Each requires grad if it did before.
class ParameterListImpl : public Cloneable<ParameterListImpl, ContainerModule> {
 public:
  ParameterListImpl() = default;
  template <class... Tensors>
  requires(sizeof...(Tensors) > 0 && (std::is_convertible_v<Tensors, Tensor> &&
                                      ...)) explicit ParameterListImpl(Tensors&&... parameters) {
    (append(std::forward<Tensors>(parameters)), ...);
  }

  /// Registers a parameter under its place as name.
  void append(const Tensor& parameter);
  void append(const OrderedDict<std::string, Tensor>::Item& item) { append(item.value()); }
  /// append() for each element of a container: tensors, or another list.
  template <class Container>
  void extend(const Container& container) {
    for (const auto& parameter : detail::elements_of(container)) append(parameter);
  }
  template <class Container>
  ParameterListImpl& operator+=(const Container& container) {
    extend(container);
    return *this;
  }

  /// Throws for an index out of range.
  Tensor& at(size_t index);
  const Tensor& at(size_t index) const { return const_cast<ParameterListImpl*>(this)->at(index); }
  Tensor& operator[](size_t index) { return at(index); }
  const Tensor& operator[](size_t index) const { return at(index); }
  auto begin() { return parameters_.begin(); }
  auto end() { return parameters_.end(); }
  auto begin() const { return parameters_.begin(); }
  auto end() const { return parameters_.end(); }
  size_t size() const { return parameters_.size(); }
  bool is_empty() const { return parameters_.is_empty(); }

  void pretty_print(std::ostream& out) const override;
};
HALFTAPE_MODULE(ParameterList);

/// Parameters by name, in order of insertion. Each requires grad if it did before.
class ParameterDictImpl : public Cloneable<ParameterDictImpl, ContainerModule> {
 public:
  ParameterDictImpl() = default;
  explicit ParameterDictImpl(const OrderedDict<std::string, Tensor>& parameters);

  /// Registers a parameter under that name.
  Tensor& insert(const std::string& name, const Tensor& parameter);
  /// Removes and returns a parameter; throws when the name is unknown.
  Tensor pop(const std::string& name);
  /// Replaces tensors under existing names; throws, changing nothing, for an unknown name.
  template <class Container>
  void update(const Container& container) {
    for (const auto& item : container) get(item.key());
    for (const auto& item : container) get(item.key()) = item.value();
  }
  void clear() { parameters_.clear(); }

  Tensor& get(const std::string& name) { return parameters_[name]; }
  const Tensor& get(const std::string& name) const { return parameters_[name]; }
  Tensor& operator[](const std::string& name) { return get(name); }
  const Tensor& operator[](const std::string& name) const { return get(name); }
  std::vector<std::string> keys() const { return parameters_.keys(); }
  std::vector<Tensor> values() const { return parameters_.values(); }
  bool contains(const std::string& name) const { return parameters_.contains(name); }
  auto begin() { return parameters_.begin(); }
  auto end() { return parameters_.end(); }
  auto begin() const { return parameters_.begin(); }
  auto end() const { return parameters_.end(); }
  size_t size() const { return parameters_.size(); }
  bool empty() const { return parameters_.is_empty(); }

  void pretty_print(std::ostream& out) const override;
};
HALFTAPE_MODULE(ParameterDict);

}  // namespace halftape::nn
