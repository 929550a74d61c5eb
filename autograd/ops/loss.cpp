#include "halftape/autograd/ops/loss.h"

#include "halftape/autograd/op_scope.h"
#include "halftape/autograd/ops/binary.h"
#include "halftape/autograd/ops/cast_list.h"
#include "halftape/autograd/ops/create.h"
#include "halftape/autograd/ops/index.h"
#include "halftape/autograd/ops/reduce.h"
#include "halftape/autograd/ops/softmax.h"
#include "halftape/autograd/ops/unary.h"
#include "halftape/autograd/ops/view.h"
#include "halftape/core/backend.h"

namespace halftape {
namespace {

Tensor reduced(const Tensor& losses, Reduction reduction) {
  return reduction == Reduction::None  ? losses
         : reduction == Reduction::Sum ? sum(losses)
                                       : mean(losses);
}

void same_shape(const char* op, const Tensor& x, const Tensor& y) {
  HALFTAPE_CHECK(x.sizes() == y.sizes(), op, ": input ", x.sizes(), " and target ", y.sizes(),
                 " differ (they are not broadcast: that hides mistakes)");
}

void check_classes(const char* op, const Tensor& x, const Tensor& target, const Tensor& weight) {
  HALFTAPE_CHECK(target.dtype() == kInt64, op, ": target is ", target.dtype(),
                 ", expected int64 class numbers");
  HALFTAPE_CHECK((x.dim() == 2 && target.dim() == 1 && x.size(0) == target.size(0)) ||
                     (x.dim() == 1 && target.dim() == 0),
                 op, ": input ", x.sizes(), " and target ", target.sizes(),
                 "; expected (N, C) and (N), or (C) and ()");
  HALFTAPE_CHECK(!weight.defined() || weight.sizes() == Shape{x.size(-1)}, op, ": weight ",
                 weight.defined() ? weight.sizes() : Shape(), " for ", x.size(-1),
                 " classes; expected (", x.size(-1), ")");
}

/// The parts that nll and label smoothing share: which targets count, their weights, and a safe
/// class to look up.
struct Targets {
  Tensor counted;  // bool (N)
  Tensor classes;  // int64 (N, 1), 0 where not counted
  Tensor weights;  // (N) in the input's dtype, 0 where not counted
  IndexUse use;    // a class out of range is the user's target
  Targets(const char* op, const Tensor& x, const Tensor& target, const Tensor& weight,
          int64_t ignore_index)
      : use{op, "target"} {
    counted = target != ignore_index;
    classes = unsqueeze(where(counted, target, 0), -1);
    const Tensor each = weight.defined()
                            ? detail::gather(weight.to(x.dtype()), 0, squeeze(classes, -1), use)
                            : ones(target.sizes(), x.options());
    weights = where(counted, each, 0);
  }
};

Tensor nll(const Tensor& x, const Targets& t, Reduction reduction) {
  const Tensor picked = detail::gather(x, -1, t.classes, t.use);
  // where, not a product: an ignored −inf must not become NaN.
  const Tensor losses = where(t.counted, -(squeeze(picked, -1) * t.weights), 0);
  if (reduction != Reduction::Mean) return reduced(losses, reduction);
  return sum(losses) / sum(t.weights);
}

}  // namespace

Tensor nll_loss(const Tensor& in, const Tensor& target, const Tensor& weight, Reduction reduction,
                int64_t ignore_index) {
  const OpScope scope("nll_loss", in, target);
  const auto [x] = cast_inputs(cast_list::nll_loss, in);
  check_classes("nll_loss", x, target, weight);
  if (x.dim() == 1) {
    const Tensor y =
        nll_loss(unsqueeze(x, 0), unsqueeze(target, 0), weight, reduction, ignore_index);
    return reduction == Reduction::None ? squeeze(y, 0) : y;
  }
  return nll(x, Targets("nll_loss", x, target, weight, ignore_index), reduction);
}

Tensor cross_entropy(const Tensor& given, const Tensor& target, const Tensor& weight,
                     Reduction reduction, int64_t ignore_index, double label_smoothing) {
  const OpScope scope("cross_entropy", given, target);
  HALFTAPE_CHECK(label_smoothing >= 0 && label_smoothing <= 1, "cross_entropy: label_smoothing ",
                 label_smoothing, " is not between 0 and 1");
  const auto [in] = cast_inputs(cast_list::cross_entropy, given);
  check_classes("cross_entropy", in, target, weight);
  if (in.dim() == 1) {
    const Tensor y = cross_entropy(unsqueeze(in, 0), unsqueeze(target, 0), weight, reduction,
                                   ignore_index, label_smoothing);
    return reduction == Reduction::None ? squeeze(y, 0) : y;
  }
  const Tensor log_p = log_softmax(in, -1);
  const Targets t("cross_entropy", log_p, target, weight, ignore_index);
  Tensor hard = nll(log_p, t, reduction);
  if (label_smoothing == 0) return hard;
  const double classes = static_cast<double>(in.size(1));
  const Tensor weighted = weight.defined() ? log_p * weight.to(log_p.dtype()) : log_p;
  Tensor smooth = where(t.counted, -sum(weighted, {-1}), 0);
  if (reduction == Reduction::Sum) smooth = sum(smooth);
  if (reduction == Reduction::Mean) smooth = sum(smooth) / sum(t.weights);
  return (1 - label_smoothing) * hard + (label_smoothing / classes) * smooth;
}

Tensor mse_loss(const Tensor& a, const Tensor& b, Reduction reduction) {
  const OpScope scope("mse_loss", a, b);
  const auto [x, y] = cast_inputs(cast_list::mse_loss, a, b);
  same_shape("mse_loss", x, y);
  return reduced(square(x - y), reduction);
}

Tensor binary_cross_entropy_with_logits(const Tensor& a, const Tensor& b, const Tensor& weight,
                                        const Tensor& pos_weight, Reduction reduction) {
  const OpScope scope("binary_cross_entropy_with_logits", a, b);
  const auto [x, y, w, p] =
      cast_inputs<2>(cast_list::binary_cross_entropy_with_logits, a, b, weight, pos_weight);
  same_shape("binary_cross_entropy_with_logits", x, y);
  // ln(1 − σ(x)) = ln σ(x) − x.
  const Tensor left = (1 - y) * x;
  const Tensor tail = -log_sigmoid(x);
  Tensor losses = p.defined() ? left + (1 + (p - 1) * y) * tail : left + tail;
  if (w.defined()) losses = losses * w;
  return reduced(losses, reduction);
}

Tensor binary_cross_entropy(const Tensor& a, const Tensor& b, const Tensor& weight,
                            Reduction reduction) {
  const OpScope scope("binary_cross_entropy", a, b);
  const auto [p, y, w] = cast_inputs<2>(cast_list::binary_cross_entropy, a, b, weight);
  same_shape("binary_cross_entropy", p, y);
  Tensor losses = binary<formula::BinaryCrossEntropy>(p, y);
  if (w.defined()) losses = losses * w;
  return reduced(losses, reduction);
}

}  // namespace halftape
