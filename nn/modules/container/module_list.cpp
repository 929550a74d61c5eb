#include "halftape/nn/modules/container/module_list.h"

namespace halftape::nn {

std::shared_ptr<Module> ModuleListImpl::ptr(size_t index) const {
  HALFTAPE_CHECK(index < size(), "Index out of range: ", index, " of a ModuleList of ", size());
  return modules_[index];
}

void ModuleListImpl::insert_ptr(size_t index, std::shared_ptr<Module> module) {
  HALFTAPE_CHECK(index <= size(), "Index out of range: ", index, " to insert at, of a ModuleList ",
                 "of ", size());
  // Adds one name at the end; the modules behind `index` move up by one name.
  register_module(std::to_string(size()), module);
  modules_.insert(modules_.begin() + static_cast<std::ptrdiff_t>(index), std::move(module));
  for (size_t i = index; i < size(); ++i) replace_module(std::to_string(i), modules_[i]);
}

std::shared_ptr<Module> ModuleListImpl::clone(const std::optional<Device>& device) const {
  auto copy = std::make_shared<ModuleListImpl>();
  copy->train(is_training());
  for (const auto& module : modules_) copy->push_back(module->clone(device));
  return copy;
}

void ModuleListImpl::pretty_print(std::ostream& out) const { out << "halftape::nn::ModuleList"; }

void ModuleDictImpl::insert(const std::string& name, std::shared_ptr<Module> module) {
  if (contains(name))
    replace_module(name, std::move(module));
  else
    register_module(name, std::move(module));
}

std::shared_ptr<Module> ModuleDictImpl::pop(const std::string& name) {
  std::shared_ptr<Module> module = children_[name];
  unregister_module(name);
  return module;
}

std::shared_ptr<Module> ModuleDictImpl::clone(const std::optional<Device>& device) const {
  auto copy = std::make_shared<ModuleDictImpl>();
  copy->train(is_training());
  for (const auto& item : children_) copy->insert(item.key(), item.value()->clone(device));
  return copy;
}

void ModuleDictImpl::pretty_print(std::ostream& out) const { out << "halftape::nn::ModuleDict"; }

}  // namespace halftape::nn
