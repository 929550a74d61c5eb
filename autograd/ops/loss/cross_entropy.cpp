// The losses of classes: from log-probabilities, or from logits in one pass.
#include "halftape/autograd/ops/cast_list.h"
#include "halftape/autograd/ops/creation/create.h"
#include "halftape/autograd/ops/elementwise/binary.h"
#include "halftape/autograd/ops/indexing/index.h"
#include "halftape/autograd/ops/layout/dims.h"
#include "halftape/autograd/ops/layout/view.h"
#include "halftape/autograd/ops/loss/loss.h"
#include "halftape/autograd/ops/loss/loss_parts.h"
#include "halftape/autograd/ops/reduction/reduce.h"
#include "halftape/autograd/ops/reduction/softmax.h"
#include "halftape/autograd/tape/record.h"
#include "halftape/core/contract/backend.h"

namespace halftape {
namespace detail {

void check_classes(const char* op, const Tensor& x, const Tensor& target, const Tensor& weight) {
  HALFTAPE_CHECK(x.dim() > 0, op, ": input is 0-dim, without classes");
  const int dim = x.dim() == 1 ? 0 : 1;
  HALFTAPE_CHECK(target.dtype() == kInt64, op, ": target is ", target.dtype(),
                 ", expected int64 class numbers");
  HALFTAPE_CHECK(target.sizes() == reduced_shape(x.sizes(), {dim}, false), op, ": input ",
                 x.sizes(), " and target ", target.sizes(),
                 "; expected (N, C) and (N), (N, C, d1, …) and (N, d1, …), or (C) and ()");
  HALFTAPE_CHECK(target.device() == x.device(), op, ": target on ", target.device(),
                 ", the input on ", x.device(), "; move one with .to(device)");
  if (!weight.defined()) return;
  HALFTAPE_CHECK(weight.sizes() == Shape{x.size(dim)}, op, ": weight ", weight.sizes(), " for ",
                 x.size(dim), " classes; expected (", x.size(dim), ")");
  HALFTAPE_CHECK(weight.device() == x.device(), op, ": weight on ", weight.device(),
                 ", the input on ", x.device(), "; move one with .to(device)");
}

}  // namespace detail

using detail::check_classes;
using detail::loss_dtype;

namespace {

/// (C), (N, C) or (N, C, d1, …) as rows of classes.
Tensor classes_last(const Tensor& x) { return x.dim() > 2 ? movedim(x, 1, -1) : x; }

/// The gradient of each row's loss by its logits, (…, C), as a function of these: with q as below,
/// softmax(x)·Σq − q. Its own derivative needs nothing but itself.
Tensor slopes(const Array& grad, const Tensor& x, const CrossEntropy& o) {
  const Tensor target(o.target), weight = o.weight.defined() ? Tensor(o.weight) : Tensor();
  return record("cross_entropy_backward", grad, {&x},
                [=, grad = Saved(grad), target = Saved(target), ignored = o.ignored,
                 s = o.smoothing, weight = Saved::if_wanted(weight.defined(), weight),
                 dtype = x.dtype()](Node& self, const Tensor& g) -> Grads {
                  const Tensor slope = grad.tensor(self), t = unsqueeze(target.tensor(self), -1);
                  const auto C = slope.size(-1);
                  Tensor q = (arange(C, t.options()) == t).to(slope.dtype()) * (1 - s) +
                             s / static_cast<double>(C);
                  if (weight.defined()) q = q * weight.tensor(self);
                  const Tensor p = slope + where(t == ignored, 0, q), total = sum(p, {-1}, true);
                  const Tensor drift = sum(p * g, {-1}, true) / where(total == 0, 1, total);
                  return {(p * (g - drift)).to(dtype)};
                });
}

/// By the kernel. x: (…, C). The result is not rounded to x's dtype yet.
Tensor by_classes(const Tensor& x, const Tensor& target, const Tensor& weight, Reduction reduction,
                  int64_t ignored, double smoothing) {
  const Dtype dtype = compute_dtype(x.dtype());
  const auto one = [&] { return Array({}, dtype, x.device()); };
  CrossEntropy o{.x = x.array(),
                 .target = contiguous(target).array(),
                 .ignored = ignored,
                 .smoothing = smoothing,
                 .loss = Array(target.sizes(), dtype, x.device())};
  if (weight.defined()) o.weight = contiguous(weight.detach().to(dtype)).array();
  const bool averaged = reduction == Reduction::Mean, recorded = records({&x});
  if (averaged) {
    o.counted = Array(target.sizes(), dtype, x.device());
    o.total = one();
    o.mean = one();
  }
  if (recorded) o.grad = Array(x.sizes(), dtype, x.device());
  backend(x.device()).cross_entropy(o);
  if (!recorded)
    return averaged ? Tensor(o.mean) : detail::reduced("cross_entropy", Tensor(o.loss), reduction);
  const Tensor slope = slopes(o.grad, x, o);
  if (averaged)
    return record(
        "cross_entropy", o.mean, {&x},
        [slope = Saved(slope), total = Saved(Tensor(o.total)), to = x.dtype()](
            Node& self, const Tensor& g) -> Grads {
          if (GradMode::is_enabled()) {
            const Tensor n = total.tensor(self);  // 0 where all targets are ignored, as is slope
            return {(slope.tensor(self) * (g / where(n == 0, 1, n))).to(to)};
          }
          const Array& by_rows = slope.array(self);
          const Array dx(by_rows.shape(), to, by_rows.device());
          backend(dx.device()).run(CrossEntropyGrad{dx, by_rows, g.array(), total.array(self)});
          return {Tensor(dx)};
        });
  const Tensor losses =
      record("cross_entropy", o.loss, {&x},
             [slope = Saved(slope), to = x.dtype()](Node& self, const Tensor& g) -> Grads {
               return {(unsqueeze(g, -1) * slope.tensor(self)).to(to)};
             });
  return detail::reduced("cross_entropy", losses, reduction);
}

/// With the probabilities of all classes. x, target: (…, C).
Tensor by_probabilities(const Tensor& x, const Tensor& target, const Tensor& weight,
                        Reduction reduction, double smoothing) {
  Tensor q = target;
  if (smoothing != 0) q = q * (1 - smoothing) + smoothing / static_cast<double>(x.size(-1));
  if (weight.defined()) q = q * weight.to(q.dtype());
  return detail::reduced("cross_entropy", -sum(q * log_softmax(x, -1), {-1}), reduction);
}

}  // namespace

Tensor detail::cross_entropy_unrounded(const Tensor& in, const Tensor& target, const Tensor& weight,
                                       Reduction reduction, int64_t ignore_index,
                                       double label_smoothing) {
  check_classes("cross_entropy", in, target, weight);
  const Tensor x = classes_last(in);
  HALFTAPE_CHECK(x.size(-1) > 0, "cross_entropy: input ", in.sizes(), " has no classes");
  return by_classes(x, target, weight, reduction, ignore_index, label_smoothing);
}

Tensor nll_loss(const Tensor& in, const Tensor& target, const Tensor& weight, Reduction reduction,
                int64_t ignore_index) {
  const ErrorScope scope("nll_loss", in, target);
  const auto [x] = cast_inputs(cast_list::nll_loss, in);
  check_classes("nll_loss", x, target, weight);
  const Dtype dtype = loss_dtype("nll_loss", {&x});
  const IndexUse use{"nll_loss", "target"};
  const Tensor counts = target != ignore_index, classes = where(counts, target, 0);
  const Tensor picked =
      squeeze(detail::gather(classes_last(x), -1, unsqueeze(classes, -1), use), -1);
  Tensor each = ones(target.sizes(), x.options().dtype(compute_dtype(dtype)));
  if (weight.defined())
    each = detail::reshaped(
        detail::gather(weight.to(compute_dtype(dtype)), 0, detail::reshaped(classes, {-1}), use),
        target.sizes());
  const Tensor weights = where(counts, each, 0);
  // where, not a product: an ignored −inf must not become NaN.
  const Tensor losses = where(counts, -(picked.to(compute_dtype(dtype)) * weights), 0);
  if (reduction == Reduction::Mean) return (sum(losses) / sum(weights)).to(dtype);
  return detail::reduced("nll_loss", losses, reduction).to(dtype);
}

Tensor cross_entropy(const Tensor& given, const Tensor& given_target, const Tensor& weight,
                     Reduction reduction, int64_t ignore_index, double label_smoothing) {
  const ErrorScope scope("cross_entropy", given, given_target);
  HALFTAPE_CHECK(label_smoothing >= 0 && label_smoothing <= 1, "cross_entropy: label_smoothing ",
                 label_smoothing, " is not between 0 and 1");
  // A cast to float32 is left to the kernels, which read 16 bits as float32 anyway.
  constexpr auto float32 = [](Dtype d) { return d == kFloat32; };
  const auto inputs =
      cast_inputs(cast_list::cross_entropy.converting(float32), given, given_target);
  const auto& [in, target] = inputs;
  const bool probabilities =
      target.is_floating_point() && target.sizes() == in.sizes() && in.dim() > 0;
  const Dtype given_dtype = loss_dtype("cross_entropy", {&in, probabilities ? &target : &in});
  const Dtype dtype = inputs.compute_as() ? compute_dtype(given_dtype) : given_dtype;
  if (!probabilities) {
    return detail::cross_entropy_unrounded(in, target, weight, reduction, ignore_index,
                                           label_smoothing)
        .to(dtype);
  }
  HALFTAPE_CHECK(ignore_index < 0, "cross_entropy: ignore_index ", ignore_index,
                 " with a target of probabilities, which has no classes to ignore");
  const Tensor x = classes_last(in).to(compute_dtype(dtype)),
               y = classes_last(target).to(compute_dtype(dtype));
  if (weight.defined())
    HALFTAPE_CHECK(weight.sizes() == Shape{x.size(-1)}, "cross_entropy: weight ", weight.sizes(),
                   " for ", x.size(-1), " classes; expected (", x.size(-1), ")");
  return by_probabilities(x, y, weight, reduction, label_smoothing).to(dtype);
}

}  // namespace halftape
