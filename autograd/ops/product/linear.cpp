#include "halftape/autograd/ops/product/linear.h"

#include <algorithm>
#include <iterator>
#include <vector>

#include "halftape/autograd/ops/cast_list.h"
#include "halftape/autograd/ops/layout/dims.h"
#include "halftape/autograd/ops/layout/view.h"
#include "halftape/autograd/ops/product/layers.h"
#include "halftape/autograd/ops/product/matmul.h"
#include "halftape/autograd/ops/reduction/reduce.h"
#include "halftape/autograd/tape/error_scope.h"
#include "halftape/autograd/tape/record.h"
#include "halftape/core/contract/backend.h"

namespace halftape {
namespace {

using detail::bias_input, detail::weight_input;

Epilogue epilogue_of(Activation a) {
  return a == Activation::Relu   ? Epilogue::Relu
         : a == Activation::Gelu ? Epilogue::Gelu
                                 : Epilogue::None;
}

/// The op of an activation that no product has as its epilogue.
std::optional<OpId> separate_op(Activation a) {
  return a == Activation::Relu || a == Activation::Gelu ? std::nullopt : detail::op_of(a);
}

void check_layer(const char* op, const Shape& x, const Tensor& like, const Tensor& w,
                 const Tensor& b) {
  detail::same_kind(op, like, w);
  HALFTAPE_CHECK(w.dim() == 2, op, ": weight ", w.sizes(), " must be (out, in)");
  const int64_t features = x.size() >= 1 ? x[x.size() - 1] : 0;
  HALFTAPE_CHECK(x.size() >= 1 && features == w.size(1), op, ": input ", x, " has ", features,
                 " features, weight ", w.sizes(), " expects ", w.size(1));
  if (!b.defined()) return;
  detail::same_kind(op, like, b);
  HALFTAPE_CHECK(b.sizes() == Shape{w.size(0)}, op, ": bias ", b.sizes(), ", weight ", w.sizes(),
                 " expects ", Shape{w.size(0)});
}

Shape with_features(Shape shape, int64_t features) {
  shape[shape.size() - 1] = features;
  return shape;
}
/// (…, in) → (rows, in).
Tensor as_rows(const Tensor& x) {
  return detail::reshaped(x, {numel(with_features(x.sizes(), 1)), x.size(-1)});
}

/// The gradients of weight and bias, inputs i and i + 1 of a node, from that of their product with
/// the rows x, in the dtype in which the leaf wants them. What is there already is left alone.
void parameter_gradients(const Node& self, size_t i, const Tensor& g, const Tensor& x, Grads& d) {
  const bool wants_bias = self.wants(i + 1) && !d[i + 1].defined();
  const bool fused = self.wants(i) && !GradMode::is_enabled();
  if (fused) {
    const Array dw({g.size(1), x.size(1)}, self.finest(i), g.device());
    Array db;
    if (wants_bias) db = Array({g.size(1)}, self.finest(i + 1), g.device());
    backend(g.device())
        .gemm({.d = dw, .a = g.array().transpose(0, 1), .b = x.array(), .bias_grad = db});
    d[i] = Tensor(dw);
    if (wants_bias) d[i + 1] = Tensor(db);
    return;
  }
  if (self.wants(i)) {  // the factors as they are, multiplied in the gradient's dtype
    const Dtype type = self.finest(i);
    d[i] = matmul(g.mT().to(type), x.to(type));
  }
  if (wants_bias) d[i + 1] = sum(g, {0}, false, self.finest(i + 1));
}

/// The product and its activation, in one call where there is one, recorded as the two ops that
/// they are.
Tensor layer(const Tensor& x, const Tensor& w, const Tensor& b, Activation activation) {
  const Array y({x.size(0), w.size(0)}, x.dtype(), x.device());
  const std::optional<OpId> op = separate_op(activation);
  const bool recorded = records({&x, &w, &b}), gelu = activation == Activation::Gelu;
  // The input of GELU, which its derivative needs. ReLU's can do with the output.
  Array z = gelu && recorded ? Array(y.shape(), y.dtype(), y.device()) : Array();
  if (op) z = Array(y.shape(), compute_dtype(x.dtype()), y.device());
  backend(x.device())
      .gemm({.d = op ? z : y,
             .a = x.array(),
             .b = w.array().transpose(0, 1),
             .bias = b.defined() ? &b.array() : nullptr,
             .epilogue = epilogue_of(activation),
             .aux = op ? Array() : z});
  if (op) backend(x.device()).unary(*op, y, z, {});
  if (!recorded) return Tensor(y);
  const Tensor sum =
      record("linear",
             op     ? z.to(y.dtype())
             : gelu ? z
                    : y,
             {&x, &w, &b},
             [x = Saved::if_wanted(w.requires_grad(), x),
              w = Saved::if_wanted(x.requires_grad(), w)](Node& self, const Tensor& g) -> Grads {
               Grads d(3);
               if (self.wants(0)) d[0] = matmul(g, w.tensor(self));
               parameter_gradients(self, 1, g, x.defined() ? x.tensor(self) : Tensor(), d);
               return d;
             });
  const std::optional<OpId> of = detail::op_of(activation);
  return of ? detail::recorded_unary(*of, sum, y) : sum;
}

/// The tensors that mlp(), recorded as one op, saves for its backward pass.
struct SavedMlp {
  Activation activation;
  Saved x;
  std::vector<Saved> weights, biases;
  std::vector<Saved> hidden;  // h₁ …: the inputs of layers l > 0
  std::vector<Saved> aux;     // their aux outputs: masks, or the inputs of GELU

  size_t size() const { return weights.size(); }
  Grads gradients(Node& self, const Tensor& g) const;
  Grads recorded(Node& self, Tensor g) const;
};

Grads SavedMlp::gradients(Node& self, const Tensor& g_out) const {
  Grads d(1 + 2 * size());
  size_t lowest = 0;  // the first input that a gradient is to reach
  while (lowest < d.size() && !self.wants(lowest)) ++lowest;
  const Epilogue through = activation == Activation::Relu   ? Epilogue::DRelu
                           : activation == Activation::Gelu ? Epilogue::DGelu
                                                            : Epilogue::None;
  Tensor g = g_out;
  for (size_t l = size(); l-- > 0;) {
    const Array& input = l > 0 ? hidden[l - 1].array(self) : x.array(self);
    parameter_gradients(self, weight_input(l), g, Tensor(input), d);
    if (lowest >= weight_input(l)) break;
    // On to the layer below, through the activation between them; with it the bias's gradient,
    // unless that is to be finer than g.
    const Array& w = weights[l].array(self);
    const Array below({g.size(0), w.size(1)}, g.dtype(), g.device());
    Gemm product{.d = below, .a = g.array(), .b = w};
    if (l > 0 && activation != Activation::None) {
      const size_t bias = bias_input(l - 1);
      product.epilogue = through;
      product.aux = aux[l - 1].array(self);
      if (self.wants(bias) && self.finest(bias) == g.dtype()) {
        product.bias_grad = Array({w.size(1)}, g.dtype(), g.device());
        d[bias] = Tensor(product.bias_grad);
      }
    }
    backend(g.device()).gemm(product);
    g = Tensor(below);
    if (l > 0 && detail::tape_is_watched())
      detail::show_derived_inside(self, weight_input(l - 1), below);
  }
  if (self.wants(0)) d[0] = g;
  return d;
}

/// By the rules of the layers as ops of their own, made again with their history.
Grads SavedMlp::recorded(Node& self, Tensor g) const {
  const auto given = [&](const Saved& s) { return s.defined() ? s.tensor(self) : Tensor(); };
  std::vector<Tensor> outputs{given(x)};
  for (size_t l = 0; l < size(); ++l)
    outputs.push_back(layer(outputs[l], given(weights[l]), given(biases[l]),
                            l + 1 < size() ? activation : Activation::None));
  const Node::Wanted everything(nullptr);
  Grads d(1 + 2 * size());
  for (size_t l = size(); l-- > 0;) {
    Ref<Node> node = outputs[l + 1].grad_fn();
    if (!node) return d;  // nothing below wants a gradient
    if (l + 1 < size() && activation != Activation::None) {
      g = node->vjp({g})[0];
      node = node->next[0].node;
    }
    const Grads of_layer = node->vjp({g});
    d[weight_input(l)] = of_layer[1];
    d[bias_input(l)] = of_layer[2];
    g = of_layer[0];
    if (!g.defined()) return d;
  }
  d[0] = g;
  return d;
}

/// All layers, recorded as one op. inputs: the rows of x, then weight and bias of each layer.
Tensor one_op(const TensorList& inputs, Activation activation) {
  const size_t layers = inputs.size() / 2;
  const bool recorded = records(inputs);
  SavedMlp saved{activation, recorded ? Saved(inputs[0]) : Saved(), {}, {}, {}, {}};
  Array h = inputs[0].array();
  for (size_t l = 0; l < layers; ++l) {
    const Tensor &w = inputs[weight_input(l)], &b = inputs[bias_input(l)];
    const bool last = l + 1 == layers;
    const Array y({h.size(0), w.size(0)}, h.dtype(), h.device());
    Gemm product{.d = y,
                 .a = h,
                 .b = w.array().transpose(0, 1),
                 .bias = b.defined() ? &b.array() : nullptr,
                 .epilogue = last ? Epilogue::None : epilogue_of(activation)};
    if (recorded && product.epilogue != Epilogue::None)
      product.aux = activation == Activation::Gelu
                        ? Array(y.shape(), y.dtype(), y.device())
                        : Array({y.size(0), relu_mask_bytes(y.size(1))}, kUInt8, y.device());
    backend(y.device()).gemm(product);
    h = y;
    if (!recorded) continue;
    if (!last && detail::tape_is_watched()) detail::show_made_inside("linear", w, y);
    saved.weights.emplace_back(w);
    saved.biases.push_back(b.defined() ? Saved(b) : Saved());
    if (!last) saved.hidden.emplace_back(y);
    if (product.aux.defined()) saved.aux.emplace_back(product.aux);
  }
  return record("linear", h, inputs, [saved = std::move(saved)](Node& self, const Tensor& g) {
    return GradMode::is_enabled() ? saved.recorded(self, g) : saved.gradients(self, g);
  });
}

}  // namespace

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  return linear(x, weight, bias, Activation::None);
}

Tensor linear(const Tensor& x_in, const Tensor& w_in, const Tensor& b_in, Activation activation) {
  const auto [x, w, b] = cast_inputs<2>(cast_list::linear, x_in, w_in, b_in);
  check_layer("linear", x.sizes(), x, w, b);
  return detail::reshaped(layer(as_rows(x), w, b, activation), with_features(x.sizes(), w.size(0)));
}

Tensor mlp(const Tensor& x_in, const TensorList& weights, const TensorList& biases,
           Activation activation) {
  const ErrorScope scope("mlp", x_in);
  detail::check_layers("mlp", weights, biases);
  const size_t layers = weights.size();
  // What the policy casts: all that is there.
  TensorList all{x_in};
  all.insert(all.end(), weights.begin(), weights.end());
  std::copy_if(biases.begin(), biases.end(), std::back_inserter(all),
               [](const Tensor& b) { return b.defined(); });
  const TensorList given = cast_inputs(cast_list::linear, std::as_const(all));
  const PolicyScope plain(nullptr);

  const Tensor& x = given[0];
  TensorList inputs{x};
  Shape shape = x.sizes();
  auto bias = given.begin() + static_cast<std::ptrdiff_t>(1 + layers);
  for (size_t l = 0; l < layers; ++l) {
    const Tensor& w = given[1 + l];
    inputs.push_back(w);
    inputs.push_back(!biases.empty() && biases[l].defined() ? *bias++ : Tensor());
    check_layer("mlp", shape, x, w, inputs.back());
    shape = with_features(shape, w.size(0));
  }
  inputs[0] = as_rows(x);

  if (separate_op(activation)) {
    Tensor h = inputs[0];
    for (size_t l = 0; l < layers; ++l)
      h = layer(h, inputs[weight_input(l)], inputs[bias_input(l)],
                l + 1 < layers ? activation : Activation::None);
    return detail::reshaped(h, shape);
  }

  return detail::reshaped(one_op(inputs, activation), shape);
}

}  // namespace halftape
