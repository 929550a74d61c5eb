// What a captured training step costs: its kernels and copies, by name. A regression in launches
// shows here, without a GPU.
#include <doctest/doctest.h>

#if defined(HALFTAPE_SIMT)
#include <halftape/halftape.h>

#include <iostream>
#include <map>
#include <sstream>

#include "device.h"
#include "halftape/cuda/gemm.h"
#include "settings.h"

using namespace halftape;

namespace {

/// A training step in float16 with a GradScaler and AdamW, as a graph; how many kernels of which
/// name one replay runs.
std::map<std::string, int> kernels(int64_t batch, const std::vector<int64_t>& widths, bool fused,
                                   bool clipped = false) {
  manual_seed(0);
  nn::Sequential model;
  TensorList weights, biases;
  for (size_t i = 0; i + 1 < widths.size(); ++i) {
    const nn::Linear layer(widths[i], widths[i + 1]);
    weights.push_back(layer->weight);
    biases.push_back(layer->bias);
    model->push_back(layer);
    if (i + 2 < widths.size()) model->push_back(nn::ReLU());
  }
  optim::AdamW optimizer(model->parameters(), optim::AdamWOptions(1e-3));
  amp::GradScaler scaler;
  const Tensor x = rand({batch, widths.front()}, kFloat16);
  const Tensor y = randint(0, widths.back(), {batch}, kInt64);
  Graph graph(kCUDA, [&] {
    optimizer.zero_grad();
    Tensor loss;
    {
      const amp::autocast region(kCUDA, kFloat16);
      const Tensor logits = fused ? mlp(x, weights, biases, Activation::Relu) : model->forward(x);
      loss = nn::functional::cross_entropy(logits, y);
    }
    scaler.scale(loss).backward();
    if (clipped) {
      scaler.unscale_(optimizer);
      (void)nn::utils::clip_grad_norm_(model->parameters(), 1.0);
    }
    scaler.step(optimizer);
    scaler.update();
  });
  graph.replay();
  simt::reset_counters();
  graph.replay();
  std::map<std::string, int> counts;
  for (const std::string& name : simt::launched_kernels()) ++counts[name];
  counts["all"] = static_cast<int>(graph.size());
  return counts;
}

}  // namespace

TEST_CASE("a captured step of a small classifier takes no more launches than it did") {
  simt::Settings h200 = simt::settings;
  h200.multiprocessors = 132;
  for (const simt::NanInRelu nan : {simt::NanInRelu::Kept, simt::NanInRelu::Swallowed}) {
    // Where the library's ReLU loses NaN, ours follows the product.
    const bool kept = nan == simt::NanInRelu::Kept;
    h200.nan_in_relu = nan;
    const simt::With like(h200);
    cuda::ask_library_again();
    for (const bool fused : {false, true}) {
      const auto counts = kernels(8, {784, 256, 256, 10}, fused);
      std::cout << "784-256-256-10, " << (fused ? "mlp" : "Sequential")
                << (kept ? "" : ", cuBLASLt's ReLU swallows NaN") << ": " << counts.at("all")
                << " nodes\n";
      std::ostringstream list;
      for (const auto& [name, n] : counts) list << "\n  " << n << " " << name;
      INFO("nodes:", list.str());
      CHECK(counts.at("all") <= (kept ? 14 : 16));
    }
  }
  cuda::ask_library_again();
}

TEST_CASE("clipping adds the norm of all gradients and its factor, a launch each") {
  const auto plain = kernels(8, {64, 32, 10}, true), clipped = kernels(8, {64, 32, 10}, true, true);
  CHECK(clipped.at("all") <= plain.at("all") + 2);
}
#endif
