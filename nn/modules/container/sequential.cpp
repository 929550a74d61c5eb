#include "halftape/nn/modules/container/sequential.h"

namespace halftape::nn {

SequentialImpl::SequentialImpl(std::initializer_list<NamedAnyModule> named) {
  for (const NamedAnyModule& part : named) insert(part.name(), part.module());
}
SequentialImpl::SequentialImpl(const OrderedDict<std::string, AnyModule>& named) {
  for (const auto& part : named) insert(part.key(), part.value());
}

void SequentialImpl::insert(const std::string& name, AnyModule part) {
  register_module(name, part.ptr());
  parts_.push_back(std::move(part));
}

const AnyModule& SequentialImpl::any(size_t index) const {
  HALFTAPE_CHECK(index < size(), "Index out of range: ", index, " of a Sequential of ", size());
  return parts_[index];
}

AnyValue SequentialImpl::forward_any(std::vector<AnyValue> arguments) const {
  HALFTAPE_CHECK(!parts_.empty(), "Cannot call forward() on an empty Sequential");
  AnyValue value = parts_.front().forward_any(std::move(arguments));
  for (size_t i = 1; i < parts_.size(); ++i) value = parts_[i].any_forward(std::move(value));
  return value;
}

std::shared_ptr<Module> SequentialImpl::clone(const std::optional<Device>& device) const {
  auto copy = std::make_shared<SequentialImpl>();
  copy->train(is_training());
  // The parts of a submodule that was replaced still are what forward() calls: clone those.
  const auto names = children_.keys();
  for (size_t i = 0; i < parts_.size(); ++i) copy->insert(names[i], parts_[i].clone(device));
  return copy;
}

void SequentialImpl::pretty_print(std::ostream& out) const { out << "halftape::nn::Sequential"; }

}  // namespace halftape::nn
