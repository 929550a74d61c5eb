// Dropout on the GPU, at the ends of its arguments: the CPU's bits.
#include <doctest/doctest.h>
#include <halftape/halftape.h>

#include <cmath>

using namespace halftape;

namespace {

/// dropout() with the same seed on both devices.
void check_same(const Tensor& on_cpu, const Tensor& on_gpu, double p) {
  manual_seed(3);
  const Tensor wanted = dropout(on_cpu, p, true);
  manual_seed(3);
  const Tensor got = dropout(on_gpu, p, true).to(kCPU);
  CHECK(got.isnan().equal(wanted.isnan()));
  CHECK(got.nan_to_num(7).equal(wanted.nan_to_num(7)));
}

}  // namespace

TEST_SUITE("cuda") {
  TEST_CASE("dropout drops what it drops on the CPU, for all p, sizes and strides") {
    for (const Dtype d : {kFloat16, kBFloat16, kFloat32, kFloat64})
      for (const double p : {0.0, 1e-9, 0.5, 1 - 1e-9, 1.0}) {
        CAPTURE(d);
        CAPTURE(p);
        for (const Shape& shape : {Shape{}, Shape{0}, Shape{1}, Shape{7}, Shape{1000}}) {
          const Tensor x = randn(shape, kCPU).to(d), y = x.to(kCUDA).requires_grad_();
          check_same(x, y.detach(), p);
          dropout(y, p, true).sum().backward();
          CHECK(isfinite(y.grad()).all().to(kCPU).item<bool>());
        }
        const Tensor x = randn({3, 9}, kCPU).to(d), y = x.to(kCUDA);
        check_same(x.t(), y.t(), p);
        check_same(x.slice(0, 0, 1).expand({5, 9}), y.slice(0, 0, 1).expand({5, 9}), p);
        const Tensor odd =
            (full({6}, static_cast<double>(INFINITY)) * tensor({1., 0., -1., 1., 0., -1.})).to(d);
        check_same(odd.to(kCPU), odd.to(kCUDA), p);
      }
    for (const double p : {-0.1, 1.1, std::nan("")})
      CHECK_THROWS_AS(dropout(ones({2}, kCUDA), p, true), Error);
  }

  TEST_CASE("dropout drops the same in a second derivative") {
    const Tensor x = randn({50}, TensorOptions(kFloat64).device(kCUDA)).requires_grad_();
    const Tensor y = dropout(x * x, 0.3, true);
    const Tensor g = autograd::grad({y.sum()}, {x}, {}, true, true)[0];
    const Tensor h = autograd::grad({g.sum()}, {x})[0];
    CHECK((h * x - g).abs().max().to(kCPU).item<double>() <= 8 * epsilon(kFloat64));
  }
}
