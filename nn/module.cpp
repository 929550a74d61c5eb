#include "halftape/nn/module.h"

#include "halftape/autograd/grad_mode.h"

namespace halftape::nn {
namespace {

void check_name(const char* kind, const std::string& name, bool taken) {
  HALFTAPE_CHECK(!name.empty() && name.find('.') == std::string::npos, "register_", kind,
                 ": the name \"", name, "\" is empty or has a dot (dots separate submodules)");
  HALFTAPE_CHECK(!taken, "register_", kind, ": \"", name, "\" is registered already");
}

/// Names and tensors of a module and those below it, by a getter of each module's own.
template <class Own>
void collect(const Module& module, const std::string& prefix, bool recurse, const Own& own,
             OrderedDict<std::string, Tensor>& into) {
  for (const auto& item : own(module))
    if (item.value().defined()) into.insert(prefix + item.key(), item.value());
  if (!recurse) return;
  for (const auto& child : module.named_children())
    collect(*child.value(), prefix + child.key() + ".", true, own, into);
}

void collect_modules(const Module& module, const std::string& prefix,
                     OrderedDict<std::string, std::shared_ptr<Module>>& into) {
  for (const auto& child : module.named_children()) {
    into.insert(prefix + child.key(), child.value());
    collect_modules(*child.value(), prefix + child.key() + ".", into);
  }
}

}  // namespace

OrderedDict<std::string, Tensor> Module::named_parameters(bool recurse) const {
  OrderedDict<std::string, Tensor> all;
  collect(
      *this, "", recurse, [](const Module& m) -> const auto& { return m.parameters_; }, all);
  return all;
}
OrderedDict<std::string, Tensor> Module::named_buffers(bool recurse) const {
  OrderedDict<std::string, Tensor> all;
  collect(
      *this, "", recurse, [](const Module& m) -> const auto& { return m.buffers_; }, all);
  return all;
}
std::vector<Tensor> Module::parameters(bool recurse) const {
  return named_parameters(recurse).values();
}
std::vector<Tensor> Module::buffers(bool recurse) const { return named_buffers(recurse).values(); }

OrderedDict<std::string, std::shared_ptr<Module>> Module::named_modules() const {
  OrderedDict<std::string, std::shared_ptr<Module>> all;
  collect_modules(*this, "", all);
  return all;
}

std::vector<std::pair<std::string, std::shared_ptr<Module>>> Module::pairs() const {
  std::vector<std::pair<std::string, std::shared_ptr<Module>>> all;
  for (const auto& item : children_) all.push_back(item.pair());
  return all;
}

void Module::train(bool on) {
  training_ = on;
  for (const auto& child : children_) child.value()->train(on);
}

template <class F>
void Module::for_each_tensor(const F& f) {
  for (auto& item : parameters_) f(item.value());
  for (auto& item : buffers_) f(item.value());
  for (const auto& child : children_) child.value()->for_each_tensor(f);
}

void Module::to(Device device, Dtype dtype) {
  HALFTAPE_CHECK(is_floating_point(dtype), "Module::to: ", dtype, " is not a floating-point dtype");
  auto converted = [&](const Array& a) {
    return (is_floating_point(a.dtype()) ? a.to(dtype) : a).to(device);
  };
  for_each_tensor([&](Tensor& t) {
    if (!t.defined()) return;
    const bool trains = t.requires_grad();
    t.requires_grad_(false);  // the accumulator knows the old dtype
    t.impl()->set_value(converted(t.array()));
    t.requires_grad_(trains);
    if (t.grad().defined()) t.mutable_grad() = Tensor(converted(t.grad().array()));
  });
}

void Module::to(Device device) {
  for_each_tensor([&](Tensor& t) {
    if (!t.defined()) return;
    t.impl()->set_value(t.array().to(device));
    if (t.grad().defined()) t.mutable_grad() = Tensor(t.grad().array().to(device));
  });
}

void Module::to(Dtype dtype) {
  const std::vector<Tensor> all = parameters();
  to(all.empty() ? Device(kCPU) : all[0].device(), dtype);
}

void Module::zero_grad(bool set_to_none) {
  const NoGradGuard no_grad;
  for (Tensor& p : parameters()) {
    Tensor& g = p.mutable_grad();
    if (!g.defined()) continue;
    if (set_to_none)
      g = Tensor();
    else
      g.detach_().zero_();
  }
}

std::shared_ptr<Module> Module::clone(const std::optional<Device>&) const {
  halftape::detail::fail("clone() has not been implemented for ", name_,
                         "; override Module::clone in its class");
}

Tensor& Module::register_parameter(const std::string& name, Tensor tensor, bool requires_grad) {
  check_name("parameter", name, parameters_.contains(name));
  if (tensor.defined()) tensor.requires_grad_(requires_grad);
  return parameters_.insert(name, std::move(tensor));
}

Tensor& Module::register_buffer(const std::string& name, Tensor tensor) {
  check_name("buffer", name, buffers_.contains(name));
  return buffers_.insert(name, std::move(tensor));
}

void Module::insert_module(const std::string& name, std::shared_ptr<Module> module) {
  check_name("module", name, children_.contains(name));
  HALFTAPE_CHECK(module && module.get() != this, "register_module: \"", name,
                 "\" is empty or the module itself");
  children_.insert(name, std::move(module));
}

void Module::pretty_print(std::ostream& out) const { out << name_; }

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
