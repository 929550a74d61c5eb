#include "checks.h"

#include <algorithm>

using namespace halftape;
namespace F = halftape::nn::functional;

namespace {

struct Arithmetic {
  const char* name;
  Dtype dtype;  // of the matrix products
  bool scaled;
};

struct Steps {
  Tensor loss;                             // of the last step
  std::vector<Tensor> gradients, weights;  // after it, all on the CPU
};

struct Task {
  Tensor x, y;
  int64_t classes;
};

Steps run(const Arithmetic& how, Device device, const Task& task, int steps, bool captured) {
  manual_seed(0);
  nn::Sequential model{nn::Linear(task.x.size(1), 64), nn::ReLU(), nn::Linear(64, task.classes)};
  model->to(device);
  optim::AdamW optimizer(model->parameters(), optim::AdamWOptions(1e-3));
  amp::GradScaler scaler({.init_scale = 1024, .enabled = how.scaled});  // no gradient overflows
  const Tensor images = task.x.to(device), labels = task.y.to(device);
  Tensor loss;
  const auto step = [&] {
    optimizer.zero_grad();
    {
      const amp::autocast region(device.type(), how.dtype, how.dtype != kFloat32);
      loss = F::cross_entropy(model->forward(images), labels);
    }
    scaler.scale(loss).backward();
    scaler.step(optimizer);
    scaler.update();
  };
  if (captured) {
    Graph graph(device, step);
    for (int i = 0; i < steps; ++i) graph.replay();
  } else {
    for (int i = 0; i < steps; ++i) step();
  }
  Steps out{loss.detach().cpu(), {}, {}};
  for (const Tensor& p : model->parameters()) {
    out.gradients.push_back(p.grad().cpu());
    out.weights.push_back(p.detach().cpu());
  }
  return out;
}

/// Not of zeros alone: they would show nothing.
bool close(const Tensor& found, const Tensor& expected, double epsilon) {
  if (expected.abs().max().item<double>() == 0) return false;
  return ((found - expected).abs().max() <= 32 * epsilon * expected.abs().max()).item<bool>();
}

bool same(const Steps& a, const Steps& b) {
  return std::equal(a.weights.begin(), a.weights.end(), b.weights.begin(),
                    [](const Tensor& p, const Tensor& q) { return equal(p, q); });
}

}  // namespace

std::vector<Check> check_steps(Device device, const Tensor& x, const Tensor& y, int64_t classes) {
  const Task task{x, y, classes};
  constexpr int kSteps = 10;
  std::vector<Check> checks;
  for (const Arithmetic& how : {Arithmetic{"float32", kFloat32, false},
                                {"amp", kFloat16, true},
                                {"bf16", kBFloat16, false}}) {
    const auto note = [&](const char* what, bool passed) {
      checks.push_back({std::string(how.name) + ": " + what, passed});
    };
    const Steps cpu = run(how, kCPU, task, 1, false), gpu = run(how, device, task, 1, false);
    const double epsilon = halftape::epsilon(how.dtype);
    bool gradients = true;
    for (size_t i = 0; i < cpu.gradients.size(); ++i)
      gradients &= close(gpu.gradients[i], cpu.gradients[i], epsilon);
    note("the loss is the CPU's", close(gpu.loss, cpu.loss, epsilon));
    note("the gradients are the CPU's", gradients);
    const Steps steps = run(how, device, task, kSteps, false);
    note("a second run leaves the same bits", same(steps, run(how, device, task, kSteps, false)));
    note("a captured step leaves the same bits", same(steps, run(how, device, task, kSteps, true)));
  }
  return checks;
}

bool all_passed(const std::vector<Check>& checks) {
  return std::all_of(checks.begin(), checks.end(), [](const Check& c) { return c.passed; });
}

std::string verdict(Device device, const std::vector<Check>& checks) {
  std::string failed;
  size_t passed = 0;
  for (const Check& c : checks) {
    passed += c.passed ? 1 : 0;
    if (!c.passed) failed += (failed.empty() ? "; failed: " : ", ") + c.what;
  }
  return "checks on " + device.str() + ": " + std::to_string(passed) + " of " +
         std::to_string(checks.size()) + " passed" + failed;
}
