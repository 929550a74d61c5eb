// ModuleList and ModuleDict: submodules by number and by name; the owner calls them.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "halftape/nn/module.h"

namespace halftape::nn {

namespace detail {
/// A shared_ptr to a module given by pointer, by holder or by value.
template <class M>
std::shared_ptr<Module> shared_module(M&& module) {
  using Plain = std::decay_t<M>;
  if constexpr (Holder<Plain>)
    return module.ptr();
  else if constexpr (std::is_base_of_v<Module, Plain>)
    return std::make_shared<Plain>(std::forward<M>(module));
  else
    return std::forward<M>(module);
}
/// The module as an M; throws when it is not one.
template <class M>
M& module_as(const std::shared_ptr<Module>& module) {
  M* cast = module->template as<M>();
  HALFTAPE_CHECK(cast, "Unable to cast the ", module->name(), " to ", name_of(typeid(M)));
  return *cast;
}
}  // namespace detail

/// Modules under the names "0", "1", … It has no forward().
class ModuleListImpl : public Cloneable<ModuleListImpl, ContainerModule> {
 public:
  ModuleListImpl() = default;
  template <class... Modules>
  requires(sizeof...(Modules) > 1 ||
           (sizeof...(Modules) == 1 && !(std::is_base_of_v<ModuleListImpl, std::decay_t<Modules>> ||
                                         ...))) explicit ModuleListImpl(Modules&&... modules) {
    (push_back(std::forward<Modules>(modules)), ...);
  }

  /// A module by pointer, by holder or by value.
  template <class M>
  void push_back(M&& module) {
    insert(size(), std::forward<M>(module));
  }
  /// Inserts before the module at `index`; the modules behind move up by one.
  template <class M>
  void insert(size_t index, M&& module) {
    insert_ptr(index, detail::shared_module(std::forward<M>(module)));
  }
  template <class Container>
  void extend(const Container& container) {
    for (const auto& module : detail::elements_of(container)) push_back(module);
  }

  /// A module by its place; with M, as an M. Throws for an index out of range and for another type.
  std::shared_ptr<Module> ptr(size_t index) const;
  template <class M>
  std::shared_ptr<M> ptr(size_t index) const {
    return std::dynamic_pointer_cast<M>(ptr(index));
  }
  template <class M>
  M& at(size_t index) const {
    return detail::module_as<M>(ptr(index));
  }
  std::shared_ptr<Module> operator[](size_t index) const { return ptr(index); }
  auto begin() { return modules_.begin(); }
  auto end() { return modules_.end(); }
  auto begin() const { return modules_.begin(); }
  auto end() const { return modules_.end(); }
  size_t size() const { return modules_.size(); }
  bool is_empty() const { return modules_.empty(); }

  void pretty_print(std::ostream& out) const override;

 private:
  void before_exchange(const std::string& name, const std::shared_ptr<Module>& module) override;
  void insert_ptr(size_t index, std::shared_ptr<Module> module);
  std::vector<std::shared_ptr<Module>> modules_;  // children_ without the names
};
HALFTAPE_MODULE(ModuleList);

/// Modules by name, in order of insertion. It has no forward().
class ModuleDictImpl : public Cloneable<ModuleDictImpl, ContainerModule> {
 public:
  using Item = OrderedDict<std::string, std::shared_ptr<Module>>::Item;
  ModuleDictImpl() = default;
  explicit ModuleDictImpl(
      const std::vector<std::pair<std::string, std::shared_ptr<Module>>>& modules) {
    update(modules);
  }
  explicit ModuleDictImpl(const OrderedDict<std::string, std::shared_ptr<Module>>& modules) {
    update(modules);
  }

  /// Adds modules, or replaces the ones with the same names.
  void update(const std::vector<std::pair<std::string, std::shared_ptr<Module>>>& modules) {
    for (const auto& [name, module] : modules) insert(name, module);
  }
  template <class Container>
  void update(const Container& container) {
    for (const auto& item : container) insert(item.key(), item.value());
  }
  /// Adds a module, or replaces the one of that name.
  void insert(const std::string& name, std::shared_ptr<Module> module);
  /// Removes and returns a module; throws when the name is unknown.
  std::shared_ptr<Module> pop(const std::string& name);
  void clear() {
    for (const std::string& name : keys()) unregister_module(name);
  }

  std::shared_ptr<Module> operator[](const std::string& name) const { return children_[name]; }
  template <class M>
  M& at(const std::string& name) const {
    return detail::module_as<M>(children_[name]);
  }
  std::vector<std::pair<std::string, std::shared_ptr<Module>>> items() const {
    return children_.pairs();
  }
  std::vector<std::string> keys() const { return children_.keys(); }
  std::vector<std::shared_ptr<Module>> values() const { return children_.values(); }
  bool contains(const std::string& name) const { return children_.contains(name); }
  auto begin() { return children_.begin(); }
  auto end() { return children_.end(); }
  auto begin() const { return children_.begin(); }
  auto end() const { return children_.end(); }
  size_t size() const { return children_.size(); }
  bool empty() const { return children_.is_empty(); }

  void pretty_print(std::ostream& out) const override;
};
HALFTAPE_MODULE(ModuleDict);

}  // namespace halftape::nn
