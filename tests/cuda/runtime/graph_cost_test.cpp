// The kernels and copies of a captured training step, by name. They show a regression in launches
// without a GPU.
#include <doctest/doctest.h>

#if defined(HALFTAPE_SIMT)
#include <halftape/halftape.h>

#include <iostream>
#include <map>
#include <sstream>

#include "halftape/cuda/gemm/gemm.h"
#include "runtime/device.h"
#include "settings.h"

using namespace halftape;

namespace {

/// How a step computes its loss.
enum class LossBy { Forward, Mlp, Loss };

/// The kernels of one replay, by name, of a training step with AdamW in float16 with a GradScaler,
/// or in bfloat16 without one.
std::map<std::string, int> kernels(int64_t batch, const std::vector<int64_t>& widths, LossBy way,
                                   bool clipped = false, bool scaled = true) {
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
  amp::GradScaler scaler({.enabled = scaled});
  const Dtype dtype = scaled ? kFloat16 : kBFloat16;
  const Tensor x = rand({batch, widths.front()}, dtype);
  const Tensor y = randint(0, widths.back(), {batch}, kInt64);
  Graph graph(kCUDA, [&] {
    optimizer.zero_grad();
    Tensor loss;
    {
      const amp::autocast region(kCUDA, dtype);
      if (way == LossBy::Loss)
        loss = model->loss(x, y, scaler.factor());
      else
        loss = nn::functional::cross_entropy(
            way == LossBy::Mlp ? mlp(x, weights, biases, Activation::Relu) : model->forward(x), y);
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
    // If the library's ReLU loses NaN, ours follows the product.
    const bool kept = nan == simt::NanInRelu::Kept;
    h200.nan_in_relu = nan;
    const simt::With like(h200);
    cuda::ask_library_again();
    for (const LossBy way : {LossBy::Forward, LossBy::Mlp}) {
      const auto counts = kernels(8, {784, 256, 256, 10}, way);
      std::cout << "784-256-256-10, " << (way == LossBy::Mlp ? "mlp" : "Sequential")
                << (kept ? "" : ", cuBLASLt's ReLU swallows NaN") << ": " << counts.at("all")
                << " nodes\n";
      std::ostringstream list;
      for (const auto& [name, n] : counts) list << "\n  " << n << " " << name;
      INFO("nodes:", list.str());
      CHECK(counts.at("all") <= (kept ? 12 : 14));
    }
  }
  cuda::ask_library_again();
}

TEST_CASE("clipping adds no launch to a captured step that checks its gradients, else the norm") {
  const auto added = [](LossBy way, bool scaled) {
    const auto plain = kernels(8, {64, 32, 10}, way, false, scaled),
               clipped = kernels(8, {64, 32, 10}, way, true, scaled);
    std::cout << "64-32-10, " << (way == LossBy::Loss ? "Sequential::loss" : "Sequential")
              << (scaled ? ", float16: " : ", bfloat16: ") << plain.at("all") << " nodes, clipped "
              << clipped.at("all") << "\n";
    return clipped.at("all") - plain.at("all");
  };
  CHECK(added(LossBy::Forward, true) == 0);
  CHECK(added(LossBy::Forward, false) == 1);  // without a scaler nothing is checked
  CHECK(added(LossBy::Loss, true) == 1);      // the check is in the loss's own kernel
}

TEST_CASE("a captured step that pushes its loss into a history takes one launch more") {
  const Tensor x = rand({40});
  optim::LossHistory losses(8);
  Tensor loss;
  const Graph without(kCUDA, [&] { loss = x.sum(); });
  const Graph with(kCUDA, [&] {
    loss = x.sum();
    losses.push(loss);
  });
  CHECK(with.size() == without.size() + 1);
}
#endif
