#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <thread>

#include "halftape/tests/support/tracing_backend.h"

using namespace halftape;
using amp::autocast;

TEST_CASE("inside a region a matrix product runs in the region's dtype and outside in its own") {
  const Tensor a = randn({3, 4}), b = randn({4, 5});
  for (const Dtype lower : {kFloat16, kBFloat16}) {
    const autocast region(kCPU, lower);
    CHECK(matmul(a, b).dtype() == lower);
    CHECK(matmul(a, b).equal(matmul(a.to(lower), b.to(lower))));
    CHECK(linear(a, b.t(), ones({5})).dtype() == lower);
  }
  CHECK(matmul(a, b).dtype() == kFloat32);
}

TEST_CASE("range-hungry ops run in float32 and element-wise ones in what they are given") {
  const Tensor h = rand({3, 4}, kFloat16) + 0.5;
  const autocast region(kCPU, kFloat16);
  CHECK(exp(h).dtype() == kFloat32);
  CHECK(log(h).dtype() == kFloat32);
  CHECK(pow(h, 3).dtype() == kFloat32);
  CHECK(softmax(h, -1).dtype() == kFloat32);
  CHECK(h.sum().dtype() == kFloat32);
  CHECK(mse_loss(h, h).dtype() == kFloat32);
  CHECK(cross_entropy(h, zeros({3}, kInt64)).dtype() == kFloat32);
  CHECK(relu(h).dtype() == kFloat16);
  CHECK(h.mean().dtype() == kFloat16);  // as torch's CUDA list: mean is in no category
  CHECK((h + h).dtype() == kFloat16);
  CHECK((h + ones({4})).dtype() == kFloat32);  // ordinary promotion
}

TEST_CASE("float64 and integers are left alone") {
  const autocast region(kCPU, kFloat16);
  CHECK(matmul(ones({2, 2}, kFloat64), ones({2, 2}, kFloat64)).dtype() == kFloat64);
  CHECK(exp(ones({2}, kFloat64)).dtype() == kFloat64);
  CHECK(ones({2}, kInt64).sum().dtype() == kInt64);
  CHECK_THROWS_WITH_AS(matmul(ones({2, 2}, kFloat64), ones({2, 2})),
                       doctest::Contains("float64 and float16"), Error);
}

TEST_CASE("an explicit dtype wins over the region") {
  const autocast region(kCPU, kFloat16);
  CHECK(softmax(ones({2, 3}, kFloat16), -1, kFloat64).dtype() == kFloat64);
  CHECK(ones({3}, kFloat16).sum(kFloat16).dtype() == kFloat16);
}

TEST_CASE("regions nest, holes open, and the state returns also after an exception") {
  const Tensor a = randn({2, 2});
  CHECK_FALSE(amp::is_autocast_enabled(kCPU));
  {
    const autocast outer(kCPU, kFloat16);
    {
      const autocast inner(kCPU, kBFloat16);
      CHECK(matmul(a, a).dtype() == kBFloat16);
      {
        const autocast hole(kCPU, {}, false);
        CHECK_FALSE(amp::is_autocast_enabled(kCPU));
        CHECK(matmul(a, a).dtype() == kFloat32);
        CHECK_THROWS_AS(matmul(a, a.to(kFloat16)), Error);
      }
      CHECK(amp::get_autocast_dtype(kCPU) == kBFloat16);
    }
    CHECK(matmul(a, a).dtype() == kFloat16);
    CHECK_THROWS_AS(
        [&] {
          const autocast inner(kCPU, kBFloat16);
          (void)matmul(a, ones({3, 3}));
        }(),
        Error);
    CHECK(amp::get_autocast_dtype(kCPU) == kFloat16);
  }
  CHECK_FALSE(amp::is_autocast_enabled(kCPU));
  CHECK(matmul(a, a).dtype() == kFloat32);
}

TEST_CASE("a region of another device type does not touch CPU tensors") {
  const autocast region(kCUDA, kFloat16);
  CHECK(matmul(ones({2, 2}), ones({2, 2})).dtype() == kFloat32);
}

TEST_CASE("the default dtype is bfloat16 on the CPU and other dtypes are refused") {
  {
    const autocast region(kCPU);
    CHECK(amp::get_autocast_dtype(kCPU) == kBFloat16);
  }
  CHECK_THROWS_WITH_AS(const autocast region(kCPU, kFloat32),
                       doctest::Contains("float32 is not float16 or bfloat16"), Error);
  CHECK_NOTHROW(const autocast region(kCPU, kFloat32, false));
}

TEST_CASE("a region is the thread's own") {
  const autocast region(kCPU, kFloat16);
  bool seen = true;
  std::thread([&] { seen = amp::is_autocast_enabled(kCPU); }).join();
  CHECK_FALSE(seen);
}

TEST_CASE("binary_cross_entropy is refused inside a region with the advice to use logits") {
  const Tensor p = rand({4}), y = zeros({4});
  CHECK_NOTHROW(binary_cross_entropy(p, y));
  const autocast region(kCPU, kFloat16);
  CHECK_THROWS_WITH_AS(binary_cross_entropy(p, y),
                       doctest::Contains("binary_cross_entropy_with_logits"), Error);
  CHECK(binary_cross_entropy_with_logits(p, y).dtype() == kFloat32);
}

TEST_CASE("float32 parameters get float32 gradients through the casts") {
  const Tensor w = randn({5, 4}, requires_grad()), x = randn({3, 4});
  Tensor loss;
  {
    const autocast region(kCPU, kFloat16);
    loss = linear(x, w).sum();
  }
  loss.backward();
  CHECK(w.grad().dtype() == kFloat32);
  CHECK(w.grad().equal(matmul(ones({5, 3}), x.to(kFloat16).to(kFloat32))));
}

TEST_CASE("a weight is cast once per region, again after it changed, and not kept afterwards") {
  const Tensor x = randn({3, 4}, kFloat16);
  Tensor w = randn({5, 4}, requires_grad());
  testing::TracingBackend trace;
  {
    const autocast region(kCPU, kFloat16);
    (void)linear(x, w), (void)linear(x, w);
    CHECK(trace.count("cast") == 1);
    {
      const autocast inner(kCPU, kFloat16);
      (void)linear(x, w);
    }
    CHECK(trace.count("cast") == 1);
    {
      const NoGradGuard no_grad;
      w.mul_(2);
    }
    const Tensor y = linear(x, w);
    CHECK(trace.count("cast") == 2);
    CHECK(y.equal(linear(x, w.detach().to(kFloat16))));
    CHECK(amp::autocast_cache_size() == 1);
  }
  CHECK(amp::autocast_cache_size() == 0);
  trace.clear();
  {
    const autocast region(kCPU, kFloat16, true, false);
    (void)linear(x, w), (void)linear(x, w);
    CHECK(trace.count("cast") == 2);
    CHECK(amp::autocast_cache_size() == 0);
  }
}

TEST_CASE("a cast cached under NoGradGuard still gives gradients to a later recorded use") {
  const Tensor x = randn({3, 4}), w = randn({5, 4}, requires_grad());
  const autocast region(kCPU, kFloat16);
  {
    const NoGradGuard no_grad;
    CHECK_FALSE(linear(x, w).requires_grad());
  }
  const Tensor y = linear(x, w);
  REQUIRE(y.requires_grad());
  y.sum().backward();
  CHECK(w.grad().defined());
}

TEST_CASE("gradients of two uses of a weight meet in float32: 1 + 256 is 257, in bfloat16 too") {
  const Tensor w = ones({1, 1}, requires_grad());
  Tensor y;
  {
    const autocast region(kCPU, kBFloat16);
    y = linear(full({1, 1}, 256.0), w) + linear(full({1, 1}, 1.0), w);
  }
  y.backward();
  CHECK(w.grad().item() == 257);
}

TEST_CASE("in-place operations are not cast") {
  Tensor a = ones({2, 2});
  const autocast region(kCPU, kFloat16);
  a.add_(ones({2, 2}));
  CHECK(a.dtype() == kFloat32);
}

TEST_CASE("backward inside a region gives the bits of backward outside it") {
  const Tensor x = randn({6, 4});
  auto run = [&](bool inside) {
    manual_seed(3);
    const Tensor w = randn({5, 4}, requires_grad());
    std::optional<autocast> region(std::in_place, kCPU, kFloat16);
    const Tensor loss = tanh(linear(x, w)).pow(2).mean();
    if (!inside) region.reset();
    loss.backward();
    return w.grad();
  };
  CHECK(run(true).equal(run(false)));
}

TEST_CASE("second derivatives pass through the casts of a region") {
  const Tensor x = rand({3}, requires_grad());
  Tensor y;
  {
    const autocast region(kCPU, kFloat16);
    y = exp(x.to(kFloat16)).sum();
  }
  const Tensor g = autograd::grad({y}, {x}, {}, true, true)[0];
  const Tensor gg = autograd::grad({g.sum()}, {x})[0];
  CHECK(gg.dtype() == kFloat32);
  CHECK(gg.allclose(x.detach().to(kFloat16).to(kFloat32).exp(), 4 * epsilon(kFloat16)));
}

TEST_CASE("a cast is cached for the view it was made of, not for its bytes") {
  const Tensor w = tensor({1.0, 2.0, 3.0, 4.0}).view({2, 2}).requires_grad_(), x = eye(2);
  const Tensor bytes = w.detach();
  const amp::autocast region(kCPU, kFloat16);
  for (const Tensor& view : {bytes, bytes.t(), bytes.slice(1, 0, 1), bytes.slice(1, 1, 2)}) {
    w.set_data(view);
    CHECK(matmul(x, w).equal(view.to(kFloat16)));
  }
}
