#include "halftape/autograd/ops/loss/mlp_loss.h"

#include <algorithm>
#include <limits>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "halftape/autograd/ops/cast_list.h"
#include "halftape/autograd/ops/layout/dims.h"
#include "halftape/autograd/ops/layout/view.h"
#include "halftape/autograd/ops/loss/loss.h"
#include "halftape/autograd/ops/loss/loss_parts.h"
#include "halftape/autograd/ops/product/layers.h"
#include "halftape/autograd/tape/by_formula.h"
#include "halftape/autograd/tape/error_scope.h"
#include "halftape/autograd/tape/implicit_one.h"
#include "halftape/autograd/tape/record.h"
#include "halftape/core/contract/backend.h"
#include "halftape/core/formula/binary.h"

namespace halftape {
namespace {

using detail::bias_input, detail::weight_input;

/// The formula, in ops. x: (rows, in); weights and biases of its dtype, or under a policy.
Tensor in_ops(const Tensor& x, const Tensor& target, const TensorList& weights,
              const TensorList& biases, Activation activation) {
  const Tensor out = mlp(x, weights, biases, activation);
  if (target.dtype() == kInt64)
    return detail::cross_entropy_unrounded(out, target, {}, Reduction::Mean,
                                           std::numeric_limits<int64_t>::min(), 0);
  return mse_loss(out, target.to(compute_dtype(out.dtype())));
}

/// The op as its backward pass needs it.
struct Whole {
  Activation activation;
  Dtype multiplied;
  Saved target;
  std::vector<Saved> inputs;  // x, then weight and bias of each layer
  // The gradients of scale·loss by weights and biases, until backward has come by.
  mutable std::vector<Array> ready = {};
  Array scale = {};  // undefined: 1
  uint64_t version = 0;

  size_t layers() const { return inputs.size() / 2; }
  MlpLoss task(const Node& self) const {
    MlpLoss m{.x = inputs[0].array(self),
              .multiplied = multiplied,
              .target = target.array(self),
              .weights = {}};
    m.activation = detail::op_of(activation);
    for (size_t l = 0; l < layers(); ++l) {
      const Saved& b = inputs[bias_input(l)];
      m.weights.push_back(inputs[weight_input(l)].array(self));
      m.biases.push_back(b.defined() ? b.array(self) : Array());
    }
    return m;
  }
  /// Empty if they are gone, or if the scale, by which they have been multiplied, was written
  /// since. Two threads may run backward over a retained graph.
  std::vector<Array> take_ready() const {
    static std::mutex one_at_a_time;
    const std::lock_guard lock(one_at_a_time);
    if (scale.defined() && scale.version() != version) return {};
    return std::exchange(ready, {});
  }
  /// Those that were there, times g/scale, which is 1 where g is the scale itself.
  Grads scaled(const Node& self, const Tensor& g, const std::vector<Array>& grads) const {
    const Array& given = g.array();
    const bool as_expected = scale.defined()
                                 ? given.buffer() == scale.buffer() && given.raw() == scale.raw()
                                 : autograd::is_implicit_one(g);
    if (!as_expected) {
      Array by = given;
      if (scale.defined()) {
        by = empty_like(given);
        backend(g.device()).binary(BinaryOps::index<formula::Div>(), by, given, scale);
      }
      backend(g.device()).unscale(grads, by);
    }
    Grads d(1);
    for (size_t i = 0; i < grads.size(); ++i)
      d.push_back(self.wants(1 + i) ? Tensor(grads[i]) : Tensor());
    return d;
  }
  Grads gradients(const Node& self, const Tensor& g) const {
    if (const std::vector<Array> there = take_ready(); !there.empty())
      return scaled(self, g, there);
    MlpLoss m = task(self);
    Grads d(inputs.size());
    const auto fresh = [&](size_t i, const Array& like, Dtype dtype) {
      if (!self.wants(i)) return Array();
      Array a = empty_like(like, dtype);
      d[i] = Tensor(a);
      return a;
    };
    m.g = g.array();
    m.dx = fresh(0, m.x, m.x.dtype());
    for (size_t l = 0; l < layers(); ++l) {
      const size_t w = weight_input(l), b = bias_input(l);
      m.dweights.push_back(fresh(w, m.weights[l], self.wants(w) ? self.finest(w) : kFloat32));
      m.dbiases.push_back(fresh(b, m.biases[l], self.wants(b) ? self.finest(b) : kFloat32));
    }
    backend(g.device()).run(m);
    return d;
  }
  Grads recorded(Node& self, const Tensor& g) const {
    return vjp_by_formula(self, inputs, g, [&](const TensorList& in) {
      const Tensor x = in[0].to(multiplied);
      TensorList w, b;
      for (size_t l = 0; l < layers(); ++l) {
        const Tensor& bias = in[bias_input(l)];
        w.push_back(in[weight_input(l)].to(x.dtype()));
        b.push_back(bias.defined() ? bias.to(x.dtype()) : bias);
      }
      return in_ops(x, target.tensor(self), w, b, activation);
    });
  }
};

void check_parameter(const Tensor& x, const char* what, const Tensor& t, const Shape& expected) {
  HALFTAPE_CHECK(t.device() == x.device(), "mlp_loss: x is on ", x.device(), ", a ", what, " on ",
                 t.device(), "; move one with .to(device)");
  HALFTAPE_CHECK(t.sizes() == expected, "mlp_loss: a ", what, " ", t.sizes(), " where ", expected,
                 " is expected");
}
/// True if the backend's call can read t beside factors of dtype `multiplied`.
bool is_readable(Dtype multiplied, const Tensor& t) {
  return t.dtype() == multiplied || t.dtype() == compute_dtype(multiplied);
}

bool wants_grad(const Tensor& t) { return t.defined() && t.requires_grad(); }
/// True if forward computes the gradients, too: only parameters want one, in float32, and the
/// gradient of the loss is known (`scale`) or needs no scale to fit into 16 bits.
bool gradients_in_forward(const TensorList& inputs, Dtype multiplied, const Tensor& scale) {
  return !wants_grad(inputs[0]) && (scale.defined() || multiplied == kBFloat16) &&
         std::all_of(inputs.begin() + 1, inputs.end(),
                     [](const Tensor& t) { return !wants_grad(t) || t.dtype() == kFloat32; });
}
Array fresh_gradient(const Tensor& t) {
  return wants_grad(t) ? empty_like(t.array(), kFloat32) : Array();
}

/// Checks x, the target of the outputs that the last weight gives, and the scale.
void check_inputs(const Tensor& x, const Tensor& target, const TensorList& weights,
                  const Tensor& scale) {
  HALFTAPE_CHECK(x.is_floating_point(), "mlp_loss: x is ", x.dtype());
  HALFTAPE_CHECK(x.dim() >= 1, "mlp_loss: x is 0-dim, without features");
  const Shape rows = reduced_shape(x.sizes(), {x.dim() - 1}, false);
  Shape outputs = x.sizes();
  outputs[outputs.size() - 1] = weights.back().dim() == 2 ? weights.back().size(0) : 0;
  const bool classes = target.dtype() == kInt64;
  HALFTAPE_CHECK(classes || target.is_floating_point(), "mlp_loss: target is ", target.dtype(),
                 ", expected int64 class numbers, or a floating-point tensor");
  HALFTAPE_CHECK(target.sizes() == (classes ? rows : outputs), "mlp_loss: target ", target.sizes(),
                 " for outputs ", outputs, "; expected ", classes ? rows : outputs);
  HALFTAPE_CHECK(target.device() == x.device(), "mlp_loss: target on ", target.device(), ", x on ",
                 x.device(), "; move one with .to(device)");
  if (scale.defined())
    HALFTAPE_CHECK(scale.dtype() == kFloat32 && scale.sizes() == Shape{} &&
                       scale.device() == x.device() && !scale.requires_grad(),
                   "mlp_loss: scale ", scale.sizes(), " of ", scale.dtype(), " on ", scale.device(),
                   "; expected one float32 number on ", x.device());
}

/// The loss, recorded as one op; its gradients by the parameters are computed with it where
/// gradients_in_forward() allows. inputs: x, then weight and bias of each layer.
Tensor recorded_loss(MlpLoss m, Dtype multiplied, const Tensor& t, const TensorList& inputs,
                     Activation activation, const Tensor& scale) {
  const Tensor& h = inputs[0];
  const size_t layers = m.weights.size();
  Whole whole{activation, multiplied, Saved(t), {}};
  for (const Tensor& x : inputs) whole.inputs.push_back(Saved::if_wanted(x.defined(), x));
  if (gradients_in_forward(inputs, multiplied, scale)) {
    for (size_t l = 0; l < layers; ++l) {
      m.dweights.push_back(fresh_gradient(inputs[weight_input(l)]));
      m.dbiases.push_back(fresh_gradient(inputs[bias_input(l)]));
      whole.ready.push_back(m.dweights.back());
      whole.ready.push_back(m.dbiases.back());
    }
    if (scale.defined()) m.g = whole.scale = scale.array(), whole.version = scale.version();
  }
  backend(h.device()).run(m);
  return record(
      "mlp_loss", m.loss, inputs, [whole = std::move(whole)](Node& self, const Tensor& g) {
        return GradMode::is_enabled() ? whole.recorded(self, g) : whole.gradients(self, g);
      });
}

}  // namespace

Tensor mlp_loss(const Tensor& x_in, const Tensor& target, const TensorList& weights,
                const TensorList& biases, Activation activation, const Tensor& scale) {
  const ErrorScope scope("mlp_loss", x_in, target);
  detail::check_layers("mlp_loss", weights, biases);
  const size_t layers = weights.size();
  Tensor x;
  std::optional<Dtype> lowered;  // what the policy casts to, which the backend does as it reads
  {
    // A gradient comes back through a cast that is recorded.
    const CastOp op = wants_grad(x_in) ? cast_list::linear : cast_list::linear.converting(is_16bit);
    const auto given = cast_inputs(op, x_in);
    x = given[0];
    lowered = given.compute_as();
  }
  const Dtype multiplied = lowered.value_or(x.dtype());
  check_inputs(x, target, weights, scale);
  const int64_t count = numel(reduced_shape(x.sizes(), {x.dim() - 1}, false));
  const Tensor h = contiguous(detail::reshaped(x, {count, x.size(-1)}));
  const Tensor t =
      contiguous(target.dtype() == kInt64 ? detail::reshaped(target, {count})
                                          : detail::reshaped(target, {count, target.size(-1)}));

  MlpLoss m{.x = h.array(), .multiplied = multiplied, .target = t.array(), .weights = {}};
  TensorList inputs{h};
  bool fused = !target.requires_grad();
  int64_t width = h.size(1);
  for (size_t l = 0; l < layers; ++l) {
    const Tensor& w = weights[l];
    const Tensor b = biases.empty() ? Tensor() : biases[l];
    HALFTAPE_CHECK(w.dim() == 2, "mlp_loss: weight ", w.sizes(), " must be (out, in)");
    check_parameter(h, "weight", w, {w.size(0), width});
    width = w.size(0);
    if (b.defined()) check_parameter(h, "bias", b, {width});
    fused = fused && is_readable(multiplied, w) && (!b.defined() || is_readable(multiplied, b));
    m.weights.push_back(w.array());
    m.biases.push_back(b.defined() ? b.array() : Array());
    inputs.push_back(w), inputs.push_back(b);
  }
  if (!fused || !is_small(m)) return in_ops(h, t, weights, biases, activation);

  const PolicyScope plain(nullptr);
  m.activation = detail::op_of(activation);
  m.loss = Array({}, kFloat32, h.device());
  if (!GradMode::is_enabled() || std::none_of(inputs.begin(), inputs.end(), wants_grad)) {
    backend(h.device()).run(m);
    return Tensor(m.loss);
  }
  return recorded_loss(std::move(m), multiplied, t, inputs, activation, scale);
}

}  // namespace halftape
