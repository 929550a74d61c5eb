#include "halftape/nn/modules/container/module_list.h"

namespace halftape::nn {

std::shared_ptr<Module> ModuleListImpl::ptr(size_t index) const {
  HALFTAPE_CHECK(index < size(), "Index out of range: ", index, " of a ModuleList of ", size());
  return modules_[index];
}

void ModuleListImpl::insert_ptr(size_t index, std::shared_ptr<Module> module) {
  HALFTAPE_CHECK(index <= size(), "Index out of range: ", index, " to insert at, of a ModuleList ",
                 "of ", size());
  for (size_t i = 0; index < size() && i < size(); ++i)
    HALFTAPE_CHECK(children_.contains(std::to_string(i)), "ModuleList: \"", i, "\" was taken out; ",
                   "what is behind it cannot move on");
  // Adds one name at the end; the modules behind `index` move up by one name.
  register_module(next_number(size()), module);
  modules_.push_back(module);
  for (size_t i = size() - 1; i > index; --i) replace_module(std::to_string(i), modules_[i - 1]);
  if (index + 1 < size()) replace_module(std::to_string(index), std::move(module));
}

void ModuleListImpl::before_exchange(const std::string& name,
                                     const std::shared_ptr<Module>& module) {
  const size_t at = position(name, modules_, [](const auto& part) { return part; });
  if (at == size()) return;
  if (module)
    modules_[at] = module;
  else
    modules_.erase(modules_.begin() + static_cast<std::ptrdiff_t>(at));
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

void ModuleDictImpl::pretty_print(std::ostream& out) const { out << "halftape::nn::ModuleDict"; }

}  // namespace halftape::nn
