// Rows of the op table: layers with an activation, and chains of them.
#include "halftape/autograd/ops/product/linear.h"
#include "halftape/tests/support/ops.h"

namespace halftape::testing {
namespace {

double activated(Activation a, double x) {
  constexpr double k = 0.79788456080286535588;  // √(2/π)
  if (a == Activation::Relu) return x > 0 ? x : 0;
  if (a == Activation::Gelu) return x / 2 * (1 + std::tanh(k * (x + 0.044715 * x * x * x)));
  return x;
}

/// One layer; an empty b is none.
Values layer(const Values& x, const Values& w, const Values& b, Activation a) {
  const auto in = static_cast<size_t>(w.shape[1]), out = static_cast<size_t>(w.shape[0]);
  const auto rows = static_cast<int64_t>(x.v.size() / in);
  Values y{{rows, w.shape[0]}, matmul_reference({{rows, w.shape[1]}, x.v}, {w.shape, w.v}, true)};
  for (size_t i = 0; i < y.v.size(); ++i)
    y.v[i] = activated(a, y.v[i] + (b.v.empty() ? 0 : b.v[i % out]));
  return y;
}

}  // namespace

void linear_rows(std::vector<OpRow>& rows) {
  const std::pair<const char*, Activation> activations[] = {
      {"none", Activation::None}, {"relu", Activation::Relu}, {"gelu", Activation::Gelu}};
  for (const auto& activation : activations) {  // a pair: clang 14 captures no structured binding
    const char* const name = activation.first;
    const Activation a = activation.second;
    for (const Shape& x : {Shape{3, 4}, Shape{4}, Shape{2, 0, 4}})
      rows.push_back(
          {.name = std::string("linear, ") + name,
           .call = [a](const TensorList& in) { return linear(in[0], in[1], in[2], a); },
           .shapes = {x, {9, 4}, {9}},
           .reference =
               [a](const std::vector<Values>& in) { return layer(in[0], in[1], in[2], a).v; },
           .cast = Cast::Lower,
           .needed = 2});
    rows.push_back({.name = std::string("mlp, ") + name,
                    .call =
                        [a](const TensorList& in) {
                          return mlp(in[0], {in[1], in[2], in[3]}, {in[4], {}, in[5]}, a);
                        },
                    .shapes = {{2, 2, 3}, {5, 3}, {4, 5}, {2, 4}, {5}, {2}},
                    .reference =
                        [a](const std::vector<Values>& in) {
                          const Values h = layer(layer(in[0], in[1], in[4], a), in[2], {}, a);
                          return layer(h, in[3], in[5], Activation::None).v;
                        },
                    .low = -1,
                    .high = 1,
                    .cast = Cast::Lower,
                    .one_kernel = false,
                    .eps = 32,
                    .needed = 4});
  }
  rows.push_back({.name = "mlp of one layer",
                  .call = [](const TensorList& in) { return mlp(in[0], {in[1]}); },
                  .shapes = {{3, 4}, {2, 4}},
                  .reference =
                      [](const std::vector<Values>& in) {
                        return layer(in[0], in[1], {}, Activation::None).v;
                      },
                  .cast = Cast::Lower,
                  .one_kernel = false});
}

}  // namespace halftape::testing
