#include "halftape/autograd/ops/loss.h"

#include "halftape/autograd/ops/binary.h"
#include "halftape/autograd/ops/cast_list.h"
#include "halftape/autograd/ops/loss_parts.h"
#include "halftape/autograd/ops/reduce.h"
#include "halftape/autograd/ops/unary.h"
#include "halftape/autograd/ops/view.h"

namespace halftape {
namespace detail {

Dtype loss_dtype(const char* op, std::initializer_list<const Tensor*> inputs) {
  const Dtype dtype = result_type(inputs);
  HALFTAPE_CHECK(is_floating_point(dtype), op, ": of ", dtype,
                 " tensors; convert them with .to(kFloat32) first");
  return dtype;
}

void same_shape(const char* op, const Tensor& x, const Tensor& y) {
  HALFTAPE_CHECK(x.sizes() == y.sizes(), op, ": input ", x.sizes(), " and target ", y.sizes(),
                 " differ (they are not broadcast: that hides mistakes)");
}

Tensor reduced(const char*, const Tensor& losses, Reduction reduction) {
  return reduction == Reduction::None  ? losses
         : reduction == Reduction::Sum ? sum(losses)
                                       : mean(losses);
}

}  // namespace detail

Tensor mse_loss(const Tensor& a, const Tensor& b, Reduction reduction) {
  const OpScope scope("mse_loss", a, b);
  const auto [x, y] = cast_inputs(cast_list::mse_loss, a, b);
  detail::same_shape("mse_loss", x, y);
  return detail::reduced("mse_loss", square(x - y), reduction);
}

Tensor binary_cross_entropy_with_logits(const Tensor& a, const Tensor& b, const Tensor& weight,
                                        const Tensor& pos_weight, Reduction reduction) {
  const OpScope scope("binary_cross_entropy_with_logits", a, b);
  const auto [x, y, w, p] =
      cast_inputs<2>(cast_list::binary_cross_entropy_with_logits, a, b, weight, pos_weight);
  detail::same_shape("binary_cross_entropy_with_logits", x, y);
  // ln(1 − σ(x)) = ln σ(x) − x.
  const Tensor left = (1 - y) * x;
  const Tensor tail = -log_sigmoid(x);
  Tensor losses = p.defined() ? left + (1 + (p - 1) * y) * tail : left + tail;
  if (w.defined()) losses = losses * w;
  return detail::reduced("binary_cross_entropy_with_logits", losses, reduction);
}

Tensor binary_cross_entropy(const Tensor& a, const Tensor& b, const Tensor& weight,
                            Reduction reduction) {
  const OpScope scope("binary_cross_entropy", a, b);
  const auto [p, y, w] = cast_inputs<2>(cast_list::binary_cross_entropy, a, b, weight);
  detail::same_shape("binary_cross_entropy", p, y);
  Tensor losses = binary<formula::BinaryCrossEntropy>(p, y);
  if (w.defined()) losses = losses * w;
  return detail::reduced("binary_cross_entropy", losses, reduction);
}

}  // namespace halftape
