#include "halftape/nn/modules/dropout.h"

#include "halftape/nn/functional/dropout.h"

namespace halftape::nn {
namespace {

void print(std::ostream& out, const char* name, const DropoutOptions& o) {
  out << "halftape::nn::" << name << "(p=" << o.p()
      << ", inplace=" << (o.inplace() ? "true" : "false") << ')';
}

}  // namespace

template <class Derived>
void detail::AnyDropout<Derived>::reset() {
  HALFTAPE_CHECK(options.p() >= 0 && options.p() <= 1, "Dropout: probability ", options.p(),
                 " is not between 0 and 1");
}
template class detail::AnyDropout<DropoutImpl>;
template class detail::AnyDropout<Dropout2dImpl>;
template class detail::AnyDropout<Dropout3dImpl>;
template class detail::AnyDropout<AlphaDropoutImpl>;
template class detail::AnyDropout<FeatureAlphaDropoutImpl>;

Tensor DropoutImpl::forward(const Tensor& x) const {
  return functional::detail::dropout(x, options.p(), is_training(), options.inplace());
}
Tensor Dropout2dImpl::forward(const Tensor& x) const {
  return functional::detail::feature_dropout(x, options.p(), is_training(), options.inplace());
}
Tensor Dropout3dImpl::forward(const Tensor& x) const {
  return functional::detail::feature_dropout(x, options.p(), is_training(), options.inplace());
}
Tensor AlphaDropoutImpl::forward(const Tensor& x) const {
  return functional::detail::alpha_dropout(x, options.p(), is_training(), options.inplace());
}
Tensor FeatureAlphaDropoutImpl::forward(const Tensor& x) const {
  return functional::detail::feature_alpha_dropout(x, options.p(), is_training(),
                                                   options.inplace());
}

void DropoutImpl::pretty_print(std::ostream& out) const { print(out, "Dropout", options); }
void Dropout2dImpl::pretty_print(std::ostream& out) const { print(out, "Dropout2d", options); }
void Dropout3dImpl::pretty_print(std::ostream& out) const { print(out, "Dropout3d", options); }
void AlphaDropoutImpl::pretty_print(std::ostream& out) const {
  print(out, "AlphaDropout", options);
}
void FeatureAlphaDropoutImpl::pretty_print(std::ostream& out) const {
  print(out, "FeatureAlphaDropout", options);
}

}  // namespace halftape::nn
