// Convolutions on the GPU: how many kernels they take, and that each rounds once.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <algorithm>
#include <random>

#include "halftape/tests/support/close.h"
#include "halftape/tests/support/sanitizers.h"
#include "on_gpu.h"

using namespace halftape;
using testing::differ;

namespace {

/// Factories make tensors on the CPU while it lives.
struct FromHost {
  Device before = get_default_device();
  FromHost() { set_default_device(kCPU); }
  ~FromHost() { set_default_device(before); }
  FromHost(const FromHost&) = delete;
  FromHost& operator=(const FromHost&) = delete;
};

struct Options {
  Dims stride = 1, padding = 0, dilation = 1;
  int64_t groups = 1;
};

Tensor convolve(const Tensor& x, const Tensor& w, const Tensor& bias, const Options& o) {
  const auto f = w.dim() == 3 ? conv1d : w.dim() == 4 ? conv2d : conv3d;
  return f(x, w, bias, o.stride, o.padding, o.dilation, o.groups);
}
Tensor convolve_back(const Tensor& x, const Tensor& w, const Tensor& bias, const Options& o) {
  const auto f = w.dim() == 3   ? conv_transpose1d
                 : w.dim() == 4 ? conv_transpose2d
                                : conv_transpose3d;
  return f(x, w, bias, o.stride, o.padding, 0, o.groups, o.dilation);
}

/// Result and gradients of x, weight and bias, all in x's dtype.
TensorList all_of(bool back, const Tensor& x, const Tensor& w, const Tensor& bias,
                  const Options& o) {
  TensorList leaves{x.detach().requires_grad_(), w.detach().requires_grad_()};
  if (bias.defined()) leaves.push_back(bias.detach().requires_grad_());
  const Tensor b = bias.defined() ? leaves[2] : Tensor();
  const Tensor y =
      back ? convolve_back(leaves[0], leaves[1], b, o) : convolve(leaves[0], leaves[1], b, o);
  const Tensor g = (arange(0, y.numel(), TensorOptions(kFloat64).device(kCPU)) * 0.7).sin();
  TensorList all = autograd::grad({y}, leaves, {g.to(y.dtype()).to(y.device()).reshape(y.sizes())});
  all.push_back(y.detach());
  return all;
}

/// Empty if the GPU's results are those of float64 on the CPU, rounded once.
std::string off(bool back, const Tensor& x, const Tensor& w, const Tensor& bias, const Options& o) {
  const auto moved = [](const Tensor& t, auto to) { return t.defined() ? t.to(to) : t; };
  const TensorList got = all_of(back, x.to(kCUDA), w.to(kCUDA), moved(bias, kCUDA), o);
  const Tensor wide_bias = moved(bias, kFloat64);
  const Tensor x64 = x.to(kFloat64), w64 = w.to(kFloat64);
  TensorList leaves{x64.requires_grad_(), w64.requires_grad_()};
  if (bias.defined()) leaves.push_back(wide_bias.detach().requires_grad_());
  const Tensor b = bias.defined() ? leaves[2] : Tensor();
  const Tensor y = back ? convolve_back(x64, w64, b, o) : convolve(x64, w64, b, o);
  const Tensor g = (arange(0, y.numel(), TensorOptions(kFloat64).device(kCPU)) * 0.7)
                       .sin()
                       .to(x.dtype())
                       .to(kFloat64)
                       .reshape(y.sizes());
  TensorList exact = autograd::grad({y}, leaves, {g});
  exact.push_back(y.detach());
  // Sums are as exact as float's (double's); only results of 16 bits are rounded visibly. The
  // terms of a bias's gradient, which are at most 1, may cancel out.
  testing::Tolerance allowed{.ulps = 4, .eps = 16};
  if (x.dtype() == kFloat16 || x.dtype() == kBFloat16) allowed = {.ulps = 0.5, .eps = 0x1p-9};
  for (size_t i = 0; i < got.size(); ++i) {
    allowed.scale = i == 2 ? static_cast<double>(y.numel()) : 0;
    const std::string difference = differ(got[i].to(kCPU), exact[i], allowed);
    if (!difference.empty()) return "result " + std::to_string(i) + ": " + difference;
  }
  return {};
}

}  // namespace

TEST_CASE("convolutions on the GPU of any shape and dtype round once") {
  std::mt19937 dice(3);
  const auto below = [&](int64_t n) { return static_cast<int64_t>(dice()) % n; };
  manual_seed(4);
  const FromHost numbers;
  const Dtype dtypes[] = {kFloat16, kBFloat16, kFloat32, kFloat64};
  for (int i = 0; i < 120; ++i) {
    const int n = 1 + static_cast<int>(below(3));
    Options o{Dims::filled(n, 1), Dims::filled(n, 0), Dims::filled(n, 1), 1 + below(3)};
    Shape lengths, size;
    for (int d = 0; d < n; ++d) {
      size.push_back(below(4) == 0 ? 1 : 1 + below(3));
      o.dilation[d] = 1 + below(2), o.padding[d] = below(3);
      o.stride[d] = below(3) == 0 ? 1 + below(3) : 1;
      const int64_t most = n == 1 ? 90 : n == 2 ? 12 : 5;
      lengths.push_back(o.dilation[d] * (size[d] - 1) + 1 + below(most));
    }
    if (i % 3 == 0) lengths = n == 1 ? Shape{64} : n == 2 ? Shape{8, 8} : Shape{2, 4, 8};
    const int64_t images = 1 + below(3), in = 1 + below(4), out = 1 + below(4);
    const Dtype dtype = dtypes[below(4)];
    const auto joined = [](Shape a, const Shape& b) {
      for (const int64_t s : b) a.push_back(s);
      return a;
    };
    CAPTURE(i);
    CAPTURE(lengths);
    CAPTURE(size);
    CAPTURE(o.stride);
    CAPTURE(o.padding);
    CAPTURE(o.dilation);
    CAPTURE(o.groups);
    CAPTURE(dtype);
    const Tensor w = randn(joined({out * o.groups, in}, size)).to(dtype);
    bool fits = true;
    for (int d = 0; d < n; ++d)
      fits = fits && lengths[d] + 2 * o.padding[d] >= o.dilation[d] * (size[d] - 1) + 1;
    if (fits) {
      const Tensor x = randn(joined({images, in * o.groups}, lengths)).to(dtype);
      const Tensor bias = below(2) ? randn({out * o.groups}).to(dtype) : Tensor();
      CHECK(off(false, x, w, bias, o) == "");
    }
    bool grows = true;
    for (int d = 0; d < n; ++d)
      grows = grows &&
              (lengths[d] - 1) * o.stride[d] + o.dilation[d] * (size[d] - 1) + 1 > 2 * o.padding[d];
    if (grows) {
      const Tensor x = randn(joined({images, out * o.groups}, lengths)).to(dtype);
      const Tensor bias = below(2) ? randn({in * o.groups}).to(dtype) : Tensor();
      CHECK(off(true, x, w, bias, o) == "");
    }
  }
}

TEST_CASE("convolutions of no images, and of no channels") {
  for (const Dtype dtype : {kFloat16, kFloat32}) {
    const Tensor w = ones({4, 2, 3, 3}, dtype).requires_grad_(), bias = ones({4}, dtype);
    const Tensor y = conv2d(zeros({0, 2, 8, 8}, dtype), w, bias, 1, 1);
    CHECK(y.sizes() == Shape{0, 4, 8, 8});
    CHECK(differ(autograd::grad({y}, {w}, {y.detach()})[0], zeros_like(w), {}) == "");
    const Tensor empty = zeros({2, 0, 8, 8}, dtype).requires_grad_();
    const Tensor z = conv2d(empty, zeros({4, 0, 3, 3}, dtype), bias, 1, 1);
    CHECK(differ(z, ones({2, 4, 8, 8}, dtype), {}) == "");
    CHECK(autograd::grad({z}, {empty}, {z.detach()})[0].sizes() == Shape{2, 0, 8, 8});
  }
}

#if !HALFTAPE_SANITIZED  // 200 million elements
TEST_CASE("a batch with more columns than are in memory at a time is done in blocks") {
  // An image has 2^26 columns and some more, so that no two are done at once.
  const int64_t count = int64_t{1} << 16, size = 1025;
  const Tensor x = ones({3, 1, count + size - 1}, kFloat16).requires_grad_(),
               w = full({1, 1, size}, 0.5, kFloat16).requires_grad_();
  const Tensor y = conv1d(x, w);
  CHECK(differ(y, full_like(y, 512.5), {}) == "");
  const Tensor g = autograd::grad({y}, {w}, {full_like(y, 0x1p-10)})[0];
  CHECK(differ(g, full_like(g, 3 * 64), {}) == "");
}
#endif

#if defined(HALFTAPE_SIMT)
namespace {

/// The nodes of a captured call.
template <class F>
int64_t nodes(const F& f) {
  Tensor kept;
  TensorList list;
  return Graph(kCUDA,
               [&] {
                 if constexpr (std::is_same_v<decltype(f()), Tensor>)
                   kept = f();
                 else
                   list = f();
               })
      .size();
}

}  // namespace

TEST_CASE("a convolution is two kernels for any batch, its gradients three each") {
  for (const Dtype dtype : {kFloat16, kFloat32})
    for (const int64_t images : {1, 2, 5}) {
      CAPTURE(dtype);
      CAPTURE(images);
      const Tensor x = rand({images, 8, 8, 16}, dtype).requires_grad_(),
                   w = rand({8, 8, 3, 3}, dtype).requires_grad_(), bias = rand({8}, dtype);
      const NoGradGuard guard;
      // Columns and product; a bias is a copy that the product adds to.
      CHECK(nodes([&] { return conv2d(x, w, {}, 1, 1); }) == 2);
      CHECK(nodes([&] { return conv2d(x, w, bias, 1, 1); }) == 3);
      CHECK(nodes([&] { return conv2d(x, w, {}, 2, 1); }) <= 3);  // small images are joined
      // Kernels of size 1 have no columns.
      const Tensor one = rand({8, 8, 1, 1}, dtype);
      CHECK(nodes([&] { return conv2d(x, one); }) == 1);
    }
  for (const Dtype dtype : {kFloat16, kFloat32})
    for (const int64_t images : {2, 5}) {
      CAPTURE(dtype);
      CAPTURE(images);
      const Tensor x = rand({images, 8, 8, 16}, dtype).requires_grad_(),
                   w = rand({8, 8, 3, 3}, dtype).requires_grad_(),
                   one = rand({8, 8, 1, 1}, dtype).requires_grad_(), g = rand(x.sizes(), dtype);
      const Tensor y = conv2d(x, w, {}, 1, 1), z = conv2d(x, one);
      const auto grads = [&](const Tensor& of, const Tensor& with_respect_to) {
        return nodes([&] { return autograd::grad({of}, {with_respect_to}, {g}, true); });
      };
      CHECK(grads(y, x) == 3);  // kernels turned round, columns of the gradient, product
      CHECK(grads(y, w) == 3);  // columns, the gradient with channels first, product
      CHECK(grads(z, x) == 1);
      CHECK(grads(z, one) == 3);  // both with channels first, product
      const Tensor wide = rand({32, 8, 3, 3}, dtype), v = conv2d(x, wide, {}, 1, 1);
      const auto folded = [&] {
        return autograd::grad({v}, {x}, {ones(v.sizes(), v.options())}, true);
      };
      CHECK(nodes(folded) == 3);  // ones; product, fold
    }
}
#endif
