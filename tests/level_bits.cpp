// A sum over the bits of what the CPU's kernels give, a line for each: the same at every level of
// instructions, whose outputs tests/level_bits.cmake compares. Products are not among them.
#include <halftape/halftape.h>

#include <cinttypes>
#include <cmath>
#include <cstdio>

#include "halftape/core/contract/backend.h"
#include "halftape/core/formula/unary.h"

using namespace halftape;

namespace {

void print(const char* name, const Tensor& x) {
  uint64_t hash = 14695981039346656037u;  // FNV-1a
  const Tensor plain = x.detach().contiguous();
  const auto* bytes = static_cast<const unsigned char*>(plain.data_ptr());
  const size_t size =
      static_cast<size_t>(plain.numel()) * static_cast<size_t>(plain.element_size());
  for (size_t i = 0; i < size; ++i) hash = (hash ^ bytes[i]) * 1099511628211u;
  std::printf("%s %016" PRIx64 "\n", name, hash);
}

void print_maps(const Tensor& x) {
  const Tensor positive = x.abs() + 1e-3, small = x.clamp(-0.999, 0.999);
  print("exp", exp(x));
  print("exp2", exp2(x));
  print("expm1", expm1(x));
  print("log", log(positive));
  print("log1p", log1p(positive));
  print("log2", log2(positive));
  print("log10", log10(positive));
  print("tanh", tanh(x));
  print("sigmoid", sigmoid(x));
  print("erf", erf(x));
  print("erfc", erfc(x));
  print("sin", sin(x));
  print("cos", cos(x));
  print("tan", tan(x));
  print("sinh", sinh(x));
  print("cosh", cosh(x));
  print("asinh", asinh(x));
  print("atanh", atanh(small));
  print("sqrt", sqrt(positive));
  print("gelu", gelu(x));
  print("gelu by tanh", gelu(x, "tanh"));
  print("silu", silu(x));
  print("softplus", softplus(x));
  print("quotient", x / positive);
}

/// Functions of NaN and their derivatives, by each formula: what its sign becomes.
void print_nans(Dtype dtype) {
  const Tensor x = full({70}, NAN, dtype), y = empty_like(x), g = ones_like(x);
  x.slice(0, 0, 70, 3).neg_();
  UnaryOps::each([&](auto op) {
    const OpId id = UnaryOps::index<typename decltype(op)::type>();
    backend(kCPU).unary(id, y.array(), x.array(), {1.5, 2.5});
    print(decltype(op)::type::name, y);
    backend(kCPU).unary_grad(id, y.array(), g.array(), x.array(), {1.5, 2.5});
    print("its derivative", y);
  });
}

void print_reductions(const Tensor& x) {
  print("sum", x.sum());
  print("sum of columns", x.sum({0}));
  print("mean of rows", x.mean({1}));
  print("amax", amax(x, {1}));
  print("cumsum", cumsum(x, 1));
  print("softmax", softmax(x, 1));
  print("log_softmax", log_softmax(x, 0));
  print("layer_norm", layer_norm(x, {x.size(1)}));
  print("transposed", (x.t() + x.t()).contiguous());
}

void print_step(const char* name, optim::Optimizer& optimizer, const Tensor& weight) {
  for (int i = 0; i < 3; ++i) {
    optimizer.zero_grad();
    (gelu(weight) * weight).sum().backward();
    optimizer.step();
  }
  print(name, weight);
}

}  // namespace

int main() {
  manual_seed(1);
  for (const Dtype dtype : {kFloat32, kFloat16, kBFloat16, kFloat64}) {
    const Tensor x = (randn({70, 513}) * 4).to(dtype);
    print("random", x);
    for (const Dtype to : {kFloat32, kFloat16, kBFloat16, kInt64}) print("cast", x.to(to));
    print_maps(x);
    print_nans(dtype);
    print_reductions(x);
    const Tensor weight = x.clone().set_requires_grad(true), other = weight.detach().clone();
    optim::SGD sgd({weight}, optim::SGDOptions(0.1).momentum(0.9).nesterov(true));
    print_step("SGD", sgd, weight);
    other.set_requires_grad(true);
    optim::AdamW adamw({other}, optim::AdamWOptions(0.1));
    print_step("AdamW", adamw, other);
  }
}
