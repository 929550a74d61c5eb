// Convolutions: PyTorch's values, a direct loop over random shapes, threads, blocks, and errors.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <random>

#include "halftape/tests/support/counted.h"
#include "halftape/tests/support/tracing_backend.h"
#include "halftape/tests/support/vector_cases.h"
#include "halftape/tests/support/windows_reference.h"

using namespace halftape;
using doctest::Contains;
using testing::counting;
using testing::differ;
using testing::dims_of;
using testing::same_bits;

namespace {

testing::Values values_of(const Tensor& x) { return {x.sizes(), x.to_vector()}; }

Tensor convolve(const Tensor& x, const Tensor& w, const Tensor& b, const Windows& v,
                int64_t groups) {
  const auto f = v.dims() == 1 ? conv1d : v.dims() == 2 ? conv2d : conv3d;
  return f(x, w, b, v.stride, v.padding, v.dilation, groups);
}
Tensor convolve_back(const Tensor& x, const Tensor& w, const Tensor& b, const Windows& v,
                     int64_t groups, const Dims& behind) {
  const auto f = v.dims() == 1   ? conv_transpose1d
                 : v.dims() == 2 ? conv_transpose2d
                                 : conv_transpose3d;
  return f(x, w, b, v.stride, v.padding, behind, groups, v.dilation);
}

}  // namespace

TEST_CASE("convolutions and their gradients are PyTorch's for all options") {
  const testing::Vectors torch("convolutions.txt");
  for (int i = 0; i < 14; ++i) {
    const std::string name = std::to_string(i);
    CAPTURE(name);
    const auto dims = [&](const char* word) { return dims_of(torch[name + "/" + word]); };
    const std::vector<double>& about = torch[name + "/about"];
    const auto groups = static_cast<int64_t>(about[1]);
    const Shape x_shape = dims("x_shape"), w_shape = dims("w_shape");
    const Windows w{testing::last_of(w_shape, w_shape.size() - 2), dims("stride"), dims("dilation"),
                    dims("padding")};
    for (const Dtype dtype : {kFloat64, kFloat32}) {
      TensorList in{torch.tensor(name + "/x", x_shape), torch.tensor(name + "/w", w_shape)};
      if (about[2] != 0)
        in.push_back(torch.tensor(name + "/b", {about[0] != 0 ? w_shape[1] * groups : w_shape[0]}));
      for (Tensor& t : in) t = t.to(dtype).requires_grad_();
      const Tensor bias = in.size() > 2 ? in[2] : Tensor();
      const auto same = w.dims() == 1 ? conv1d : conv2d;
      const Tensor y =
          about[0] != 0   ? convolve_back(in[0], in[1], bias, w, groups, dims("output_padding"))
          : about[3] != 0 ? same(in[0], in[1], bias, w.stride, "same", w.dilation, groups)
                          : convolve(in[0], in[1], bias, w, groups);
      CHECK(differ(y, torch[name + "/value"], {.ulps = 8, .eps = 8}) == "");
      const TensorList g = autograd::grad({y}, in, {counting(y)});
      for (size_t k = 0; k < g.size(); ++k)
        CHECK(differ(g[k], torch[name + "/grad" + std::to_string(k)], {.ulps = 8, .eps = 16}) ==
              "");
    }
  }
}

TEST_CASE("convolutions of random shapes and their gradients equal those of a direct loop") {
  std::mt19937 dice(1);
  const auto below = [&](int64_t n) { return static_cast<int64_t>(dice()) % n; };
  manual_seed(9);
  int transposed = 0;
  for (int i = 0; i < 200; ++i) {
    const int n = 1 + static_cast<int>(below(3));
    const int64_t groups = 1 + below(3), in = 1 + below(3), out = 1 + below(3);
    Windows w;
    Shape lengths, behind;
    for (int d = 0; d < n; ++d) {
      w.size.push_back(1 + below(n == 3 ? 2 : 4)), w.stride.push_back(1 + below(3));
      w.dilation.push_back(1 + below(3)), w.padding.push_back(below(3));
      const int64_t least = std::max<int64_t>(1, w.span(d) - 2 * w.padding[d]);
      lengths.push_back(least + below(n == 3 ? 3 : 6));
      behind.push_back(below(std::max(w.stride[d], w.dilation[d])));
    }
    const Shape count = testing::count_windows(w, lengths);
    const int64_t images = 1 + below(3);
    const Tensor x = randn(testing::shape_of({images, in * groups}, lengths), kFloat64),
                 weight = randn(testing::shape_of({out * groups, in}, w.size), kFloat64),
                 bias = randn({out * groups}, kFloat64),
                 y = randn(testing::shape_of({images, out * groups}, count), kFloat64);
    CAPTURE(i);
    CAPTURE(x.sizes());
    CAPTURE(weight.sizes());
    CAPTURE(w.stride);
    CAPTURE(w.dilation);
    CAPTURE(w.padding);
    CAPTURE(groups);
    const testing::Tolerance allowed{.ulps = 4, .eps = 16};
    const TensorList leaves{x.requires_grad_(), weight.requires_grad_(), bias.requires_grad_()};
    const Tensor forward = convolve(x, weight, bias, w, groups);
    CHECK(differ(forward,
                 testing::conv_reference(values_of(x), values_of(weight), bias.to_vector(), w,
                                         groups, count),
                 allowed) == "");
    const TensorList g = autograd::grad({forward}, leaves, {y});
    CHECK(differ(g[0],
                 testing::conv_transpose_reference(values_of(y), values_of(weight), {}, w, groups,
                                                   lengths),
                 allowed) == "");
    CHECK(differ(
              g[1],
              testing::conv_weight_reference(values_of(x), values_of(y), weight.sizes(), w, groups),
              allowed) == "");
    CHECK(differ(g[2],
                 y.sum(n == 1   ? Dims{0, 2}
                       : n == 2 ? Dims{0, 2, 3}
                                : Dims{0, 2, 3, 4}),
                 allowed) == "");
    // The transposed convolution of a tensor of y's shape.
    Shape back;
    bool possible = true;
    for (int d = 0; d < n; ++d) {
      back.push_back((count[d] - 1) * w.stride[d] + w.span(d) - 2 * w.padding[d] + behind[d]);
      possible = possible && back[d] > 0;
    }
    if (!possible) continue;
    ++transposed;
    const Tensor b = randn({in * groups}, kFloat64), z = y.detach().requires_grad_();
    const Tensor wide = convolve_back(z, weight, b, w, groups, behind);
    CHECK(differ(wide,
                 testing::conv_transpose_reference(values_of(y), values_of(weight), b.to_vector(),
                                                   w, groups, back),
                 allowed) == "");
    const Tensor v = randn(wide.sizes(), kFloat64);
    const TensorList h = autograd::grad({wide}, {z, weight}, {v});
    CHECK(differ(h[0],
                 testing::conv_reference(values_of(v), values_of(weight), {}, w, groups, count),
                 allowed) == "");
    CHECK(differ(
              h[1],
              testing::conv_weight_reference(values_of(v), values_of(y), weight.sizes(), w, groups),
              allowed) == "");
  }
  CHECK(transposed > 130);
}

TEST_CASE("convolutions give the same bits for any number of threads") {
  manual_seed(2);
  const int before = get_num_threads();
  for (const Dtype dtype : {kFloat32, kBFloat16}) {
    const Tensor x = randn({9, 6, 31, 29}, dtype).requires_grad_(),
                 w = randn({8, 3, 3, 3}, dtype).requires_grad_(),
                 b = randn({8}, dtype).requires_grad_();
    TensorList first;
    for (const int threads : {1, 2, 4}) {
      set_num_threads(threads);
      const Tensor y = conv2d(x, w, b, 1, 1, 1, 2), z = conv_transpose2d(y, w, {}, 2, 1, 0, 2);
      TensorList all = autograd::grad({z}, {x, w, b}, {counting(z) / 1000});
      all.push_back(z.detach());
      if (first.empty()) first = all;
      for (size_t i = 0; i < all.size(); ++i) CHECK(same_bits(all[i], first[i]));
    }
  }
  set_num_threads(before);
}

// Of whole numbers, whose sums are exact in any order.
TEST_CASE("an image has the same outputs in any batch, layout and number of threads") {
  manual_seed(3);
  const int before = get_num_threads();
  for (const Dtype dtype : {kFloat32, kFloat16, kBFloat16, kFloat64})
    for (const int64_t stride : {1, 2}) {
      const auto whole = [&](const Shape& shape) { return randint(-2, 3, shape).to(dtype); };
      const Tensor x = whole({21, 6, 23, 19}), w = whole({8, 3, 5, 3}), b = whole({8});
      const auto forward = [&](const Tensor& in) {
        return conv2d(in, w, b, stride, {2, 1}, {1, 2}, 2);
      };
      const auto back = [&](const Tensor& in) {
        return conv_transpose2d(in, w, {}, stride, {2, 1}, 0, 2, {1, 2});
      };
      TensorList y, z;
      for (int64_t i = 0; i < x.size(0); ++i) {
        y.push_back(forward(x.narrow(0, i, 1)));
        z.push_back(back(y.back()));
      }
      const Tensor images = x.transpose(1, 3).contiguous().transpose(1, 3);
      for (const int threads : {1, 2, 3, 8}) {
        set_num_threads(threads);
        for (const Tensor& in : {x, images}) CHECK(same_bits(forward(in), cat(y)));
        CHECK(same_bits(back(cat(y).transpose(2, 3).contiguous().transpose(2, 3)), cat(z)));
      }
      set_num_threads(before);
    }
}

TEST_CASE("the columns of a large batch are never in memory all at once") {
  const Tensor x = randn({40, 4, 40, 40}).requires_grad_(),
               w = randn({2, 4, 5, 5}).requires_grad_();
  const size_t columns = size_t{40} * 4 * 25 * 36 * 36 * 4;
  const bool in_blocks = get_default_device().is_cpu();  // those of a GPU are larger
  testing::TracingBackend trace;
  const Tensor y = conv2d(x, w);
  autograd::grad({y}, {x}, {ones_like(y)}, true);
  CHECK(trace.count("gemm") == (in_blocks ? 40 : 2));  // two products, in 20 blocks
  for (size_t bytes : trace.allocations) CHECK(bytes < (in_blocks ? columns / 16 : columns * 2));
  autograd::grad({y}, {w}, {ones_like(y)});  // the order of the sum has larger blocks: three
  CHECK(trace.count("gemm") == (in_blocks ? 43 : 3));
  for (size_t bytes : trace.allocations) CHECK(bytes < (in_blocks ? columns / 2 : columns * 2));
  CHECK(differ(y.narrow(0, 39, 1), conv2d(x.detach().narrow(0, 39, 1), w), {.ulps = 4, .eps = 8}) ==
        "");
}

TEST_CASE("a convolution with a kernel of size 1 makes no columns") {
  const Tensor x = randn({3, 8, 40, 40}), w = randn({4, 8, 1, 1});
  testing::TracingBackend trace;
  const Tensor y = conv2d(x, w);
  // A GPU multiplies all images at once.
  const size_t products = get_default_device().is_cpu() ? 3 : 1;
  CHECK(trace.calls == std::vector<std::string>(products, "gemm"));
  CHECK(trace.allocations.size() == 1);
  CHECK(differ(y, matmul(w.reshape({4, 8}), x.flatten(2)).reshape(y.sizes()),
               {.ulps = 4, .eps = 4}) == "");
}

TEST_CASE("the gradient of a half weight is added up in float32, over all blocks of a batch") {
  // 65,536 equal terms: a bfloat16 sum would stop growing at the 256th, a float16 one at the 2048th
  for (const Dtype dtype : {kBFloat16, kFloat16}) {
    const Tensor x = ones({16, 4, 66, 66}, dtype), w = zeros({1, 4, 3, 3}, dtype).requires_grad_();
    const Tensor y = conv2d(x, w);
    const double scale = 0x1p-6;
    const Tensor g = autograd::grad({y}, {w}, {full_like(y, scale)})[0];
    CHECK(same_bits(g, full_like(g, 16.0 * 64 * 64 * scale)));  // 1024, exact in both formats
  }
}

TEST_CASE("under autocast convolutions run in the lower dtype, and weights get float32 gradients") {
  const Tensor x = randn({2, 3, 6, 6}), w = randn({4, 3, 3, 3}).requires_grad_(),
               b = randn({4}).requires_grad_();
  Tensor y;
  {
    const amp::autocast region(get_default_device().type(), kBFloat16);
    y = conv2d(x, w, b, 1, 1);
  }
  CHECK(y.dtype() == kBFloat16);
  y.sum().backward();
  CHECK(w.grad().dtype() == kFloat32);
  CHECK(b.grad().dtype() == kFloat32);
}

TEST_CASE("convolutions refuse wrong arguments") {
  const Tensor x = randn({2, 4, 5, 6}), w = randn({6, 4, 3, 3});
  const auto refuses = [](const auto& call, const char* text) {
    CHECK_THROWS_WITH_AS(call(), Contains(text), Error);
  };
  refuses(
      [&] {
        conv2d(x, randn({6, 3, 3, 3}));
      },
      "conv2d: input [2, 4, 5, 6] has 4 channels, weight [6, 3, 3, 3] in 1 group expects 3");
  refuses([&] { conv2d(x, w, {}, 1, 0, 1, 4); }, "has 6 rows, which 4 groups do not divide");
  refuses([&] { conv2d(x, w, {}, 1, 0, 1, 0); }, "groups 0 must be positive");
  refuses(
      [&] {
        conv2d(x, randn({6, 4, 7, 3}), {}, 1, {0, 1});
      },
      "conv2d: kernel [7, 3] with dilation [1, 1] covers 7 elements, the input [5, 6] with "
      "padding [0, 1] has 5");
  refuses([&] { conv2d(x, w, {}, 0); }, "conv2d: stride [0, 0] must not be 0 or negative");
  refuses([&] { conv2d(x, w, {}, {1, 1, 1}); }, "stride [1, 1, 1] has 3 numbers; expected 2");
  refuses([&] { conv2d(x, w, {}, 1, -1); }, "padding [-1, -1] must not be negative");
  refuses([&] { conv2d(x, w, {}, 2, "same"); }, "padding \"same\" with stride [2, 2]");
  refuses([&] { conv2d(x, w, {}, 1, "equal"); }, "padding is \"equal\"; expected \"same\"");
  refuses([&] { conv2d(x, w, randn({4})); },
          "bias [4], weight [6, 4, 3, 3] in 1 group expects [6]");
  refuses([&] { conv2d(x, w.to(kFloat16)); }, "conv2d: dtypes float32 and float16");
  refuses([&] { conv2d(randn({5, 6}), w); }, "input [5, 6] has 2 dimensions; expected 4, or 3");
  refuses([&] { conv1d(x, w); }, "conv1d: weight [6, 4, 3, 3] has 4 dimensions; expected 3");
  refuses([&] { conv2d(x, randn({6, 4, 0, 3})); }, "weight [6, 4, 0, 3] has an empty kernel");
  refuses([&] { conv_transpose2d(x, w); },
          "conv_transpose2d: input [2, 4, 5, 6] has 4 channels, weight [6, 4, 3, 3] in 1 group "
          "expects 6");
  const Tensor v = randn({4, 3, 2, 2});
  refuses([&] { conv_transpose2d(x, v, {}, 2, 0, 2); },
          "output_padding [2, 2] must be smaller than stride [2, 2] or dilation [1, 1]");
  refuses([&] { conv_transpose2d(x, v, {}, 1, 3); }, "of which padding [3, 3] leaves none");
  refuses([&] { conv_transpose2d(x, v, randn({4})); }, "expects [3]");
  refuses([&] { im2col(randn({4, 4}), 2); }, "im2col: input [4, 4] has 2 dimensions");
  refuses([&] { im2col(x, 7); }, "im2col: kernel [7, 7]");
  refuses([&] { col2im(randn({1, 9, 4}), {3, 3}, 2); }, "col2im: columns [1, 9, 4] of 9 elements");
  refuses(
      [&] {
        col2im(randn({1, 8, 5}), {3, 3}, 2);
      },
      "5 columns in [1, 8, 5], output_size [3, 3] has 4");
}
