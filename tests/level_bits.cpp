// A sum over the bits of what the CPU's kernels give, a line for each: the same at every level of
// instructions, whose outputs tests/level_bits.cmake compares, and on every system, whose sums of
// families tests/level_bits.txt has. Products come last: they are chains of fused multiply-adds
// wherever a level has those, and left out where it has not.
#include <halftape/halftape.h>

#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <string>

#include "halftape/core/contract/backend.h"
#include "halftape/core/formula/unary.h"
#include "halftape/core/machine/cpu_capability.h"

using namespace halftape;

namespace {

constexpr uint64_t kStart = 14695981039346656037u;  // FNV-1a
uint64_t family = kStart;

void print(const char* name, const Tensor& x) {
  uint64_t hash = kStart;
  const Tensor plain = x.detach().contiguous();
  const auto* bytes = static_cast<const unsigned char*>(plain.data_ptr());
  const size_t size =
      static_cast<size_t>(plain.numel()) * static_cast<size_t>(plain.element_size());
  for (size_t i = 0; i < size; ++i) hash = (hash ^ bytes[i]) * 1099511628211u;
  family = (family ^ hash) * 1099511628211u;
  std::printf("%s %016" PRIx64 "\n", name, hash);
}
/// The sum of the lines since the last one. Functions of float64 are the C library's, which asks
/// for the processor itself.
void print_sum(const char* of, Dtype dtype) {
  if (dtype != kFloat64)
    std::printf("sum: %s of %s %016" PRIx64 "\n", of, std::string(name(dtype)).c_str(), family);
  family = kStart;
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

void print_products(const Tensor& x) {
  print("product", matmul(x, x.t()));
  print("product of columns", matmul(x.t(), x.narrow(1, 3, 129)));
  print("product of one row", matmul(x.narrow(0, 5, 1), x.t()));
  print("linear",
        linear(x.narrow(1, 0, 95), x.narrow(1, 100, 95), x.select(1, 7), Activation::Relu));
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
  set_native_bfloat16(false);
  const auto dtypes = {kFloat32, kFloat16, kBFloat16, kFloat64};
  for (const Dtype dtype : dtypes) {
    const Tensor x = (randn({70, 513}) * 4).to(dtype);
    print("random", x);
    for (const Dtype to : {kFloat32, kFloat16, kBFloat16, kInt64}) print("cast", x.to(to));
    print_sum("casts", dtype);
    print_maps(x);
    print_sum("functions", dtype);
    print_nans(dtype);
    print_sum("NaN", dtype);
    print_reductions(x);
    print_sum("reductions", dtype);
    const Tensor weight = x.clone().set_requires_grad(true), other = weight.detach().clone();
    optim::SGD sgd({weight}, optim::SGDOptions(0.1).momentum(0.9).nesterov(true));
    print_step("SGD", sgd, weight);
    other.set_requires_grad(true);
    optim::AdamW adamw({other}, optim::AdamWOptions(0.1));
    print_step("AdamW", adamw, other);
    print_sum("steps", dtype);
  }
  if (get_cpu_capability() == "baseline") return 0;
  for (const Dtype dtype : dtypes) {
    if (dtype == kFloat64) continue;  // by Eigen
    print_products((randn({70, 513}) * 4).to(dtype));
    print_sum("products", dtype);
  }
}
