#include "halftape/autograd/ops/loss/margin_loss.h"

#include "halftape/autograd/ops/cast_list.h"
#include "halftape/autograd/ops/creation/create.h"
#include "halftape/autograd/ops/elementwise/binary.h"
#include "halftape/autograd/ops/elementwise/unary.h"
#include "halftape/autograd/ops/indexing/index.h"
#include "halftape/autograd/ops/layout/dims.h"
#include "halftape/autograd/ops/layout/view.h"
#include "halftape/autograd/ops/loss/loss_parts.h"
#include "halftape/autograd/ops/reduction/reduce.h"
#include "halftape/autograd/ops/reduction/scan.h"
#include "halftape/autograd/ops/reduction/statistics.h"
#include "halftape/core/contract/backend.h"

namespace halftape {

using detail::loss_dtype;
using detail::loss_of;
using detail::reduced;

namespace {

Tensor triplet(const char* op, const Tensor& anchor, const Tensor& positive, const Tensor& negative,
               const DistanceFunction& distance, double margin, bool swap, Reduction reduction) {
  HALFTAPE_CHECK(anchor.dim() == positive.dim() && anchor.dim() == negative.dim(), op, ": anchor ",
                 anchor.sizes(), ", positive ", positive.sizes(), " and negative ",
                 negative.sizes(), " must have the same number of dimensions");
  const Tensor near = distance(anchor, positive);
  Tensor far = distance(anchor, negative);
  if (swap) far = minimum(far, distance(positive, negative));
  const Dtype dtype = loss_dtype(op, {&near, &far});
  const Tensor losses = relu(near.to(compute_dtype(dtype)) - far.to(compute_dtype(dtype)) + margin);
  return reduced(op, losses, reduction).to(dtype);
}

}  // namespace

Tensor hinge_embedding_loss(const Tensor& a, const Tensor& b, double margin, Reduction reduction) {
  return loss_of(cast_list::hinge_embedding_loss, a, b, reduction,
                 [&](const Tensor& s, const Tensor& label) {
                   return where(label == 1, 0, relu(margin - s)) + where(label == -1, 0, s);
                 });
}

Tensor soft_margin_loss(const Tensor& a, const Tensor& b, Reduction reduction) {
  return loss_of(cast_list::soft_margin_loss, a, b, reduction,
                 [](const Tensor& s, const Tensor& label) { return -log_sigmoid(label * s); });
}

Tensor margin_ranking_loss(const Tensor& first, const Tensor& second, const Tensor& label,
                           double margin, Reduction reduction) {
  const ErrorScope scope("margin_ranking_loss", first, second, label);
  const auto [a, b, y] = cast_inputs(cast_list::margin_ranking_loss, first, second, label);
  HALFTAPE_CHECK(a.dim() == b.dim() && a.dim() == y.dim(), "margin_ranking_loss: inputs ",
                 a.sizes(), " and ", b.sizes(), " and target ", y.sizes(),
                 " must have the same number of dimensions");
  const Dtype dtype = loss_dtype("margin_ranking_loss", {&a, &b, &y});
  const Tensor difference =
      y.to(compute_dtype(dtype)) * (a.to(compute_dtype(dtype)) - b.to(compute_dtype(dtype)));
  return reduced("margin_ranking_loss", relu(margin - difference), reduction).to(dtype);
}

Tensor cosine_embedding_loss(const Tensor& first, const Tensor& second, const Tensor& label,
                             double margin, Reduction reduction) {
  const ErrorScope scope("cosine_embedding_loss", first, second, label);
  const auto [a, b, y] = cast_inputs(cast_list::cosine_embedding_loss, first, second, label);
  HALFTAPE_CHECK((a.dim() == 1 || a.dim() == 2) && a.sizes() == b.sizes() &&
                     y.sizes() == reduced_shape(a.sizes(), {a.dim() - 1}, false),
                 "cosine_embedding_loss: inputs ", a.sizes(), " and ", b.sizes(), " and target ",
                 y.sizes(), "; expected (N, D), (N, D) and (N), or (D), (D) and ()");
  const Dtype dtype = loss_dtype("cosine_embedding_loss", {&a, &b});
  const Tensor u = a.to(compute_dtype(dtype)), v = b.to(compute_dtype(dtype));
  constexpr double tiny = 1e-12;  // PyTorch's: the cosine of a vector of zeros is 0
  const auto squares = [](const Tensor& t) { return sum(square(t), {-1}) + tiny; };
  const Tensor cosine = sum(u * v, {-1}) / (sqrt(squares(u)) * sqrt(squares(v)));
  const Tensor losses = where(y == 1, 1 - cosine, 0) + where(y == -1, relu(cosine - margin), 0);
  return reduced("cosine_embedding_loss", losses, reduction).to(dtype);
}

Tensor multi_margin_loss(const Tensor& in, const Tensor& target, Scalar p, Scalar margin,
                         const Tensor& weight, Reduction reduction) {
  const ErrorScope scope("multi_margin_loss", in, target);
  const auto [x, w] = cast_inputs<1>(cast_list::multi_margin_loss, in, weight);
  HALFTAPE_CHECK(p.to_double() == 1 || p.to_double() == 2, "multi_margin_loss: p ", p.to_double(),
                 " is neither 1 nor 2");
  detail::check_classes("multi_margin_loss", x, target, w);
  HALFTAPE_CHECK(x.dim() <= 2, "multi_margin_loss: input ", x.sizes(), "; expected (N, C) or (C)");
  const Dtype dtype = loss_dtype("multi_margin_loss", {&x});
  const Tensor s = x.to(compute_dtype(dtype)), t = unsqueeze(target, -1);
  const IndexUse use{"multi_margin_loss", "target"};
  Tensor over = relu(margin.to_double() - detail::gather(s, -1, t, use) + s);
  if (p.to_double() == 2) over = square(over);
  if (w.defined())
    over = over *
           detail::reshaped(detail::gather(w.to(s.dtype()), 0, detail::reshaped(target, {-1}), use),
                            t.sizes());
  const Tensor own = arange(x.size(-1), target.options()) == t;
  return reduced("multi_margin_loss", mean(where(own, 0, over), {-1}), reduction).to(dtype);
}

Tensor multilabel_margin_loss(const Tensor& in, const Tensor& target, Reduction reduction) {
  const ErrorScope scope("multilabel_margin_loss", in, target);
  const auto [x] = cast_inputs(cast_list::multilabel_margin_loss, in);
  detail::same_shape("multilabel_margin_loss", x, target);
  HALFTAPE_CHECK(target.dtype() == kInt64, "multilabel_margin_loss: target is ", target.dtype(),
                 ", expected int64 class numbers");
  HALFTAPE_CHECK(x.dim() == 1 || x.dim() == 2, "multilabel_margin_loss: input ", x.sizes(),
                 "; expected (N, C) or (C)");
  const Dtype dtype = loss_dtype("multilabel_margin_loss", {&x});
  const Tensor s = x.to(compute_dtype(dtype));
  const Tensor listed = cumsum(target == -1, -1) == 0;  // before the first −1
  const Tensor classes = where(listed, target, 0);
  const Tensor own = detail::gather(s, -1, classes, {"multilabel_margin_loss", "target"});
  const Tensor is_own = scatter_add(zeros_like(target), -1, classes, listed.to(kInt64)) > 0;
  const Tensor pair = logical_and(unsqueeze(listed, -1), logical_not(unsqueeze(is_own, -2)));
  const Tensor over = relu(1 - unsqueeze(own, -1) + unsqueeze(s, -2));  // (…, j, i)
  const Tensor losses = sum(where(pair, over, 0), {-2, -1}) / x.size(-1);
  return reduced("multilabel_margin_loss", losses, reduction).to(dtype);
}

Tensor multilabel_soft_margin_loss(const Tensor& x, const Tensor& y, const Tensor& weight,
                                   Reduction reduction) {
  return loss_of(cast_list::multilabel_soft_margin_loss, x, y, reduction,
                 [&](const Tensor& s, const Tensor& label) {
                   HALFTAPE_CHECK(s.dim() > 0, "multilabel_soft_margin_loss: input is 0-dim, ",
                                  "without classes");
                   // ln σ(−x) = ln σ(x) − x.
                   Tensor losses = (1 - label) * s - log_sigmoid(s);
                   if (weight.defined()) losses = losses * weight.to(s.dtype());
                   return mean(losses, {-1});
                 });
}

Tensor triplet_margin_loss(const Tensor& a, const Tensor& b, const Tensor& c, double margin,
                           double p, double eps, bool swap, Reduction reduction) {
  const ErrorScope scope("triplet_margin_loss", a, b, c);
  const auto [anchor, positive, negative] = cast_inputs(cast_list::triplet_margin_loss, a, b, c);
  const Dtype dtype = loss_dtype("triplet_margin_loss", {&anchor, &positive, &negative});
  const auto distance = [=](const Tensor& x, const Tensor& y) {
    return pairwise_distance(x.to(compute_dtype(dtype)), y.to(compute_dtype(dtype)), p, eps);
  };
  return triplet("triplet_margin_loss", anchor, positive, negative, distance, margin, swap,
                 reduction)
      .to(dtype);
}

Tensor triplet_margin_with_distance_loss(const Tensor& anchor, const Tensor& positive,
                                         const Tensor& negative, const DistanceFunction& distance,
                                         double margin, bool swap, Reduction reduction) {
  const ErrorScope scope("triplet_margin_with_distance_loss", anchor, positive, negative);
  if (!distance)
    return triplet_margin_loss(anchor, positive, negative, margin, 2, 1e-6, swap, reduction);
  return triplet("triplet_margin_with_distance_loss", anchor, positive, negative, distance, margin,
                 swap, reduction);
}

}  // namespace halftape
