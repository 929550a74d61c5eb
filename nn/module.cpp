#include "halftape/nn/module.h"

#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <typeinfo>

#include "halftape/autograd/tape/grad_mode.h"
#include "halftape/autograd/tape/grad_tag.h"
#include "halftape/autograd/tape/separate_gradients.h"
#include "halftape/core/machine/warn.h"

namespace halftape::nn {
namespace {

void check_name(const char* what, const std::string& name) {
  HALFTAPE_CHECK(!name.empty(), what, " name must not be empty");
  HALFTAPE_CHECK(name.find('.') == std::string::npos, what, " name must not contain a dot (got '",
                 name, "'): dots separate the names of nested modules");
}

std::string listed(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

void collect_modules(const Module& module, const std::string& prefix,
                     OrderedDict<std::string, std::shared_ptr<Module>>& into) {
  for (const auto& child : module.named_children()) {
    const std::string name = detail::joined(prefix, child.key());
    into.insert(name, child.value());
    collect_modules(*child.value(), name, into);
  }
}

constexpr int kMostNested = 500;  // what walks over modules takes room on the stack for each

std::string kind_of(std::string name) {
  if (name.ends_with('>')) {
    int open = 0;
    do {
      open += name.back() == '>' ? 1 : name.back() == '<' ? -1 : 0;
      name.pop_back();
    } while (open > 0 && !name.empty());
  }
  if (const size_t at = name.rfind("::"); at != std::string::npos) name.erase(0, at + 2);
  if (name.ends_with("Impl")) name.resize(name.size() - 4);
  return name;
}

void check_floating(Dtype dtype) {
  check_dtype(dtype);
  HALFTAPE_CHECK(is_floating_point(dtype), "Module::to: ", dtype, " is not a floating-point dtype");
}
/// The dtype that a tensor has after Module::to(dtype).
Dtype dtype_after(const Tensor& t, Dtype dtype) {
  return t.is_floating_point() ? dtype : t.dtype();
}

Tensor copied(const Tensor& t, const std::optional<Device>& device) {
  if (!t.defined()) return t;
  return t.detach().to(device.value_or(t.device()), false, true).requires_grad_(t.requires_grad());
}

/// Fills the tensors of a clone with copies of the original's.
void copy_tensors(const OrderedDict<std::string, Tensor>& to,
                  const OrderedDict<std::string, Tensor>& from, const char* what,
                  const std::string& module, const std::optional<Device>& device) {
  const auto fits = [&](const auto& item) {
    const Tensor* mine = to.find(item.key());
    return mine && mine->defined() == item.value().defined();
  };
  HALFTAPE_CHECK(to.size() == from.size() && std::all_of(from.begin(), from.end(), fits),
                 "clone: after reset() a ", module, " has the ", what, "s {", listed(to.keys()),
                 "}, and the original {", listed(from.keys()),
                 "}: register each in reset(), and call that in the constructor");
  for (const auto& item : from) {
    const Tensor& original = item.value();
    if (!original.defined()) continue;
    const Tensor& copy = to[item.key()];
    copy.requires_grad_(false);
    copy.set_data(copied(original.detach(), device));
    copy.requires_grad_(original.requires_grad());
  }
}

}  // namespace

thread_local constinit detail::ResultWatcher* detail::result_watcher = nullptr;

std::string Module::kind() const { return kind_of(name()); }

void detail::empty_holder() {
  halftape::detail::fail("Accessing empty ModuleHolder, made from nullptr and not assigned since");
}

std::string detail::name_of(const std::type_info& type) {
  int failed = 0;
  const std::unique_ptr<char, decltype(&std::free)> name(
      abi::__cxa_demangle(type.name(), nullptr, nullptr, &failed), &std::free);
  std::string text = failed ? type.name() : name.get();
  // libc++ has its types in a namespace of their version.
  for (size_t at; (at = text.find("std::__1::")) != std::string::npos;) text.erase(at + 5, 5);
  return text;
}

std::string detail::joined(const std::string& prefix, const std::string& name) {
  return prefix.empty() ? name : prefix + "." + name;
}

void Module::collect(OrderedDict<std::string, Tensor> Module::*own, const std::string& prefix,
                     bool recurse, OrderedDict<std::string, Tensor>& into) const {
  for (const auto& item : this->*own)
    if (item.value().defined()) into.insert(detail::joined(prefix, item.key()), item.value());
  if (!recurse) return;
  for (const auto& child : children_)
    child.value()->collect(own, detail::joined(prefix, child.key()), true, into);
}
OrderedDict<std::string, Tensor> Module::named_parameters(bool recurse) const {
  OrderedDict<std::string, Tensor> all("Parameter");
  collect(&Module::parameters_, "", recurse, all);
  return all;
}
OrderedDict<std::string, Tensor> Module::named_buffers(bool recurse) const {
  OrderedDict<std::string, Tensor> all("Buffer");
  collect(&Module::buffers_, "", recurse, all);
  return all;
}
std::vector<Tensor> Module::parameters(bool recurse) const {
  return named_parameters(recurse).values();
}
std::vector<Tensor> Module::buffers(bool recurse) const { return named_buffers(recurse).values(); }

std::shared_ptr<Module> Module::shared() const {
  const std::shared_ptr<const Module> self = weak_from_this().lock();
  HALFTAPE_CHECK(self, "It looks like you attempted to retrieve your top-level module as a ",
                 "shared_ptr, but no shared_ptr owns this ", name(),
                 ": make it with std::make_shared, or pass include_self=false");
  return std::const_pointer_cast<Module>(self);
}

OrderedDict<std::string, std::shared_ptr<Module>> Module::named_modules(
    const std::string& name_prefix, bool include_self) const {
  OrderedDict<std::string, std::shared_ptr<Module>> all("Submodule");
  if (include_self) all.insert(name_prefix, shared());
  collect_modules(*this, name_prefix, all);
  return all;
}
std::vector<std::shared_ptr<Module>> Module::modules(bool include_self) const {
  return named_modules({}, include_self).values();
}

void Module::train(bool on) {
  training_ = on;
  for (const auto& child : children_) child.value()->train(on);
}

template <class Convert>
void Module::convert_own(const Convert& convert) {
  const NoGradGuard no_grad;
  for (auto* dict : {&parameters_, &buffers_})
    for (const auto& item : *dict) {
      const Tensor& t = item.value();
      if (!t.defined()) continue;
      t.set_data(convert(t.detach()));
      if (!t.grad().defined()) continue;
      const bool partial = is_partial(t.grad());
      t.mutable_grad() = convert(t.grad());
      set_partial(t.grad(), partial);
    }
}

void Module::to(Device device, Dtype dtype, bool non_blocking) {
  check_floating(dtype);
  for (const auto& child : children_) child.value()->to(device, dtype, non_blocking);
  convert_own([&](const Tensor& t) { return t.to(device, dtype_after(t, dtype), non_blocking); });
}
void Module::to(Dtype dtype, bool non_blocking) {
  check_floating(dtype);
  for (const auto& child : children_) child.value()->to(dtype, non_blocking);
  convert_own([&](const Tensor& t) { return t.to(dtype_after(t, dtype), non_blocking); });
}
void Module::to(Device device, bool non_blocking) {
  for (const auto& child : children_) child.value()->to(device, non_blocking);
  convert_own([&](const Tensor& t) { return t.to(device, non_blocking); });
}

void Module::zero_grad(bool set_to_none) {
  const NoGradGuard no_grad;
  for (const auto& child : children_) child.value()->zero_grad(set_to_none);
  for (const Tensor& p : parameters(false)) {
    if (!p.grad().defined()) continue;
    if (set_to_none)
      p.mutable_grad() = Tensor();
    else
      zero_gradient(p);
  }
}

std::shared_ptr<Module> Module::clone(const std::optional<Device>&) const {
  halftape::detail::fail("clone() has not been implemented for ", name(),
                         "; derive it from nn::Cloneable<", name(),
                         ">, or override Module::clone in it");
}
void Module::clone_(const Module& other, const std::optional<Device>&) {
  halftape::detail::fail("clone: the submodule ", other.name(),
                         " cannot be copied into the one that reset() made; derive it from "
                         "nn::Cloneable<",
                         other.name(), ">");
}

namespace {
/// Throws where a class of the program's own inherits shallow_copy(), which makes one of its base.
void check_whole_copy(const Module& copy, const Module& original) {
  HALFTAPE_CHECK(typeid(copy) == typeid(original), "clone: a copy of ", original.name(),
                 " would be a ", copy.name(), " alone; derive it from nn::Cloneable<",
                 original.name(), ", its base>, or override Module::clone in it");
}
}  // namespace

std::shared_ptr<Module> CloneableModule::clone(const std::optional<Device>& device) const {
  const std::shared_ptr<CloneableModule> copy(shallow_copy());
  check_whole_copy(*copy, *this);
  copy->unregister_all();
  copy->reset();
  copy->copy_registered(*this, device);
  copy->give_place({}, 0);
  return copy;
}
std::shared_ptr<Module> ContainerModule::clone(const std::optional<Device>& device) const {
  const std::shared_ptr<ContainerModule> copy(static_cast<ContainerModule*>(shallow_copy()));
  check_whole_copy(*copy, *this);
  for (auto* dict : {&copy->parameters_, &copy->buffers_})
    for (auto& item : *dict) item.value() = copied(item.value(), device);
  for (auto& child : copy->children_) {
    std::shared_ptr<Module> clone = child.value()->clone(device);
    copy->before_exchange(child.key(), clone);
    child.value() = std::move(clone);
  }
  copy->give_place({}, 0);
  return copy;
}
void CloneableModule::clone_(const Module& other, const std::optional<Device>& device) {
  HALFTAPE_CHECK(assign_from(*other.clone(device)), "clone: reset() registered a ", name(),
                 " where the original has a ", other.name());
}

void Module::unregister_all() {
  parameters_.clear();
  buffers_.clear();
  children_.clear();
}

void Module::copy_registered(const Module& other, const std::optional<Device>& device) {
  copy_tensors(parameters_, other.parameters_, "parameter", name(), device);
  copy_tensors(buffers_, other.buffers_, "buffer", name(), device);
  HALFTAPE_CHECK(children_.keys() == other.children_.keys(), "clone: after reset() a ", name(),
                 " has the submodules {", listed(children_.keys()), "}, and the original {",
                 listed(other.children_.keys()),
                 "}: register each in reset(), and call that in the constructor");
  for (const auto& child : other.children_) children_[child.key()]->clone_(*child.value(), device);
}

Tensor& Module::register_parameter(const std::string& name, Tensor tensor, bool requires_grad) {
  check_name("Parameter", name);
  if (tensor.defined())
    tensor.requires_grad_(requires_grad);
  else if (requires_grad)
    warn(
        "register_parameter: an undefined tensor cannot require grad. Ignoring the "
        "`requires_grad=true` function parameter.");
  return parameters_.insert(name, std::move(tensor));
}

Tensor& Module::register_buffer(const std::string& name, Tensor tensor) {
  check_name("Buffer", name);
  return buffers_.insert(name, std::move(tensor));
}

/// Throws unless `module` may become a part of this one: there, and not above or the same.
void Module::check_part(const char* op, const std::string& name, const Module* module) const {
  HALFTAPE_CHECK(module && module != this, op, ": \"", name, "\" is empty or the module itself");
  std::vector<std::pair<const Module*, int>> below{{module, place_.depth + 1}};
  while (!below.empty()) {
    const auto [each, depth] = below.back();
    below.pop_back();
    HALFTAPE_CHECK(each != this, op, ": \"", name, "\" holds this ", this->name(),
                   "; a module cannot be a part of its own part");
    HALFTAPE_CHECK(depth < kMostNested, op, ": with \"", name, "\" modules are nested more than ",
                   kMostNested, " deep; a ModuleList holds them side by side");
    for (const auto& child : each->children_) below.emplace_back(child.value().get(), depth + 1);
  }
}

void Module::give_place(const std::string& path, int depth) {
  place_.path = path;
  place_.depth = std::max(place_.depth, depth);
  if (place_.kind.empty()) place_.kind = kind();
  for (const auto& child : children_)
    child.value()->give_place(detail::joined(path, child.key()), place_.depth + 1);
}

/// Takes its path from the module of a name, which is about to leave, unless it got another since.
void Module::take_place(const std::string& name) {
  Module& leaving = *children_[name];
  if (leaving.place_.path == detail::joined(place_.path, name)) leaving.give_place({}, 0);
}

void Module::insert_module(const std::string& name, const std::shared_ptr<Module>& module) {
  check_name("Submodule", name);
  check_part("register_module", name, module.get());
  children_.insert(name, module);
  module->give_place(detail::joined(place_.path, name), place_.depth + 1);
}

void Module::exchange_module(const std::string& name, const std::shared_ptr<Module>& module) {
  check_part("replace_module", name, module.get());
  before_exchange(name, module);
  take_place(name);
  children_[name] = module;
  module->give_place(detail::joined(place_.path, name), place_.depth + 1);
}

void Module::unregister_module(const std::string& name) {
  HALFTAPE_CHECK(children_.contains(name), "No Module with name `", name, "` is registered");
  before_exchange(name, {});
  take_place(name);
  children_.erase(name);
}

void Module::pretty_print(std::ostream& out) const { out << name(); }

void Module::print_tree(std::ostream& out, const std::string& indent) const {
  pretty_print(out);
  if (children_.is_empty()) return;
  out << "(\n";
  for (const auto& child : children_) {
    out << indent << "  (" << child.key() << "): ";
    child.value()->print_tree(out, indent + "  ");
    out << '\n';
  }
  out << indent << ')';
}

std::ostream& operator<<(std::ostream& out, const Module& module) {
  module.print_tree(out, "");
  return out;
}

}  // namespace halftape::nn
