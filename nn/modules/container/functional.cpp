#include "halftape/nn/modules/container/functional.h"

namespace halftape::nn {

FunctionalImpl::FunctionalImpl(Function function) : function_(std::move(function)) {
  HALFTAPE_CHECK(function_, "Functional: the function is empty");
}
Functional::Functional(Tensor (*function)(const Tensor&))
    : ModuleHolder(FunctionalImpl::Function(function)) {}
void FunctionalImpl::pretty_print(std::ostream& out) const { out << "halftape::nn::Functional()"; }

}  // namespace halftape::nn
