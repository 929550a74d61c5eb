// Gradients of weights on their way from a product of halves to a float32 leaf: nothing rounds
// them.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include "halftape/tests/support/native_bfloat16.h"

using namespace halftape;

namespace {

/// A linear layer's output in half, from float32 parameters, each way in which they are cast.
Tensor in_half(bool region, Dtype d, const Tensor& x, const Tensor& w, const Tensor& b) {
  if (!region) return linear(x.to(d), w.to(d), b.to(d));
  const amp::autocast here(kCPU, d);
  return linear(x, w, b);
}

struct Parameters {
  Tensor w = zeros({1, 1}, requires_grad()), b = zeros({1}, requires_grad());
};

}  // namespace

TEST_CASE("a weight gradient above 65504 arrives at its float32 leaf as it is") {
  for (const bool region : {false, true}) {
    const Parameters p;
    const Tensor y = in_half(region, kFloat16, full({512, 1}, 256.0), p.w, p.b);
    y.backward(full({512, 1}, 256.0, kFloat16));
    CHECK(p.w.grad().item() == 512.0 * 256 * 256);
    CHECK(p.b.grad().item() == 512.0 * 256);
    CHECK(p.w.grad().dtype() == kFloat32);
  }
}

TEST_CASE("a weight gradient is not rounded to half: 2048 + 1 is 2049") {
  for (const bool region : {false, true}) {
    for (const Dtype d : {kFloat16, kBFloat16}) {
      for (const bool recorded : {false, true}) {
        const Parameters p;
        const Tensor x = tensor({1.0, 2048.0}).view({2, 1}).requires_grad_();
        const Tensor y = in_half(region, d, x, p.w, p.b);
        const TensorList g =
            autograd::grad({y}, {p.w, p.b}, {tensor({1.0, 1.0}, d).view({2, 1})}, {}, recorded);
        CHECK(g[0].item() == 2049);
        CHECK(g[0].requires_grad() == recorded);
        const Tensor ones_of_many = ones({2049, 1}, d);
        const Tensor db = autograd::grad({in_half(region, d, ones({2049, 1}), p.w, p.b)}, {p.b},
                                         {ones_of_many})[0];
        CHECK(db.item() == 2049);
      }
    }
  }
}

TEST_CASE("the gradient in float32 has the bits of a float32 product") {
  const testing::NativeBFloat16 off(false);
  manual_seed(5);
  const Tensor x = randn({37, 19}), w = randn({11, 19}, requires_grad()),
               b = randn({11}, requires_grad()), g = randn({37, 11}, kBFloat16);
  in_half(true, kBFloat16, x, w, b).backward(g);
  const Tensor wide = g.to(kFloat32);
  CHECK(w.grad().equal(matmul(wide.t(), x.to(kBFloat16).to(kFloat32))));
  CHECK(b.grad().equal(wide.sum({0})));
}

TEST_CASE("a weight that is itself half gets its gradient in half") {
  const Tensor w = zeros({1, 1}, TensorOptions(kFloat16).requires_grad(true));
  linear(full({512, 1}, 256.0, kFloat16), w).backward(full({512, 1}, 256.0, kFloat16));
  CHECK(w.grad().dtype() == kFloat16);
  CHECK(w.grad().isinf().item<bool>());
}

TEST_CASE("uses of one cast weight add up in float32, whatever the uses are") {
  const Tensor w = zeros({1, 1}, requires_grad()), one = ones({1, 1}, kFloat16);
  const Tensor half = w.to(kFloat16);
  const Tensor y = linear(one * 2048, half) + matmul(one, half) + linear(one * 2048, half);
  y.backward();
  CHECK(w.grad().item() == 4097);
}

TEST_CASE("who looks at a cast weight's gradient sees it in half, and it goes on in float32") {
  const Tensor w = zeros({1, 1}, requires_grad());
  const Tensor x = tensor({1.0, 2048.0}, kFloat16).view({2, 1}), g = ones({2, 1}, kFloat16);
  Tensor half = w.to(kFloat16);
  half.retain_grad();
  Tensor seen;
  half.register_hook([&](const Tensor& grad) { seen = grad; });
  linear(x, half).backward(g);
  CHECK(seen.dtype() == kFloat16);
  CHECK(seen.item() == 2048);
  CHECK(half.grad().dtype() == kFloat16);
  CHECK(half.grad().item() == 2048);
  CHECK(w.grad().item() == 2049);

  // What a hook gives instead is the tensor's, too.
  half = w.to(kFloat16);
  half.register_hook([](const Tensor& grad) { return grad * 2; });
  w.mutable_grad().zero_();
  linear(x, half).backward(g);
  CHECK(w.grad().item() == 4096);

  // And what it writes into the one that it sees.
  half = w.to(kFloat16);
  half.register_hook([](const Tensor& grad) { grad.mul_(2); });
  w.mutable_grad().zero_();
  linear(x, half).backward(g);
  CHECK(w.grad().item() == 4096);

  half = w.to(kFloat16);
  const Tensor asked = autograd::grad({linear(x, half)}, {half}, {g})[0];
  CHECK(asked.dtype() == kFloat16);
}

TEST_CASE("anomaly mode watches gradients in float32 as well") {
  const Parameters p;
  const autograd::DetectAnomalyGuard watch;
  in_half(true, kFloat16, full({512, 1}, 256.0), p.w, p.b).sum().backward();
  CHECK(p.w.grad().item() == 512.0 * 256);
  CHECK_THROWS_WITH_AS(
      in_half(true, kFloat16, full({2, 1}, NAN), p.w, p.b).sum().backward(),
      doctest::Contains("`linear` gave a NaN in the gradient of its input 1 (float32"), Error);
}

TEST_CASE("derivatives of any order pass through gradients in float32") {
  const Tensor x = tensor({{0., 1., 0.}, {1., -1., 1.}, {-1., 0., -1.}, {1., -1., 0.}})
                       .requires_grad_(),
               w = tensor({{-0.5, 0., 1.}, {-0.5, 0., 0.5}}).requires_grad_(),
               b = tensor({0., 1.}).requires_grad_();
  // All values and gradients of x and y have 8 significant bits at most, so that none is rounded;
  // 381, which arrives at w, has 9.
  const auto derivatives = [&](bool half) {
    const Tensor y = half ? in_half(true, kBFloat16, x, w, b).to(kFloat32) : linear(x, w, b);
    const TensorList first = autograd::grad({(y * y * y).sum()}, {w, b}, {}, {}, true);
    const TensorList second =
        autograd::grad({(first[0] * first[0]).sum() + first[1].sum()}, {x, w, b}, {}, {}, true);
    return autograd::grad({second[0].sum()}, {w})[0];
  };
  const Tensor rough = derivatives(true), exact = derivatives(false);
  CHECK(rough.dtype() == kFloat32);
  CHECK(exact.equal(tensor({{9., -69., -3.}, {381., 30., 381.}})));
  CHECK(rough.equal(exact));
}
