#include "halftape/autograd/tensor.h"

#include "halftape/autograd/engine.h"
#include "halftape/autograd/grad_mode.h"
#include "halftape/autograd/node.h"
#include "halftape/core/backend.h"

namespace halftape {
namespace detail {
namespace {
std::atomic<int64_t> live_impls{0};
}
TensorImpl::TensorImpl(Array v) : value(std::move(v)) {
  live_impls.fetch_add(1, std::memory_order_relaxed);
}
TensorImpl::~TensorImpl() {
  if (accumulator) static_cast<Accumulate&>(*accumulator).detach_leaf();
  live_impls.fetch_sub(1, std::memory_order_relaxed);
}
int64_t TensorImpl::live_count() { return live_impls.load(std::memory_order_relaxed); }
void dispose(TensorImpl* impl) noexcept { delete impl; }  // NOLINT: the counterpart of make_ref
}  // namespace detail

Tensor::Tensor(Array value) : impl_(make_ref<detail::TensorImpl>(std::move(value))) {}

const Array& Tensor::array() const {
  HALFTAPE_CHECK(
      impl_,
      "an undefined tensor was used: a default-constructed Tensor has no shape, dtype or values");
  return impl_->value;
}

const Array& Tensor::host_array(const char* who) const {
  const Array& a = array();
  HALFTAPE_CHECK(a.device().is_cpu(), who, ": the tensor is on ", a.device(),
                 "; copy it with .cpu() first");
  return a;
}

int64_t Tensor::size(int64_t d) const { return sizes()[wrap_dim("size", d, sizes().size())]; }

bool Tensor::requires_grad() const { return impl_ && (impl_->history || impl_->accumulator); }
bool Tensor::is_leaf() const { return !impl_ || !impl_->history; }
bool Tensor::unique() const { return impl_ && impl_->use_count() == 1 && impl_->value.unique(); }

const Tensor& Tensor::requires_grad_(bool on) const {
  array();
  if (on == requires_grad()) return *this;
  HALFTAPE_CHECK(is_leaf(), "requires_grad_: only leaves can be changed; this tensor was made by `",
                 impl_->history.node->name(), "`; use detach() to get a leaf");
  HALFTAPE_CHECK(!on || is_floating_point(),
                 "requires_grad_: only floating-point tensors have gradients, this is ", dtype());
  if (on)
    impl_->accumulator = make_ref<Accumulate>(impl_.get());
  else {
    static_cast<Accumulate&>(*impl_->accumulator).detach_leaf();
    impl_->accumulator = {};
  }
  return *this;
}

const Tensor& Tensor::grad() const { return mutable_grad(); }
Tensor& Tensor::mutable_grad() const {
  array();
  return impl_->grad;
}

const Ref<Node>& Tensor::grad_fn() const {
  array();
  return impl_->history.node;
}

Edge Tensor::gradient_edge() const {
  if (!impl_) return {};
  return impl_->history ? impl_->history : Edge{impl_->accumulator, 0};
}

void Tensor::backward(const Tensor& gradient, std::optional<bool> retain_graph,
                      bool create_graph) const {
  autograd::backward({*this}, gradient.defined() ? TensorList{gradient} : TensorList{},
                     retain_graph, create_graph);
}

Tensor Tensor::detach() const {
  Tensor t(array());
  t.impl_->is_view = impl_->is_view;
  return t;
}

Tensor& Tensor::detach_() {
  array();
  impl_->history = {};
  return *this;
}

template <class T>
std::vector<T> Tensor::to_vector() const {
  const Array a = array().to(dtype_of<T>).to_contiguous();
  std::vector<T> out(static_cast<size_t>(a.numel()));
  if (a.numel() > 0) backend(a.device()).read(out.data(), a);
  return out;
}
template std::vector<double> Tensor::to_vector() const;
template std::vector<float> Tensor::to_vector() const;
template std::vector<int32_t> Tensor::to_vector() const;
template std::vector<int64_t> Tensor::to_vector() const;
template std::vector<uint8_t> Tensor::to_vector() const;
template std::vector<Half> Tensor::to_vector() const;
template std::vector<BFloat16> Tensor::to_vector() const;

namespace {
std::atomic<Dtype> default_dtype{Dtype::Float32};
}
Dtype get_default_dtype() { return default_dtype.load(std::memory_order_relaxed); }
void set_default_dtype(Dtype d) {
  HALFTAPE_CHECK(is_floating_point(d), "set_default_dtype: ", d, " is not a floating-point dtype");
  default_dtype.store(d, std::memory_order_relaxed);
}

}  // namespace halftape
