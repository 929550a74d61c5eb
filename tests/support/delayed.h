// The oracle of asynchronous steps: a small problem, scripted turns, and the delayed recurrence
// w(k+1) = step(w(k), gradient at w(max(0, k−1))) on one thread, with tensors of its own. And
// schedules: random pauses wherever two threads meet.
#pragma once
#include <atomic>
#include <chrono>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "halftape/halftape.h"
#include "halftape/tests/support/poke.h"

namespace halftape::testing {

/// One training step of a script.
struct Turn {
  double lr = 0.05;
  std::optional<double> scale = {}, max_norm = {};
  bool is_async = true;
  bool overflow = false;  // one element of one gradient is infinite
};

using MakeOptimizer = std::function<std::unique_ptr<optim::Optimizer>(const TensorList&)>;

inline std::unique_ptr<optim::Optimizer> make_sgd(const TensorList& p) {
  return std::make_unique<optim::SGD>(p, optim::SGDOptions(0.05).momentum(0.9).weight_decay(0.01));
}
inline std::unique_ptr<optim::Optimizer> make_adamw(const TensorList& p) {
  return std::make_unique<optim::AdamW>(p, optim::AdamWOptions(0.05));
}

/// tanh(x·a + b)·c against a moving target; x (4, 3).
inline TensorList first_weights() {
  auto wave = [](const Shape& shape, double phase) {
    std::vector<double> v(static_cast<size_t>(numel(shape)));
    for (size_t i = 0; i < v.size(); ++i) v[i] = std::sin(1.7 * static_cast<double>(i) + phase);
    return tensor(v, kFloat32).reshape(shape).detach().requires_grad_();
  };
  return {wave({3, 5}, 0.1), wave({5}, 0.2), wave({5, 2}, 0.3)};
}
inline Tensor batch_loss(const TensorList& w, int64_t k) {
  std::vector<double> x(12), y(8);
  for (size_t i = 0; i < 12; ++i) x[i] = std::cos(static_cast<double>(i) + 0.9 * k);
  for (size_t i = 0; i < 8; ++i) y[i] = std::sin(static_cast<double>(i) + 0.2 * k);
  const Tensor in = tensor(x, kFloat32).reshape({4, 3}), out = tensor(y, kFloat32).reshape({4, 2});
  return mse_loss(matmul(tanh(matmul(in, w[0]) + w[1]), w[2]), out);
}
/// The scaled gradients of batch k in `w`, with the script's accident.
inline void spoil(const TensorList& w, const Turn& turn) {
  if (turn.overflow) poke(w[1].grad(), 2, std::numeric_limits<float>::infinity());
}
inline void backward(const TensorList& w, int64_t k, const Turn& turn) {
  batch_loss(w, k).backward(full({}, turn.scale.value_or(1)));
  spoil(w, turn);
}

inline TensorList copies(const TensorList& w) {
  TensorList out;
  for (const Tensor& t : w) out.push_back(t.detach().clone());
  return out;
}

struct Recurrence {
  std::vector<TensorList> weights;  // w(0) … w(n)
  std::vector<size_t> used;         // forward pass k read weights[used[k]]
  optim::OptimizerState state;      // after the last step
};

/// The recurrence, written out: nothing here knows of threads, tickets or scalers.
inline Recurrence delayed_recurrence(const MakeOptimizer& make, const std::vector<Turn>& turns) {
  const TensorList w = copies(first_weights());
  const auto optimizer = make(w);
  Recurrence run{{copies(w)}, {}, {}};
  size_t now = 0;
  for (size_t k = 0; k < turns.size(); ++k) {
    const Turn& turn = turns[k];
    run.used.push_back(now);
    TensorList v = copies(run.weights[now]);
    for (Tensor& t : v) t.requires_grad_();
    backward(v, static_cast<int64_t>(k), turn);
    bool finite = true;
    for (size_t i = 0; i < w.size(); ++i) {
      std::vector<float> g = v[i].grad().detach().to_vector<float>();
      for (float& x : g) {
        if (!turn.scale) break;
        x *= 1 / static_cast<float>(*turn.scale);
        finite &= std::isfinite(x);
      }
      w[i].mutable_grad() = tensor(g, kFloat32).reshape(w[i].sizes());
    }
    if (turn.max_norm) nn::utils::clip_grad_norm_(w, *turn.max_norm);
    optimizer->param_groups()[0].options().set_lr(turn.lr);
    if (finite) optimizer->step();
    run.weights.push_back(copies(w));
    now = turn.is_async ? k : k + 1;
  }
  run.state = optimizer->state_dict();
  return run;
}

/// The same with an AsyncOptimizer: what each forward pass read, and at the end the newest weights.
struct Threaded {
  std::vector<TensorList> seen;
  TensorList last;
  optim::OptimizerState state;
};

inline optim::AsyncStepOptions options_of(const Turn& turn) {
  return {.is_async = turn.is_async, .scale = turn.scale, .max_norm = turn.max_norm};
}

inline Threaded run_threaded(const MakeOptimizer& make, const std::vector<Turn>& turns) {
  const TensorList model = first_weights();
  optim::AsyncOptimizer optimizer(make(model));
  Threaded run;
  for (size_t k = 0; k < turns.size(); ++k) {
    run.seen.push_back(copies(model));
    backward(model, static_cast<int64_t>(k), turns[k]);
    auto& options = optimizer.param_groups()[0].options();
    options.set_lr(turns[k].lr);
    optimizer.step(options_of(turns[k]));
    options.set_lr(1e6);  // the step that was handed over must not see it
  }
  run.state = optimizer.state_dict().optimizer;
  optimizer.synchronize();
  run.last = copies(model);
  return run;
}

/// While it lives, both threads pause at random wherever they meet.
class Schedule {
 public:
  explicit Schedule(uint64_t seed) {
    random().store(seed * 0x9E3779B97F4A7C15u + 1, std::memory_order_relaxed);
    optim::set_meeting_hook([](optim::Meeting) {
      uint64_t x = random().fetch_add(0xD1B54A32D192ED03u, std::memory_order_relaxed);
      x = (x ^ (x >> 29)) * 0xBF58476D1CE4E5B9u >> 40;
      if (x % 16 == 0) std::this_thread::sleep_for(std::chrono::microseconds(x / 16 % 30));
      if (x % 16 == 1) std::this_thread::yield();
      // A spin costs little and shifts the threads as well.
      volatile uint64_t spin = x % 16 < 8 ? x / 16 % 2000 : 0;
      while (spin > 0) spin = spin - 1;
    });
  }
  ~Schedule() { optim::set_meeting_hook(nullptr); }
  Schedule(const Schedule&) = delete;
  Schedule& operator=(const Schedule&) = delete;

 private:
  // Relaxed, so that the hook orders nothing that the code under test should.
  static std::atomic<uint64_t>& random() {
    static std::atomic<uint64_t> state;
    return state;
  }
};

/// Numbers for scripts: the same on every machine.
struct Coin {
  uint32_t state;
  uint32_t below(uint32_t n) {
    state = state * 1664525u + 1013904223u;
    return (state >> 16) % n;
  }
};

}  // namespace halftape::testing
