#include "halftape/nn/modules/container/parameter_list.h"

namespace halftape::nn {
namespace {

void print(std::ostream& out, const char* name, const OrderedDict<std::string, Tensor>& all) {
  out << "halftape::nn::" << name << "(\n";
  for (const auto& item : all) {
    out << '(' << item.key() << "): Parameter containing: [";
    if (const Tensor& t = item.value(); t.defined())
      out << type_name(t.dtype()) << " of size " << t.sizes() << "]\n";
    else
      out << "undefined]\n";
  }
  out << ')';
}

}  // namespace

void ParameterListImpl::append(const Tensor& parameter) {
  register_parameter(std::to_string(size()), parameter, parameter.requires_grad());
}

Tensor& ParameterListImpl::at(size_t index) {
  HALFTAPE_CHECK(index < size(), "Index out of range: ", index, " of a ParameterList of ", size());
  return parameters_[index].value();
}

void ParameterListImpl::pretty_print(std::ostream& out) const {
  print(out, "ParameterList", parameters_);
}

ParameterDictImpl::ParameterDictImpl(const OrderedDict<std::string, Tensor>& parameters) {
  for (const auto& item : parameters) insert(item.key(), item.value());
}

Tensor& ParameterDictImpl::insert(const std::string& name, const Tensor& parameter) {
  return register_parameter(name, parameter, parameter.requires_grad());
}

Tensor ParameterDictImpl::pop(const std::string& name) {
  Tensor parameter = get(name);
  parameters_.erase(name);
  return parameter;
}

void ParameterDictImpl::pretty_print(std::ostream& out) const {
  print(out, "ParameterDict", parameters_);
}

}  // namespace halftape::nn
