// Allocations that fail within ops, backward and training steps, and threads that do not start: the
// numbers are right, or those from before, and nothing is lost.
#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <halftape/halftape.h>

#include <atomic>
#include <cmath>
#include <functional>
#include <vector>

#include "halftape/cpu/runtime/parallel.h"
#include "halftape/tests/faults/places.h"
#include "halftape/tests/faults/run.h"
#include "halftape/tests/support/warnings.h"

using namespace halftape;
using namespace halftape::testing;

namespace {

/// The bytes of the weights.
std::vector<double> weights(const Run& run) {
  std::vector<double> all;
  for (const Tensor& p : run.model->parameters())
    for (const double v : p.to_vector()) all.push_back(v);
  return all;
}

/// Restores the number of threads.
struct Threads {
  int before = get_num_threads();
  explicit Threads(int n) { set_num_threads(n); }
  ~Threads() { set_num_threads(before); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;
};

}  // namespace

TEST_CASE("an op or a backward pass that finds no memory gives nothing and keeps nothing") {
  const Tensor x = randn({2, 3, 8, 8}).requires_grad_(true), w = randn({4, 3, 3, 3});
  const Tensor a = randn({8, 8}).requires_grad_(true);
  const std::pair<const char*, std::function<Tensor()>> programs[] = {
      {"convolution", [&] { return nn::functional::conv2d(x, w).relu().sum(); }},
      {"attention", [&] { return matmul(softmax(matmul(a, a.t()), -1), a).tanh().sum(); }},
      {"indexing",
       [&] {
         return std::get<0>(cat({a, a.index({indexing::Slice(1, 4)})}, 0).sort(0)).sum();
       }},
      {"halves", [&] {
         const amp::autocast region(kCPU, kFloat16);
         return nn::functional::linear(a, a).pow(2).mean();
       }}};
  for (const auto& named : programs) {
    const std::string called = named.first;
    const auto& program = named.second;
    CAPTURE(called);
    for (const Tensor* t : {&x, &a}) const_cast<Tensor*>(t)->mutable_grad() = Tensor();
    program().backward();
    const auto grads = [&] {
      std::vector<double> all;
      for (const Tensor& t : {x, a})
        if (t.grad().defined())
          for (const double v : t.grad().to_vector()) all.push_back(v);
      return all;
    };
    const std::vector<double> right = grads();
    int places = 0;
    for (int64_t nth = 1;; ++nth) {
      CAPTURE(nth);
      for (const Tensor* t : {&x, &a}) const_cast<Tensor*>(t)->mutable_grad() = Tensor();
      const int64_t live = Buffer::live_count();
      Said said;
      if (!fails_at(
              kMemory, nth, [&] { program().backward(); }, said))
        break;
      ++places;
      if (said) {
        for (const Tensor* t : {&x, &a}) const_cast<Tensor*>(t)->mutable_grad() = Tensor();
        CHECK(Buffer::live_count() <= live);
        program().backward();
      }
      CHECK(grads() == right);
    }
    CHECK(places > 10);
    MESSAGE(called, ": ", places, " places");
  }
}

TEST_CASE("a training step that finds no memory leaves the weights from before or after it") {
  Run right(2);
  const std::vector<double> before = weights(right);
  right.step(1);
  const std::vector<double> after = weights(right);
  int places = 0;
  const int64_t live = Buffer::live_count();
  for (int64_t nth = 1;; ++nth) {
    CAPTURE(nth);
    {
      Run run(2);
      Said said;
      if (!fails_at(
              kMemory, nth, [&] { run.step(1); }, said))
        break;
      ++places;
      const std::vector<double> now = weights(run);
      CHECK((now == after || (said && now == before)));
      run.step(2);
      for (const double v : weights(run)) CHECK(std::isfinite(v));
    }
    CHECK(Buffer::live_count() == live);
  }
  CHECK(places > 100);
  MESSAGE(places, " places");
}

TEST_CASE("threads that do not start cost no bit") {
  const Tensor a = randn({1024, 512}), b = randn({512, 256});
  const auto compute = [&] { return matmul(a.exp(), b).to_vector(); };
  const Threads one(1);
  const std::vector<double> right = compute();
  const Warnings warnings;
  int places = 0;
  for (const bool persists : {false, true})
    for (int64_t nth = 1, refused = 1; refused; ++nth, ++places) {
      // The pool asks for its threads once: each time in a child, which has a pool of its own.
      const pid_t child = fork();
      REQUIRE(child >= 0);
      if (child == 0) {
        const RefusedThreads refusing(nth, persists);
        set_num_threads(4);
        const bool same = compute() == right;
        _exit((same ? 0 : 2) + refusing.refused());
      }
      int status = 0;
      REQUIRE(waitpid(child, &status, 0) == child);
      REQUIRE(WIFEXITED(status));
      CHECK((WEXITSTATUS(status) & 2) == 0);
      refused = WEXITSTATUS(status) & 1;
    }
  CHECK(places == 2 * 4);
  MESSAGE(places, " places");
}

TEST_CASE("a loop whose threads find no memory runs on those there are") {
  const Threads four(4);
  int places = 0;
  for (int64_t nth = 1, reached = 1; reached; ++nth, ++places) {
    const pid_t child = fork();  // as above
    REQUIRE(child >= 0);
    if (child == 0) {
      std::atomic<int> done = 0;
      fail_new(nth);
      try {
        cpu::parallel_for(8, [&](int64_t) { ++done; });
      } catch (...) {
        _exit(2);
      }
      const bool failed = fail_new(0) == 0;
      _exit((done == 8 ? 0 : 2) + failed);
    }
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    REQUIRE(WIFEXITED(status));
    CHECK((WEXITSTATUS(status) & 2) == 0);
    reached = WEXITSTATUS(status) & 1;
  }
  CHECK(places > 3);
}

TEST_CASE("a loader or an asynchronous optimizer whose threads do not start says so") {
  const std::string right = Run(5).bytes();
  int places = 0;
  for (const bool persists : {false, true})
    for (int64_t nth = 1;; ++nth) {
      CAPTURE(nth);
      const RefusedThreads refusing(nth, persists);
      try {
        const std::string bytes = Run(5, 3).bytes();
        CHECK(bytes == right);
      } catch (const Error& error) {
        CHECK(std::string(error.what()).find("does not start") != std::string::npos);
      }
      if (!refusing.refused()) break;
      ++places;
    }
  CHECK(places == 6);
  const RefusedThreads refusing(1, true);
  const Tensor w = ones({2}).requires_grad_(true);
  CHECK_THROWS_AS(optim::AsyncOptimizer(
                      std::make_unique<optim::SGD>(std::vector<Tensor>{w}, optim::SGDOptions(0.1))),
                  Error);
}

TEST_CASE("backward passes so deep that they need a thread say that it does not start") {
  const Tensor x = ones({1}).requires_grad_();
  std::function<void(int)> nested = [&](int depth) {
    const AutoGradMode recording(true);
    const Tensor y = x * 2;
    if (depth > 0) y.register_hook([&, depth](const Tensor&) { nested(depth - 1); });
    y.sum().backward();
  };
  {
    const RefusedThreads refusing(1, true);
    CHECK_THROWS_WITH_AS(nested(50), doctest::Contains("need a thread, which does not start ("),
                         Error);
    CHECK(refusing.refused());
  }
  x.mutable_grad() = Tensor();
  nested(50);
  CHECK(x.grad().item<double>() == 2 * 51);
}
