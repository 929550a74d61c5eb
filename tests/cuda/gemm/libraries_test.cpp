// Steps of training on every cuBLASLt that there may be: whatever it answers, the weights are the
// same.
#include <doctest/doctest.h>

#if defined(HALFTAPE_SIMT)
#include <halftape/halftape.h>

#include <iostream>
#include <set>

#include "halftape/tests/support/message.h"
#include "halftape/tests/support/warnings.h"
#include "libraries.h"
#include "runtime/device.h"

using namespace halftape;
using namespace halftape::testing;

namespace {

struct Trained {
  std::vector<Tensor> weights;
  int64_t nodes = 0, calls = 0;
};

/// Three captured steps of AMP in float16, the second of which overflows.
Trained trained(Activation activation, int64_t outputs) {
  manual_seed(3);
  TensorList weights, biases;
  for (const auto& [in, out] : {std::pair{24, 32}, {32, 40}, {40, static_cast<int>(outputs)}}) {
    const nn::Linear layer(in, out);
    weights.push_back(layer->weight);
    biases.push_back(layer->bias);
  }
  TensorList parameters = weights;
  parameters.insert(parameters.end(), biases.begin(), biases.end());
  optim::AdamW optimizer(parameters, optim::AdamWOptions(1e-2));
  amp::GradScaler scaler({.init_scale = 1024});
  const Tensor x = randn({16, 24}), factor = ones({});
  const Tensor y = outputs == 1 ? randn({16, 1}) : randint(0, outputs, {16}, kInt64);
  Graph graph(kCUDA, [&] {
    optimizer.zero_grad();
    Tensor loss;
    {
      const amp::autocast region(kCUDA, kFloat16);
      const Tensor out = mlp(x, weights, biases, activation);
      loss =
          outputs == 1 ? nn::functional::mse_loss(out, y) : nn::functional::cross_entropy(out, y);
    }
    scaler.scale(loss * factor).backward();
    scaler.step(optimizer);
    scaler.update();
  });
  for (const double size : {1.0, 1e6, 1.0}) {
    factor.fill_(size);
    simt::reset_counters();
    graph.replay();
  }
  Trained t{{}, graph.size(), 0};
  t.calls = static_cast<int64_t>(simt::launched_kernels().size());
  for (const Tensor& p : parameters) t.weights.push_back(p.detach().cpu());
  CHECK(scaler.get_scale() == 512);
  return t;
}

void check_steps(Activation activation, const char* name, int64_t outputs, double epsilons) {
  Trained right;
  std::set<int64_t> sizes;
  for (const Behaviour& b : behaviours()) {
    CAPTURE(b.name);
    const Warnings warnings;
    const Library library(b.settings);
    const Trained t = trained(activation, outputs);
    sizes.insert(t.nodes);
    if (right.weights.empty()) right = t;
    for (size_t i = 0; i < t.weights.size(); ++i) {
      if (epsilons == 0)
        CHECK(t.weights[i].equal(right.weights[i]));
      else
        CHECK(t.weights[i].allclose(right.weights[i], 0, epsilons * epsilon(kFloat16)));
    }
    const auto status =
        b.settings.refuses.of == simt::Refusals::None ? 15 : b.settings.refuses.status;
    CHECK(warnings.seen.size() == (status == 7 || status == 14 ? 1 : 0));
    for (const std::string& w : warnings.seen)
      CHECK(has(w, "cuBLASLt refuses a product with CUBLAS"));
  }
  std::cout << name << ", " << outputs << " outputs: " << *sizes.begin() << " to "
            << *sizes.rbegin() << " nodes\n";
}

}  // namespace

TEST_CASE("whatever cuBLASLt answers, a captured step of a ReLU net gives the same bits") {
  check_steps(Activation::Relu, "ReLU", 10, 0);
  check_steps(Activation::Relu, "ReLU", 1, 0);
}

TEST_CASE("a handler of the warning that cuBLASLt refuses a product may multiply") {
  simt::Settings s = simt::settings;
  s.refuses = {simt::Refusals::All, 14};  // CUBLAS_STATUS_INTERNAL_ERROR
  const Library library(s);
  const Tensor a = full({2, 3}, 2.0).to(kCUDA), b = full({3, 2}, 5.0).to(kCUDA);
  Tensor by_handler;
  const WarningFunction before =
      set_warning_handler([&](const std::string&) { by_handler = matmul(a, b); });
  const Tensor product = matmul(a, b);
  set_warning_handler(before);
  REQUIRE(by_handler.defined());
  CHECK(by_handler.eq(30).all().item<bool>());
  CHECK(product.eq(30).all().item<bool>());
}

TEST_CASE("whatever cuBLASLt does, what is added to a product of halves is not rounded before") {
  // 2048 + 1 and 1 more: 2050 when rounded once, 2048 when twice.
  const Array a = full({1, 2}, 1, kFloat16, kCUDA), b = full({2, 1}, 1, kFloat16, kCUDA),
              bias = full({1}, 1, kFloat16, kCUDA);
  backend(kCUDA).fill(a.slice(1, 0, 1), 2048);
  for (const Behaviour& behaviour : behaviours()) {
    CAPTURE(behaviour.name);
    const Warnings warnings;
    const Library library(behaviour.settings);
    const Array to = full({1, 1}, 1, kFloat16, kCUDA), both = full({1, 1}, -1, kFloat16, kCUDA);
    backend(kCUDA).gemm({.d = to, .a = a, .b = b, .beta = 1});
    CHECK(to.to(kCPU).to(kFloat64).data<double>()[0] == 2050);
    backend(kCUDA).gemm({.d = both, .a = a, .b = b, .bias = &bias, .beta = -1});
    CHECK(both.to(kCPU).to(kFloat64).data<double>()[0] == 2052);  // 2051 is halfway
  }
}

TEST_CASE("what is right while partial sums may be rounded is asked again when they may not be") {
  // 2048 + 1 and a bias of 1, as above.
  const Array a = full({1, 2}, 1, kFloat16, kCUDA), b = full({2, 1}, 1, kFloat16, kCUDA),
              bias = full({1}, 1, kFloat16, kCUDA), d({1, 1}, kFloat16, kCUDA);
  backend(kCUDA).fill(a.slice(1, 0, 1), 2048);
  simt::Settings s = simt::settings;
  s.bias_after_rounding = true;
  const Library library(s);
  const auto sum = [&](bool may_round) {
    cuda::allow_fp16_reduced_precision_reduction(may_round);
    backend(kCUDA).gemm({.d = d, .a = a, .b = b, .bias = &bias});
    return d.to(kCPU).to(kFloat64).data<double>()[0];
  };
  CHECK(sum(true) == 2048);
  CHECK(sum(false) == 2050);
}

TEST_CASE("a product for which cuBLASLt lacked memory is asked for again, and so is the next one") {
  const Array a = full({8, 64}, 1, kFloat32, kCUDA), b = full({64, 8}, 1, kFloat32, kCUDA),
              d({8, 8}, kFloat32, kCUDA);
  const Gemm product{.d = d, .a = a, .b = b};
  const auto is_right = [&] { return d.to(kCPU).data<float>()[63] == 64; };
  const auto calls = [&] {  // of the library
    backend(kCUDA).fill(d, 0);
    simt::reset_counters();
    backend(kCUDA).gemm(product);
    CHECK(is_right());
    return simt::counters().matmuls;
  };
  const auto refuse = [](int times) { simt::settings.refuses.left = times; };
  for (const int status : {3, 14})  // CUBLAS_STATUS_ALLOC_FAILED, _INTERNAL_ERROR
    for (const bool called : {false, true}) {
      CAPTURE(status);
      CAPTURE(called);
      const Warnings warnings;
      simt::Settings s = simt::settings;
      s.refuses = {simt::Refusals::All, status, called, 0};
      const Library library(s);
      { const Array large({1 << 24}, kFloat32, kCUDA); }
      const int64_t kept = cuda::memory_reserved();
      refuse(1);
      CHECK(calls() == 1);
      CHECK(cuda::memory_reserved() <= kept - (32 << 20));
      CHECK(warnings.seen.empty());
      cuda::forget_plans();
      refuse(2);
      CHECK(calls() == 0);  // our own kernel
      CHECK(warnings.seen.size() == 1);
      CHECK(calls() == 1);
      // A capture can give no memory back.
      if (!called) continue;
      int times = 0;
      Graph graph(kCUDA, [&] {
        if (++times == 2) refuse(1);
        backend(kCUDA).gemm(product);
      });
      CHECK(simt::settings.refuses.left == 0);
      backend(kCUDA).fill(d, 0);
      simt::reset_counters();
      graph.replay();
      CHECK(simt::counters().launches == 1);
      CHECK(simt::launched_kernels()[0].find("cublaslt") == std::string::npos);
      CHECK(is_right());
    }
}

TEST_CASE("whether cuBLASLt finishes a product is asked again if it lacked memory to answer") {
  const Array a = full({32, 16}, 1, kFloat16, kCUDA), b = full({16, 64}, 1, kFloat16, kCUDA),
              d({32, 64}, kFloat16, kCUDA);
  const Warnings warnings;
  simt::Settings s = simt::settings;
  s.nan_in_relu = simt::NanInRelu::Kept;
  s.refuses = {simt::Refusals::All, 3, true, 2};
  const Library library(s);
  const auto kernels = [&] {
    simt::reset_counters();
    backend(kCUDA).gemm({.d = d, .a = a, .b = b, .epilogue = Epilogue::Relu});
    return simt::launched_kernels().size();
  };
  CHECK(kernels() > 1);
  (void)kernels();  // finds out
  CHECK(kernels() == 1);
}

TEST_CASE("whatever cuBLASLt answers, a captured step of a GELU net gives the same weights") {
  check_steps(Activation::Gelu, "GELU", 10, 8);
}
#endif
