// Epilogues of a product: by cuBLASLt, if a small product of it is right, or by kernels after it.
// Both must give the results of the CPU.
#include <doctest/doctest.h>

#include <limits>
#include <sstream>
#include <utility>
#include <vector>

#include "../on_gpu.h"
#include "halftape/cuda/cuda.h"
#include "halftape/tests/support/arrays.h"
#if defined(HALFTAPE_SIMT)
#include "halftape/tests/support/warnings.h"
#include "libraries.h"
#include "runtime/device.h"
#endif

using namespace halftape;
using namespace halftape::testing;

namespace {

/// Small whole numbers: all sums are exact, so that both devices have the same bits.
Array whole(const Shape& shape, Dtype dtype, uint64_t seed) {
  const Array a(shape, kInt64, kCPU);
  backend(kCPU).random(a, Distribution::Bits, -3, 3, {.seed = seed, .offset = 0});
  return a.to(dtype);
}

enum class Layout { Plain, Offset, Padded, Turned, Stepped, size };

/// The elements of `from` as a view of a larger array on the CPU, with 77 between them.
Array placed(const Array& from, Layout layout) {
  const int64_t m = from.size(0), n = from.size(1);
  const auto room = [&](const Shape& s) { return full(s, 77, from.dtype(), kCPU); };
  const Array view = layout == Layout::Offset    ? room({m * n + 3}).as_strided({m, n}, {n, 1}, 1)
                     : layout == Layout::Padded  ? room({m, n + 8}).slice(1, 0, n)
                     : layout == Layout::Turned  ? room({n, m}).transpose(0, 1)
                     : layout == Layout::Stepped ? room({m, 2 * n}).slice(1, 0, 2 * n, 2)
                                                 : room({m, n});
  backend(kCPU).copy(view, from);
  return view;
}

struct EpilogueCase {
  Dtype factors, result;
  int64_t m, n, k;
  Epilogue epilogue;
  bool aux, biased, sums;
  Layout layout = Layout::Plain;
  double beta = 0;
  Dtype sums_in = kFloat32;
};

std::string name_of(const EpilogueCase& c) {
  std::ostringstream text;
  text << c.factors << " → " << c.result << ", " << c.m << " × " << c.n << " × " << c.k
       << ", epilogue " << static_cast<int>(c.epilogue) << ", aux " << c.aux << ", bias "
       << c.biased << ", sums " << c.sums << " in " << c.sums_in << ", layout "
       << static_cast<int>(c.layout) << ", beta " << c.beta;
  return text.str();
}

/// The first difference between the devices; empty if there is none.
std::string differs(const EpilogueCase& c, uint64_t seed) {
  const bool gelu = c.epilogue == Epilogue::Gelu || c.epilogue == Epilogue::DGelu,
             gradient = c.epilogue == Epilogue::DRelu || c.epilogue == Epilogue::DGelu;
  const Array bias = whole({c.n}, c.result, seed + 3);
  const auto empty_sums = [&] {
    return c.sums ? full({gradient ? c.n : c.m}, 77, c.sums_in, kCPU) : Array();
  };
  Gemm cpu{.d = placed(whole({c.m, c.n}, c.result, seed + 2), c.layout),
           .a = placed(whole({c.m, c.k}, c.factors, seed), c.layout),
           .b = placed(whole({c.k, c.n}, c.factors, seed + 1), c.layout),
           .bias = c.biased ? &bias : nullptr,
           .alpha = gelu ? 0.125 : 1,
           .beta = c.beta,
           .epilogue = c.epilogue,
           .bias_grad = empty_sums()};
  if (c.aux && gelu) cpu.aux = placed(normal({c.m, c.n}, c.result, seed + 4), c.layout);
  if (c.aux && !gelu) {
    cpu.aux = Array({c.m, relu_mask_bytes(c.n)}, kUInt8, kCPU);
    for (int64_t i = 0; i < cpu.aux.numel(); ++i)
      cpu.aux.data<uint8_t>()[i] =
          static_cast<uint8_t>(seed * 31 + static_cast<uint64_t>(i * i) * 7);
  }
  Gemm gpu = cpu;
  const Array on_bias = on_gpu(bias);
  if (c.biased) gpu.bias = &on_bias;
  for (Array* x : {&gpu.d, &gpu.a, &gpu.b, &gpu.aux, &gpu.bias_grad}) *x = on_gpu(*x);
  backend(kCPU).gemm(cpu);
  backend(kCUDA).gemm(gpu);
  // cuBLASLt's GELU may finish a product of halves if it is as exact as this.
  std::string text =
      differ_on_gpu(gpu.d, cpu.d, gelu ? 4 : 0, gelu && is_16bit(c.result) ? 0x1p-18 : 0);
  if (!text.empty()) return "d: " + text;
  if (c.aux && gelu && !gradient) text = differ_on_gpu(gpu.aux, cpu.aux);
  if (c.aux && !gelu && !gradient)  // bits behind the last column are arbitrary
    for (int64_t i = 0; i < c.m && text.empty(); ++i) {
      const Array bits = on_cpu(gpu.aux);
      for (int64_t j = 0; j < c.n; ++j) {
        const int64_t at = i * relu_mask_bytes(c.n) + j / 8;
        if ((bits.data<uint8_t>()[at] ^ cpu.aux.data<uint8_t>()[at]) >> j % 8 & 1) text = "a bit";
      }
    }
  if (!text.empty()) return "aux: " + text;
  // The library may sum before or after rounding.
  if (c.sums) {
    const Array got = gpu.bias_grad.to(kCPU).to(kFloat64), right = cpu.bias_grad.to(kFloat64);
    for (int64_t i = 0; i < got.numel(); ++i) {
      const double x = got.data<double>()[i], y = right.data<double>()[i];
      if (std::abs(x - y) > (epsilon(c.result) + epsilon(c.sums_in)) *
                                (std::abs(y) + 4.0 * static_cast<double>(gradient ? c.m : c.k)))
        return "sums";
    }
  }
  return "";
}

/// Checks all epilogues; the library has algorithms for 8 and 64 columns only.
void check_all() {
  const std::pair<Dtype, Dtype> dtypes[] = {{kFloat16, kFloat16},  {kBFloat16, kBFloat16},
                                            {kFloat16, kFloat32},  {kFloat32, kFloat32},
                                            {kBFloat16, kFloat32}, {kFloat64, kFloat64}};
  uint64_t seed = 1;
  for (const auto& [factors, result] : dtypes)
    for (const int64_t n : {8, 13, 136})
      for (const Epilogue e :
           {Epilogue::None, Epilogue::Relu, Epilogue::Gelu, Epilogue::DRelu, Epilogue::DGelu})
        for (const bool more : {false, true}) {
          const bool gradient = e == Epilogue::DRelu || e == Epilogue::DGelu;
          EpilogueCase c{factors, result, 5, n, 9, e, more, more, false};
          if (gradient || e == Epilogue::None) {
            c.aux = gradient, c.biased = false, c.sums = more || e == Epilogue::None;
            c.sums_in = more ? result : kFloat32;
          }
          c.layout = static_cast<Layout>(++seed % static_cast<uint64_t>(Layout::size));
          if (seed % 5 < 2) c.layout = Layout::Plain;
          c.beta = seed % 7 == 0 ? 1 : 0;
          CAPTURE(name_of(c));
          CHECK(differs(c, seed) == "");
        }
}

}  // namespace

TEST_SUITE("cuda") {
  TEST_CASE("epilogues give what the CPU gives, in every dtype, width and layout") { check_all(); }

  TEST_CASE("relu in a product keeps NaN, and its mask lets the gradient of one pass") {
    for (const Dtype t : {kFloat16, kBFloat16, kFloat32}) {
      const Array a = full({3, 16}, 1, t, kCUDA), b = full({16, 32}, -1, t, kCUDA),
                  d({3, 32}, t, kCUDA), mask({3, relu_mask_bytes(32)}, kUInt8, kCUDA);
      backend(kCUDA).fill(a.select(0, 1), std::numeric_limits<double>::quiet_NaN());
      backend(kCUDA).gemm({.d = d, .a = a, .b = b, .epilogue = Epilogue::Relu, .aux = mask});
      const auto rows = [&] {
        const Array v = d.to(kCPU).to(kFloat64);
        return std::vector<double>{v.data<double>()[0], v.data<double>()[40], v.data<double>()[95]};
      };
      CHECK(rows()[0] == 0);
      CHECK(std::isnan(rows()[1]));
      CHECK(rows()[2] == 0);
      backend(kCUDA).fill(a, 1);
      backend(kCUDA).gemm({.d = d, .a = a, .b = b, .epilogue = Epilogue::DRelu, .aux = mask});
      CHECK(rows() == std::vector<double>{0, -16, 0});
    }
  }

#if defined(HALFTAPE_SIMT)
  simt::Settings like(simt::NanInRelu nan) {
    simt::Settings s = simt::settings;
    s.nan_in_relu = nan;
    return s;
  }

  TEST_CASE("whatever the library does: the results are the same") {
    const Warnings refusals;
    for (const Behaviour& b : behaviours()) {
      CAPTURE(b.name);
      const Library library(b.settings);
      check_all();
    }
  }

  /// A layer of halves, and the kernels that run for it after the library has been tried.
  struct Layer {
    Array a = full({32, 16}, 1, kFloat16, kCUDA), b = full({16, 64}, 1, kFloat16, kCUDA),
          bias = full({64}, 1, kFloat16, kCUDA), d{{32, 64}, kFloat16, kCUDA},
          mask{{32, relu_mask_bytes(64)}, kUInt8, kCUDA}, z{{32, 64}, kFloat16, kCUDA};
    std::vector<std::string> kernels(Gemm g) const {
      backend(kCUDA).gemm(g);
      simt::reset_counters();
      backend(kCUDA).gemm(g);
      return simt::launched_kernels();
    }
    Gemm with(Epilogue e) const {
      const bool relu = e == Epilogue::Relu || e == Epilogue::DRelu,
                 gradient = e == Epilogue::DRelu || e == Epilogue::DGelu;
      return {.d = d,
              .a = a,
              .b = b,
              .bias = gradient ? nullptr : &bias,
              .epilogue = e,
              .aux = relu ? mask : z};
    }
  };

  TEST_CASE("a library that answers right does all in one product; else a kernel follows it") {
    const Layer layer;
    {
      const Library right(like(simt::NanInRelu::Kept));
      for (const Epilogue e : {Epilogue::Relu, Epilogue::Gelu, Epilogue::DRelu, Epilogue::DGelu}) {
        CAPTURE(static_cast<int>(e));
        CHECK(layer.kernels(layer.with(e)).size() == 1);
        CHECK(simt::counters().matmuls == 1);
        CHECK(simt::counters().synchronisations == 0);  // it is tried once
      }
    }
    for (const simt::NanInRelu nan : {simt::NanInRelu::Swallowed, simt::NanInRelu::KeptWithout}) {
      const Library swallows(like(nan));
      CHECK(layer.kernels(layer.with(Epilogue::Relu)).size() == 2);
      CHECK(simt::counters().matmuls == 1);
      CHECK(layer.kernels(layer.with(Epilogue::DRelu)).size() == 1);  // its mask is right
      Gemm no_mask = layer.with(Epilogue::Relu);
      no_mask.aux = {};
      CHECK(layer.kernels(no_mask).size() == (nan == simt::NanInRelu::Swallowed ? 2 : 1));
    }
    simt::Settings odd = like(simt::NanInRelu::Kept);
    odd.gelu_by_erf = odd.turned_masks = true;
    const Library other(odd);
    for (const Epilogue e : {Epilogue::Relu, Epilogue::Gelu, Epilogue::DRelu, Epilogue::DGelu})
      CHECK(layer.kernels(layer.with(e)).size() > 1);
  }

  TEST_CASE("factors of other alignment than was tried are copied before they are multiplied") {
    const Layer layer;
    const Library right(like(simt::NanInRelu::Kept));
    const Array wide = full({32, 24}, 1, kFloat16, kCUDA), odd = full({32, 17}, 1, kFloat16, kCUDA);
    const std::pair<Array, size_t> cases[] = {
        {wide.slice(1, 8, 24), 1}, {wide.slice(1, 1, 17), 2}, {odd.slice(1, 0, 16), 2}};
    for (const auto& [a, kernels] : cases)
      for (const Epilogue e : {Epilogue::Relu, Epilogue::None}) {
        Gemm g = layer.with(e);
        if (e == Epilogue::None) g.aux = {};
        g.a = a;
        CHECK(layer.kernels(g).size() == kernels);
        CHECK(simt::counters().matmuls == 1);
        CHECK(differ_on_gpu(layer.d, full({32, 64}, 17, kFloat16, kCPU)) == "");
      }
  }

  TEST_CASE("a weight's float32 gradient brings the bias's along, where the library can") {
    const Array g = full({32, 16}, 1, kFloat16, kCUDA), x = full({32, 64}, 1, kFloat16, kCUDA),
                dw({16, 64}, kFloat32, kCUDA), db({16}, kFloat32, kCUDA);
    const Gemm product{.d = dw, .a = g.transpose(0, 1), .b = x, .bias_grad = db};
    for (const bool can : {true, false}) {
      simt::Settings s = simt::settings;
      s.wide_bias_gradients = can;
      const Library library(s);
      backend(kCUDA).gemm(product);
      simt::reset_counters();
      backend(kCUDA).gemm(product);
      CHECK(simt::counters().matmuls == 1);
      CHECK((simt::launched_kernels().size() == 1) == can);
      CHECK(differ_on_gpu(db, full({16}, 32, kFloat32, kCPU)) == "");
    }
  }

  TEST_CASE("a weight of one output has its bias's gradient from the same product") {
    const Array g = full({32, 1}, 1, kFloat16, kCUDA), x = full({32, 64}, 1, kFloat16, kCUDA),
                dw({1, 64}, kFloat32, kCUDA), db({1}, kFloat32, kCUDA);
    const Library library(like(simt::NanInRelu::Kept));
    const Gemm product{.d = dw, .a = g.transpose(0, 1), .b = x, .bias_grad = db};
    backend(kCUDA).gemm(product);
    simt::reset_counters();
    backend(kCUDA).gemm(product);
    CHECK(simt::launched_kernels().size() == 1);
    CHECK(db.to(kCPU).data<float>()[0] == 32);
  }

  TEST_CASE("the library is not asked while a stream is captured") {
    const Library library(like(simt::NanInRelu::Kept));
    const Layer layer;
    Gemm plain = layer.with(Epilogue::Relu);
    plain.epilogue = Epilogue::None, plain.aux = {};
    backend(kCUDA).gemm(plain);
    const cuda::Stream stream;
    const auto handle = static_cast<cudaStream_t>(stream.handle());
    cudaGraph_t graph = nullptr;
    {
      const cuda::StreamGuard guard(stream);
      REQUIRE(cudaStreamBeginCapture(handle, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
      backend(kCUDA).gemm(layer.with(Epilogue::Relu));
      REQUIRE(cudaStreamEndCapture(handle, &graph) == cudaSuccess);
    }
    CHECK(simt::nodes(graph).size() == 2);  // by our own kernels this time
    CHECK(cudaGraphDestroy(graph) == cudaSuccess);
    CHECK(layer.kernels(layer.with(Epilogue::Relu)).size() == 1);
  }

  TEST_CASE("the library is asked for an algorithm once for each shape") {
    // Shapes of no other case.
    const Array a = full({41, 24}, 1, kFloat16, kCUDA), b = full({24, 72}, 1, kFloat16, kCUDA),
                d({41, 72}, kFloat16, kCUDA);
    simt::reset_counters();
    for (int i = 0; i < 3; ++i) backend(kCUDA).gemm({.d = d, .a = a, .b = b});
    CHECK(simt::counters().matmuls == 3);
    CHECK(simt::counters().heuristics == 1);
    CHECK(simt::counters().matmul_descriptors == 1);
    const Array wide({41, 72}, kFloat32, kCUDA);
    for (int i = 0; i < 3; ++i) backend(kCUDA).gemm({.d = wide, .a = a, .b = b});
    CHECK(simt::counters().heuristics == 2);
    // A bias may have any address. The first one is tried with a smaller product, too.
    for (int i = 0; i < 3; ++i) {
      const Array bias = full({72}, i, kFloat16, kCUDA);
      backend(kCUDA).gemm({.d = d, .a = a, .b = b, .bias = &bias});
      CHECK(differ_on_gpu(d, full({41, 72}, 24 + i, kFloat16, kCPU)) == "");
    }
    CHECK(simt::counters().heuristics == 4);
    CHECK(simt::counters().matmul_descriptors == 4);
  }
#endif
}
