// Backward passes of several threads, over one graph or several that share leaves.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <atomic>
#include <future>
#include <string>
#include <thread>

#include "halftape/autograd/tape/record.h"
#include "halftape/tests/support/message.h"

using namespace halftape;
using testing::has;
using testing::message;

TEST_CASE("threads may run backward over graphs that share a leaf, and have modes of their own") {
  const Tensor w = ones({64}, kFloat64).requires_grad_();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 200; ++i) sum(w * (t + 1)).backward();
      const NoGradGuard guard;  // of this thread only
    });
  for (std::thread& t : threads) t.join();
  CHECK(GradMode::is_enabled());
  for (double g : w.grad().to_vector()) CHECK(g == 200 * (1 + 2 + 3 + 4));
}

TEST_CASE("of two threads that use up one graph, the first one has it and the other one is told") {
  for (int round = 0; round < 50; ++round) {
    const Tensor x = tensor({1.0}, kFloat64).requires_grad_();
    Tensor y = x;
    for (int i = 0; i < 100; ++i) y = y * x;
    std::atomic<int> ready = 0, done = 0, told = 0;
    const auto pass = [&] {
      for (++ready; ready < 2;) std::this_thread::yield();
      try {
        y.backward();
        ++done;
      } catch (const Error& e) {
        told += std::string(e.what()).find("retain_graph=true") != std::string::npos;
      }
    };
    std::thread other(pass);
    pass();
    other.join();
    CHECK(done == 1);
    CHECK(told == 1);
    CHECK(x.grad().item() == 101);
  }
}

namespace {

/// y = x², whose rule stops in its first run: a pass of another thread stands inside it until
/// finish().
class Stopped {
 public:
  explicit Stopped(bool retains) {
    y = record("square", (x * x).detach().array(), {&x}, [this](Node&, const Tensor& g) -> Grads {
      if (!stopped_.exchange(true)) {
        there_.set_value();
        go_on_.get_future().wait();
      }
      return {g * x.detach() * 2};
    });
    pass_ = std::async(std::launch::async, [this, retains] { y.backward({}, retains); });
    there_.get_future().wait();
  }
  ~Stopped() {
    if (pass_.valid()) go_on_.set_value();
  }
  /// Throws what the pass threw.
  void finish() {
    go_on_.set_value();
    pass_.get();
  }
  Tensor x = tensor({3.0}, kFloat64).requires_grad_(), y;

 private:
  std::atomic<bool> stopped_ = false;
  std::promise<void> there_, go_on_;
  std::future<void> pass_;
};

}  // namespace

TEST_CASE("a backward over a graph that another thread is using up is told, and changes nothing") {
  Stopped s(false);
  CHECK(has(message([&] { s.y.backward(); }), "was already released by an earlier backward()"));
  CHECK(has(message([&] { s.y.backward({}, true); }), "was already released"));
  CHECK(has(message([&] { autograd::grad({s.y}, {s.x}); }), "pass retain_graph=true there"));
  CHECK_FALSE(s.x.grad().defined());
  s.finish();
  CHECK(s.x.grad().item() == 6);
}

TEST_CASE("a graph that another thread runs may be run, but not used up, and stays usable") {
  Stopped s(true);
  CHECK(has(message([&] { s.y.backward(); }),
            "another backward() is running `square`; pass retain_graph=true to both"));
  CHECK_FALSE(s.x.grad().defined());
  s.y.backward({}, true);
  CHECK(s.x.grad().item() == 6);
  s.finish();
  CHECK(s.x.grad().item() == 12);
  s.y.backward();
  CHECK(s.x.grad().item() == 18);
  CHECK(has(message([&] { s.y.backward(); }), "was already released"));
}

TEST_CASE("threads may run backward over one checkpointed or whole loss that is retained") {
  const Tensor x = rand({64}, kFloat64).requires_grad_();
  const std::function<Tensor(const TensorList&)> f = [](const TensorList& in) {
    Tensor h = in[0];
    for (int i = 0; i < 20; ++i) h = tanh(h);
    return h;
  };
  const Tensor input = rand({4, 3}), target = tensor({0, 1, 2, 0});
  const Tensor w = rand({3, 3}).requires_grad_(), b = zeros({3}).requires_grad_();
  for (int i = 0; i < 50; ++i) {
    const Tensor y = autograd::checkpoint(f, {x}).sum();
    const Tensor loss = mlp_loss(input, target, {w}, {b});
    const auto both = [&] {
      y.backward({}, true);
      loss.backward({}, true);
    };
    std::thread other(both);
    both();
    other.join();
  }
  const Tensor sum = x.grad().clone();
  x.mutable_grad() = Tensor();
  f({x}).sum().backward();
  CHECK(sum.allclose(x.grad() * 100));
  const Tensor all = w.grad().clone();
  w.mutable_grad() = Tensor();
  mlp_loss(input, target, {w}, {b}).backward();
  CHECK(all.allclose(w.grad() * 100));
}

TEST_CASE("threads may read one view whose base was written") {
  for (int i = 0; i < 200; ++i) {
    const Tensor x = ones({64}, requires_grad()), h = x * 1, v = h.slice(0, 0, 32);
    h.mul_(2);  // the view takes its history from the base anew, when it is read
    Tensor here, there;
    std::thread other([&] { there = (v * v).sum(); });
    here = (v * v).sum();
    other.join();
    (here + there).backward();
    CHECK(x.grad().sum().item() == 32 * 16);  // twice d(2x)²/dx
  }
}
