// What amp::Inspector costs: a training step of a small classifier in float16 with a GradScaler,
// without it, with counts at every step, and with a sample of exponents at every 20th. The
// trainings take turns, each on a thread of its own, as a thread has one Inspector, and what is
// printed are medians of ratios: bench_inspector [ROUNDS]
#include <halftape/halftape.h>

#include <algorithm>
#include <array>
#include <barrier>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <thread>
#include <vector>

using namespace halftape;

namespace {

class Training {
 public:
  Training(int64_t width, const std::optional<amp::InspectorOptions>& options)
      : model_(nn::Linear(64, width), nn::ReLU(), nn::Linear(width, width), nn::ReLU(),
               nn::Linear(width, 10)),
        optimizer_(model_->parameters(), optim::AdamOptions(1e-4)) {
    if (options) inspector_.emplace(*model_, scaler_, *options);
  }

  /// Seconds of that many steps.
  double run(int steps) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < steps; ++i) {
      optimizer_.zero_grad();
      Tensor loss;
      {
        const amp::autocast region(kCPU, kFloat16);
        loss = nn::functional::cross_entropy(model_->forward(x_), y_);
      }
      scaler_.scale(loss).backward();
      scaler_.step(optimizer_);
      scaler_.update();
      if (inspector_) inspector_->step();
    }
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }

 private:
  nn::Sequential model_;
  optim::Adam optimizer_;
  amp::GradScaler scaler_;
  Tensor x_ = randn({128, 64}), y_ = randint(10, {128});
  std::optional<amp::Inspector> inspector_;
};

constexpr int kKinds = 5;
constexpr std::array<const char*, kKinds> kNames = {"none", "none again", "gradients", "and values",
                                                    "and samples"};
std::optional<amp::InspectorOptions> options_of(int kind) {
  amp::InspectorOptions options{.every = kind == 4 ? 20 : 0, .values = kind > 2};
  return kind > 1 ? std::optional(options) : std::nullopt;
}

double median(std::vector<double> x) {
  std::nth_element(x.begin(), x.begin() + static_cast<int64_t>(x.size() / 2), x.end());
  return x[x.size() / 2];
}

void compare(int64_t width, int steps, int rounds) {
  std::array<std::vector<double>, kKinds> seconds;
  std::barrier turn(kKinds);
  const auto train = [&](int kind) {
    std::optional<Training> training;
    for (int round = -1; round < rounds; ++round)
      for (int now = 0; now < kKinds; ++now) {
        turn.arrive_and_wait();
        if (now != kind) continue;
        if (round < 0) {
          manual_seed(0);
          training.emplace(width, options_of(kind));
        }
        const double taken = training->run(steps);
        if (round >= 0) seconds[static_cast<size_t>(kind)].push_back(taken);
      }
  };
  std::vector<std::thread> threads;
  for (int kind = 0; kind < kKinds; ++kind) threads.emplace_back(train, kind);
  for (std::thread& thread : threads) thread.join();
  std::printf("64-%ld-%ld-10, %.0f us a step:", static_cast<long>(width), static_cast<long>(width),
              1e6 * median(seconds[0]) / steps);
  for (size_t kind = 1; kind < kKinds; ++kind) {
    std::vector<double> ratios;
    for (size_t i = 0; i < seconds[0].size(); ++i)
      ratios.push_back(seconds[kind][i] / seconds[0][i]);
    std::printf("  %s %.3f", kNames[kind], median(ratios));
  }
  std::puts("");
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::max(1, std::atoi(argv[1])) : 100;
  set_num_threads(1);
  compare(64, 400, rounds);
  compare(256, 100, rounds);
  compare(1024, 20, std::max(1, rounds / 4));
}
