// The kernels and copies of a captured training step, by name. They show a regression in launches
// without a GPU.
#include <doctest/doctest.h>

#if defined(HALFTAPE_SIMT)
#include <halftape/halftape.h>

#include <algorithm>
#include <iostream>
#include <map>
#include <sstream>

#include "halftape/core/capture/capture.h"
#include "halftape/core/contract/forwarding_backend.h"
#include "halftape/cuda/gemm/gemm.h"
#include "runtime/device.h"
#include "settings.h"

using namespace halftape;

namespace {

/// How a step computes its loss.
enum class Way { Forward, Mlp, Loss };

/// The kernels of one replay, by name, of a training step with AdamW in float16 with a GradScaler,
/// or in bfloat16 without one.
std::map<std::string, int> kernels(int64_t batch, const std::vector<int64_t>& widths, Way way,
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
      if (way == Way::Loss)
        loss = model->loss(x, y, scaler.factor());
      else
        loss = nn::functional::cross_entropy(
            way == Way::Mlp ? mlp(x, weights, biases, Activation::Relu) : model->forward(x), y);
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
    for (const Way way : {Way::Forward, Way::Mlp}) {
      const auto counts = kernels(8, {784, 256, 256, 10}, way);
      std::cout << "784-256-256-10, " << (way == Way::Mlp ? "mlp" : "Sequential")
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
  const auto added = [](Way way, bool scaled) {
    const auto plain = kernels(8, {64, 32, 10}, way, false, scaled),
               clipped = kernels(8, {64, 32, 10}, way, true, scaled);
    std::cout << "64-32-10, " << (way == Way::Loss ? "Sequential::loss" : "Sequential")
              << (scaled ? ", float16: " : ", bfloat16: ") << plain.at("all") << " nodes, clipped "
              << clipped.at("all") << "\n";
    return clipped.at("all") - plain.at("all");
  };
  CHECK(added(Way::Forward, true) == 0);
  CHECK(added(Way::Forward, false) == 1);  // without a scaler nothing is checked
  CHECK(added(Way::Loss, true) == 1);      // the check is in the loss's own kernel
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

namespace {

/// The bytes that the calls of a captured step read and write, array by array.
class Traffic final : public ForwardingBackend {
 public:
  Traffic() : ForwardingBackend(backend(kCUDA)) {}
  double bytes = 0;

 private:
  void before(const std::string&, const Touched& touched) override {
    if (!Capture::active()) return;
    for (const auto* arrays : {&touched.writes, &touched.reads})
      for (const Array* a : *arrays)
        if (a->defined() && a->device().is_cuda())
          bytes += static_cast<double>(std::min(
              static_cast<size_t>(a->numel()) * element_size(a->dtype()), a->buffer()->size()));
  }
};

struct Workload {
  const char* name;
  std::vector<int64_t> widths;
  int64_t batch;
  bool classes;
  bool fused;  // nn::FusedMLP
  Way way;
  int64_t most_nodes;
  double most_megabytes;
};
struct Cost {
  int64_t nodes = 0;
  double bytes = 0;
};

/// The operations of a step's products: forward, for the weights, and back to all layers but x.
double operations_of(const Workload& w) {
  double pairs = 0;
  for (size_t l = 0; l + 1 < w.widths.size(); ++l)
    pairs += static_cast<double>(w.widths[l] * w.widths[l + 1]) * (l == 0 ? 2 : 3);
  return 2 * pairs * static_cast<double>(w.batch);
}

/// The speed of a GPU's memory, and of its products of halves with float32 sums, by NVIDIA's data
/// sheets.
struct Card {
  const char* name;
  double bytes_per_second, operations_per_second;
};
constexpr Card kCards[] = {{"H100", 3.35e12, 989e12},
                           {"A100", 2.04e12, 312e12},
                           {"RTX 4090", 1.01e12, 165e12},
                           {"T4", 0.32e12, 65e12}};
/// No step is faster: it moves its bytes and multiplies, at best at the same time.
std::string least_times(double bytes, double operations) {
  std::ostringstream text;
  text.precision(0);
  for (const Card& c : kCards)
    text << std::fixed << (&c == kCards ? " " : ", ") << c.name << ' '
         << 1e6 * std::max(bytes / c.bytes_per_second, operations / c.operations_per_second)
         << " us";
  return text.str();
}

Cost cost_of(const Workload& w, const std::vector<int64_t>& widths, int64_t batch) {
  manual_seed(0);
  nn::Sequential model;
  for (size_t i = 0; i + 1 < widths.size(); ++i) {
    model->push_back(nn::Linear(widths[i], widths[i + 1]));
    if (i + 2 < widths.size()) model->push_back(nn::ReLU());
  }
  const auto layers = static_cast<int64_t>(widths.size()) - 2;
  const nn::FusedMLP small(widths[0], widths[1], layers, widths.back());
  const std::vector<Tensor> parameters = w.fused ? small->parameters() : model->parameters();
  optim::AdamW optimizer(parameters, optim::AdamWOptions(1e-3));
  amp::GradScaler scaler;
  const Tensor x = rand({batch, widths.front()});
  const Tensor y =
      w.classes ? randint(0, widths.back(), {batch}, kInt64) : rand({batch, widths.back()});
  Traffic traffic;
  const BackendGuard watched(kCUDA, traffic);
  const Graph graph(kCUDA, [&] {
    optimizer.zero_grad();
    Tensor loss;
    {
      const amp::autocast region(kCUDA, kFloat16);
      if (w.fused)
        loss = small->loss(x, y, scaler.factor());
      else if (w.way == Way::Loss)
        loss = model->loss(x, y, scaler.factor());
      else
        loss = w.classes ? nn::functional::cross_entropy(model->forward(x), y)
                         : nn::functional::mse_loss(model->forward(x), y);
    }
    scaler.scale(loss).backward();
    scaler.step(optimizer);
    scaler.update();
  });
  return {graph.size(), traffic.bytes};
}

/// The cost for a batch of this size, from two smaller ones: bytes are linear in the batch, and
/// nodes are the same.
Cost of_batch(const Workload& w, const std::vector<int64_t>& widths) {
  const Cost low = cost_of(w, widths, 128), high = cost_of(w, widths, 256);
  CHECK(low.nodes == high.nodes);
  return {low.nodes,
          low.bytes + (high.bytes - low.bytes) / 128 * static_cast<double>(w.batch - 128)};
}

/// The cost for a width that is too large for the rig: with layers of one width, bytes are a
/// polynomial of degree 2 in the width.
Cost of_width(const Workload& w) {
  const auto at = [&](int64_t width) {
    return of_batch(w, std::vector<int64_t>(w.widths.size(), width));
  };
  const Cost a = at(128), b = at(256), c = at(384);
  CHECK(a.nodes == b.nodes);
  CHECK(a.nodes == c.nodes);
  const double t = static_cast<double>(w.widths[0]) / 128;
  return {a.nodes, a.bytes * (t - 2) * (t - 3) / 2 - b.bytes * (t - 1) * (t - 3) +
                       c.bytes * (t - 1) * (t - 2) / 2};
}

}  // namespace

TEST_CASE("what a captured step of the benchmarks' workloads costs: kernels, and bytes") {
  simt::Settings h200 = simt::settings;
  h200.multiprocessors = 132;
  h200.nan_in_relu = simt::NanInRelu::Kept;
  const simt::With like(h200);
  cuda::ask_library_again();
  const std::vector<int64_t> a{784, 256, 256, 10}, b{64, 64, 64, 64, 64, 16}, c(5, 4096);
  const int64_t batch = 1 << 18;
  const Workload workloads[] = {{"a128", a, 128, true, false, Way::Forward, 13, 9.5},
                                {"a1024", a, 1024, true, false, Way::Forward, 13, 22},
                                {"b", b, batch, false, false, Way::Forward, 27, 1200},
                                {"b, Sequential::loss", b, batch, false, false, Way::Loss, 3, 90},
                                {"b, FusedMLP", b, batch, false, true, Way::Loss, 3, 90},
                                {"c", c, 8192, false, false, Way::Forward, 24, 5200}};
  for (const Workload& w : workloads) {
    CAPTURE(w.name);
    const Cost cost = w.widths[0] > 1024 ? of_width(w) : of_batch(w, w.widths);
    const double operations = operations_of(w);
    std::cout << w.name << ": " << cost.nodes << " nodes, " << cost.bytes / 1e6 << " MB, "
              << operations / 1e9 << " GFLOP; at least" << least_times(cost.bytes, operations)
              << '\n';
    CHECK(cost.nodes <= w.most_nodes);
    CHECK(cost.bytes / 1e6 <= w.most_megabytes);
  }
  cuda::ask_library_again();
}
#endif
