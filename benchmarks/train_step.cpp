// What a whole step of training in mixed precision costs: zero_grad, forward under autocast, loss,
// scaled backward, AdamW, the scaler's update. One line of JSON for each workload and way of
// running it; benchmarks/train_step_torch.py prints the same of PyTorch.
//
//     bench_train_step [--device cpu|cuda] [--dtype float16|bfloat16] [--seconds S] [--calibrate]
//                      [--only a128,a1024,b,c,d,e]
//
// Workloads: a128 and a1024, 784-256-256-10 with cross-entropy; b, 64-64-64-64-64-16 with 2^18 rows
// and c, five layers of 4096 with 8192 rows, with MSE; d, the GPT of nanoGPT for characters, 6
// layers of 384, with 64 x 256 of them; e, ResNet-9 with 512 pictures of 32x32, and SGD. Ways:
// eager; graph, one step captured; and graph8, eight steps captured, whose batches are gathered on
// the device. A line says "error" if a workload's graph gives other bits than its calls.
#include <halftape/halftape.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <iterator>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "gpt.h"
#include "resnet9.h"

using namespace halftape;

namespace {

struct Options {
  Device device = kCPU;
  Dtype dtype = kFloat16;
  std::string only = "a128,a1024";
  double seconds = 1;  // for each line
  bool calibrate = false;
};

enum class Net { Classes, Values, Characters, Pictures };  // the first two: an MLP's targets

struct Workload {
  const char* name;
  std::vector<int64_t> widths;  // of an MLP
  int64_t batch;
  Net net;
};
const Workload kWorkloads[] = {{"a128", {784, 256, 256, 10}, 128, Net::Classes},
                               {"a1024", {784, 256, 256, 10}, 1024, Net::Classes},
                               {"b", {64, 64, 64, 64, 64, 16}, 1 << 18, Net::Values},
                               {"c", {4096, 4096, 4096, 4096, 4096}, 8192, Net::Values},
                               {"d", {}, 64, Net::Characters},
                               {"e", {}, 512, Net::Pictures}};

constexpr int64_t kSteps = 8;  // of graph8
constexpr int64_t kSymbols = 65, kContext = 256;

/// A net with its optimizer, scaler, and data on the device.
struct Training {
  const Workload& w;
  Options o;
  std::vector<Tensor> parameters;
  std::function<Tensor()> loss_of_batch;
  std::unique_ptr<optim::Optimizer> optimizer;
  amp::GradScaler scaler;
  Tensor data, targets;  // of as many rows as a batch has, or four times so many
  Tensor order;          // (kSteps, batch): which of them a step takes
  Tensor x, y, loss;

  Training(const Workload& workload, const Options& options)
      : w(workload), o(options), scaler({.enabled = options.dtype == kFloat16}) {
    manual_seed(0);
    const TensorOptions there = TensorOptions(kFloat32).device(o.device);
    const int64_t rows = w.batch * (w.net == Net::Values && w.widths.back() > 1024 ? 1 : 4);
    if (w.net == Net::Characters)
      make_gpt(rows);
    else if (w.net == Net::Pictures)
      make_resnet(rows, there);
    else
      make_mlp(rows, there);
    order = randint(0, rows, {kSteps, w.batch}, there.dtype(kInt64));
    x = data.slice(0, 0, w.batch).clone();
    y = targets.slice(0, 0, w.batch).clone();
  }
  void make_mlp(int64_t rows, const TensorOptions& there) {
    nn::Sequential model;
    for (size_t i = 0; i + 1 < w.widths.size(); ++i) {
      model->push_back(nn::Linear(w.widths[i], w.widths[i + 1]));
      if (i + 2 < w.widths.size()) model->push_back(nn::ReLU());
    }
    model->to(o.device);
    parameters = model->parameters();
    optimizer = std::make_unique<optim::AdamW>(
        parameters, optim::AdamWOptions(1e-3).betas({0.9, 0.99}).weight_decay(0));
    loss_of_batch = [=, this] { return model->loss(x, y, scaler.factor()); };
    data = randn({rows, w.widths.front()}, there);
    targets = w.net == Net::Classes ? randint(0, w.widths.back(), {rows}, there.dtype(kInt64))
                                    : randn({rows, w.widths.back()}, there);
  }
  void make_gpt(int64_t rows) {
    const GPT model(GPTOptions{.vocab_size = kSymbols,
                               .block_size = kContext,
                               .n_layer = 6,
                               .n_head = 6,
                               .n_embd = 384,
                               .dropout = 0.2});
    model->to(o.device);
    parameters = model->parameters();
    optimizer.reset(new optim::AdamW(make_optimizer(model, 1e-3, 0.99, 0.1)));
    loss_of_batch = [=, this] {
      return nn::functional::cross_entropy(GPT(model)->forward(x).flatten(0, 1), y.flatten());
    };
    const TensorOptions tokens = TensorOptions(kInt64).device(o.device);
    data = randint(0, kSymbols, {rows, kContext}, tokens);
    const NoGradGuard no_grad;
    GPT(model)->forward(data);  // makes its places
    targets = randint(0, kSymbols, {rows, kContext}, tokens);
  }
  void make_resnet(int64_t rows, const TensorOptions& there) {
    const ResNet9 model;
    model->to(o.device);
    parameters = model->parameters();
    optimizer = std::make_unique<optim::SGD>(
        parameters, optim::SGDOptions(0.1).momentum(0.9).weight_decay(5e-4));
    loss_of_batch = [=, this] {
      return nn::functional::cross_entropy(ResNet9(model)->forward(x), y);
    };
    data = randn({rows, 3, 32, 32}, there);
    targets = randint(0, 10, {rows}, there.dtype(kInt64));
  }
  void step() {
    optimizer->zero_grad();
    {
      const amp::autocast region(o.device.type(), o.dtype);
      loss = loss_of_batch();
    }
    scaler.scale(loss).backward();
    scaler.step(*optimizer);
    scaler.update();
  }
  void gathered_steps() {
    for (int64_t i = 0; i < kSteps; ++i) {
      x = data.index_select(0, order[i]);
      y = targets.index_select(0, order[i]);
      step();
    }
  }
  std::vector<float> weights() const {
    std::vector<float> all;
    for (const Tensor& p : parameters)
      for (float v : p.detach().to(kCPU).flatten().to_vector<float>()) all.push_back(v);
    return all;
  }
};

void wait(Device device) {
  if (device.is_cuda()) cuda::synchronize();
}

/// Microseconds of each of 15 blocks of calls, by the device's clock, in rising order.
struct Times {
  std::vector<double> us;
  int64_t calls = 0;  // in a block

  template <class F>
  Times(Device device, double seconds, const F& call) {
    using Clock = std::chrono::steady_clock;
    constexpr int kBlocks = 15;
    for (int i = 0; i < 5; ++i) call();
    wait(device);
    const auto start = Clock::now();
    for (int i = 0; i < 5; ++i) call();
    wait(device);
    const double once = std::chrono::duration<double>(Clock::now() - start).count() / 5;
    calls = std::max<int64_t>(3, static_cast<int64_t>(seconds / kBlocks / once));
    for (int block = 0; block < kBlocks; ++block) us.push_back(time(device, call));
    std::sort(us.begin(), us.end());
  }
  double median() const { return us[us.size() / 2]; }

 private:
  template <class F>
  double time(Device device, const F& call) const {
    const auto n = static_cast<double>(calls);
    if (device.is_cuda()) {
      cuda::Event begin(true), end(true);
      begin.record();
      for (int64_t i = 0; i < calls; ++i) call();
      end.record();
      end.synchronize();
      return static_cast<double>(begin.elapsed_time(end)) * 1e3 / n;
    }
    const auto start = std::chrono::steady_clock::now();
    for (int64_t i = 0; i < calls; ++i) call();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() * 1e6 /
           n;
  }
};

void print_line(const Options& o, const Workload& w, const char* config, const Times& t,
                int64_t steps, int64_t nodes) {
  const auto per_step = [&](double us) { return us / static_cast<double>(steps); };
  std::printf(
      "{\"lib\": \"halftape\", \"workload\": \"%s\", \"config\": \"%s\", \"dtype\": \"%s\", "
      "\"batch\": %lld, \"us_median\": %.2f, \"us_min\": %.2f, \"us_max\": %.2f, "
      "\"steps_per_block\": %lld, \"nodes\": %lld}\n",
      w.name, config, o.dtype == kFloat16 ? "float16" : "bfloat16", static_cast<long long>(w.batch),
      per_step(t.median()), per_step(t.us.front()), per_step(t.us.back()),
      static_cast<long long>(t.calls * steps), static_cast<long long>(nodes / steps));
  std::fflush(stdout);
}

/// How six steps called differ from six replayed, in the last five losses or in the weights they
/// leave; "" if they do not. In the first one called, the scaler has no factor on the device yet,
/// and an MLP's loss, computed without its gradients, may have another order of sums.
std::string difference(const Workload& w, const Options& o) {
  Training called(w, o), replayed(w, o);
  optim::LossHistory of_calls(5), of_replays(5);
  Graph graph(o.device, [&] {
    replayed.step();
    of_replays.push(replayed.loss);
  });
  manual_seed(1);  // of dropout
  for (int i = 0; i < 6; ++i) {
    called.step();
    of_calls.push(called.loss);
  }
  manual_seed(1);
  for (int i = 0; i < 6; ++i) graph.replay();
  const std::vector<float> a = called.weights(), b = replayed.weights();
  const auto u = of_calls.to_vector(), v = of_replays.to_vector();
  if (a == b && u == v) return "";
  std::string text = "losses";
  for (const auto& losses : {u, v}) {
    for (const double loss : losses) text += " " + std::to_string(loss);
    text += ";";
  }
  size_t others = 0;
  for (size_t i = 0; i < a.size(); ++i) others += a[i] != b[i];
  return text + " " + std::to_string(others) + " of " + std::to_string(a.size()) +
         " weights differ";
}

void measure(const Workload& w, const Options& o) {
  if (const std::string how = difference(w, o); !how.empty()) {
    std::printf(
        "{\"lib\": \"halftape\", \"workload\": \"%s\", \"error\": \"a graph's steps are not "
        "those of calls: %s\"}\n",
        w.name, how.c_str());
    std::fflush(stdout);
  }
  {
    Training t(w, o);
    print_line(o, w, "eager", Times(o.device, o.seconds, [&] { t.step(); }), 1, 0);
  }
  if (!o.device.is_cuda()) return;
  {
    Training t(w, o);
    Graph graph(o.device, [&] { t.step(); });
    print_line(o, w, "graph", Times(o.device, o.seconds, [&] { graph.replay(); }), 1, graph.size());
  }
  {
    Training t(w, o);
    Graph graph(o.device, [&] { t.gathered_steps(); });
    print_line(o, w, "graph8", Times(o.device, o.seconds, [&] { graph.replay(); }), kSteps,
               graph.size());
  }
}

/// What limits every step: a launch, a node of a graph, the memory, the products.
void calibrate(const Options& o) {
  const TensorOptions there = TensorOptions(kFloat32).device(o.device);
  const auto say = [](const char* what, double value, const char* unit) {
    std::printf(
        "{\"lib\": \"halftape\", \"calibration\": \"%s\", \"value\": %.3f, \"unit\": "
        "\"%s\"}\n",
        what, value, unit);
    std::fflush(stdout);
  };
  const NoGradGuard no_grad;
  Tensor small = zeros({1024}, there);
  say("in-place add of 1024 elements, called",
      Times(o.device, o.seconds, [&] { small.add_(1); }).median(), "us");
  double before = 0;
  for (const int nodes : {1, 10, 100}) {
    Graph graph(o.device, [&] {
      for (int i = 0; i < nodes; ++i) small.add_(1);
    });
    const double us = Times(o.device, o.seconds, [&] { graph.replay(); }).median();
    const std::string name = "graph of " + std::to_string(nodes) + " in-place adds";
    say(name.c_str(), us, "us");
    if (nodes == 100) say("a node of a graph", (us - before) / 90, "us");
    before = us;
  }
  const bool gpu = o.device.is_cuda();
  const int64_t n = gpu ? int64_t{1} << 28 : int64_t{1} << 24;
  Tensor from = zeros({n}, there), to = zeros({n}, there);
  const double copied = Times(o.device, o.seconds, [&] { to.copy_(from); }).median();
  say("copy, reading and writing", 8.0 * static_cast<double>(n) / copied * 1e-3, "GB/s");
  for (const Dtype dtype : {kFloat16, kBFloat16}) {
    const int64_t m = gpu ? 8192 : 512;
    const Tensor a = randn({m, m}, there).to(dtype), b = randn({m, m}, there).to(dtype);
    const double us = Times(o.device, o.seconds, [&] { (void)matmul(a, b); }).median();
    const double flops = 2.0 * static_cast<double>(m) * static_cast<double>(m * m);
    say(dtype == kFloat16 ? "float16 product" : "bfloat16 product", flops / us * 1e-6, "TFLOP/s");
  }
}

int usage(const std::string& why) {
  std::fprintf(stderr,
               "bench_train_step: %s\nusage: bench_train_step [--device cpu|cuda] [--dtype "
               "float16|bfloat16] [--only a128,a1024,b,c,d,e] [--seconds S] [--calibrate]\n",
               why.c_str());
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  Options o;
  for (int i = 1; i < argc; ++i) {
    const std::string option = argv[i];
    if (option == "--calibrate") {
      o.calibrate = true;
      continue;
    }
    if (i + 1 == argc) return usage("what is " + option + "?");
    const std::string value = argv[++i];
    if (option == "--device" && (value == "cpu" || value == "cuda"))
      o.device = value == "cuda" ? Device(kCUDA) : Device(kCPU);
    else if (option == "--dtype" && (value == "float16" || value == "bfloat16"))
      o.dtype = value == "float16" ? kFloat16 : kBFloat16;
    else if (option == "--only")
      o.only = value;
    else if (option == "--seconds" && std::atof(value.c_str()) > 0)
      o.seconds = std::atof(value.c_str());
    else
      return usage("what is " + option + " " + value + "?");
  }
  std::istringstream names(o.only);
  for (std::string name; std::getline(names, name, ',');)
    if (std::none_of(std::begin(kWorkloads), std::end(kWorkloads),
                     [&](const Workload& w) { return name == w.name; }))
      return usage("what is workload " + name + "?");
  if (o.device.is_cuda() && !cuda::is_available()) {
    std::fprintf(stderr, "bench_train_step: no GPU: %s\n", cuda::unavailable_reason().c_str());
    return 2;
  }
  if (o.calibrate) calibrate(o);
  const std::string wanted = "," + o.only + ",";
  for (const Workload& w : kWorkloads)
    if (wanted.find("," + std::string(w.name) + ",") != std::string::npos) measure(w, o);
  return 0;
}
