// An asynchronous optimizer on the GPU: its steps go into a stream of their own, and the results do
// not depend on when either stream runs.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "halftape/core/contract/forwarding_backend.h"
#include "halftape/tests/support/message.h"
#if defined(HALFTAPE_SIMT)
#include "runtime/device.h"
#include "settings.h"
#endif

using namespace halftape;
using testing::message;

namespace {

enum class Kind { Bfloat16, Late, Prompt, Clipped };

/// The weights, losses and scales of some passes.
std::vector<std::vector<double>> trained(Kind kind) {
  manual_seed(2);
  nn::Sequential model(nn::Linear(8, 32), nn::ReLU(), nn::Linear(32, 4));
  optim::AsyncOptimizer optimizer(
      std::make_unique<optim::AdamW>(model->parameters(), optim::AdamWOptions(1e-2)));
  const bool scaled = kind != Kind::Bfloat16;
  amp::AsyncGradScaler scaler(
      {.init_scale = 0x1p19, .growth_interval = 3, .enabled = scaled},
      kind == Kind::Late ? amp::ScaleDelivery::Late : amp::ScaleDelivery::Prompt);
  Tensor x = zeros({16, 8});
  const Tensor y = arange(0, 16).remainder(4);
  std::vector<std::vector<double>> seen;
  for (int i = 0; i < 7; ++i) {
    x.copy_((arange(0, 128).to(kFloat32) * (0.1 + 0.05 * i)).sin().reshape({16, 8}));
    // By then the scale may be 2^20, too much for gradients in float16.
    if (i == 3) x.mul_(1e3);
    Tensor loss;
    {
      const amp::autocast region(kCUDA, scaled ? kFloat16 : kBFloat16);
      loss = nn::functional::cross_entropy(model->forward(x), y);
    }
    scaler.scale(loss).backward();
    optim::AsyncStepOptions options;
    if (kind == Kind::Clipped) options.max_norm = 0.1;
    scaler.step(optimizer, options);
    scaler.update();
    std::vector<double> now{loss.item<double>(), scaler.get_scale()};
    if (i % 2 == 0)  // nobody reads the others
      for (const Tensor& p : model->parameters())
        for (double v : p.detach().to(kCPU).to(kFloat64).flatten().to_vector<double>())
          now.push_back(v);
    seen.push_back(now);
  }
  optimizer.synchronize();
  std::vector<double> last{scaler.get_scale(true)};
  for (const Array& a : optimizer.state_dict().newest)
    for (double v : Tensor(a).to(kCPU).to(kFloat64).flatten().to_vector<double>())
      last.push_back(v);
  seen.push_back(last);
  return seen;
}

/// Counts the work that goes into side queues.
class Counting final : public ForwardingBackend {
 public:
  Counting() : ForwardingBackend(backend(kCUDA)), former_(swap_backend(kCUDA, this)) {}
  ~Counting() override { swap_backend(kCUDA, former_); }
  Queues* queues() override { return &queues_; }
  int used = 0;

 private:
  struct Queue final : SideQueue {
    Queue(std::unique_ptr<SideQueue> q, int& n) : queue(std::move(q)), uses(n) {}
    void use(const std::function<void()>& work) override { ++uses, queue->use(work); }
    std::unique_ptr<SideQueue> queue;
    int& uses;
  };
  struct Counted final : Queues {
    Counted(Queues& q, int& n) : queues(q), uses(n) {}
    void* current() override { return queues.current(); }
    void follow(void* q) override { queues.follow(q); }
    void record_use(const Buffer& bytes) override { queues.record_use(bytes); }
    std::unique_ptr<QueueMoment> now() override { return queues.now(); }
    std::unique_ptr<SideQueue> new_side_queue() override {
      return std::make_unique<Queue>(queues.new_side_queue(), uses);
    }
    std::unique_ptr<Recording> new_recording() override { return queues.new_recording(); }
    Queues& queues;
    int& uses;
  };
  void before(const std::string&, const Touched&) override {}
  Backend* former_;
  Counted queues_{*to().queues(), used};
};

}  // namespace

TEST_SUITE("cuda") {
  TEST_CASE("a side queue is another stream, and a moment orders the two") {
    Queues& queues = *backend(kCUDA).queues();
    const auto queue = queues.new_side_queue();
    void* const here = cuda::current_stream().handle();
    Tensor a = zeros({1000}), b;
    a.add_(1);
    const auto ready = queues.now();
    std::unique_ptr<QueueMoment> done;
    queue->use([&] {
      CHECK(cuda::current_stream().handle() != here);
      ready->await();
      b = a * 2;
      done = queues.now();
    });
    CHECK(cuda::current_stream().handle() == here);
    done->await();
    CHECK((b + 1).sum().item<float>() == 3000);
    CHECK_THROWS_AS(queue->use([] { throw Error("no"); }), Error);
    CHECK(cuda::current_stream().handle() == here);
    CHECK(cpu_backend().queues() == nullptr);
  }

  TEST_CASE(
      "a stream counts its blocks from 0, though a capture that was dropped needed it first") {
    const Array x = full({5000}, 2, kFloat32, kCUDA);
    const auto norm = [&] {
      const ListNorm n{.xs = {&x, 1},
                       .most = 1,
                       .norm = full({}, 0, kFloat32, kCUDA),
                       .factor = full({}, 0, kFloat32, kCUDA)};
      backend(kCUDA).list_norm(n);
      return n.norm;
    };
    bool captured = false;
    for (int i = 0; i < 3; ++i) {  // reuses returned streams
      const Graph dropped(kCUDA, [&] {
        if (std::exchange(captured, !captured)) (void)norm();
      });
    }
    Queues& queues = *backend(kCUDA).queues();
    const auto queue = queues.new_side_queue(), other = queues.new_side_queue();
    for (const auto* q : {&queue, &other})
      (*q)->use([&] { CHECK(read_double(norm()) == doctest::Approx(std::sqrt(20000.0))); });
  }

  TEST_CASE("steps of an asynchronous optimizer go into a stream of their own") {
    Counting counting;
    trained(Kind::Prompt);
    CHECK(counting.used == 7);
  }

#if defined(HALFTAPE_SIMT)
  TEST_CASE("an asynchronous step computes the same however late the streams run") {
    for (const Kind kind : {Kind::Bfloat16, Kind::Late, Kind::Prompt, Kind::Clipped}) {
      CAPTURE(static_cast<int>(kind));
      const auto now = trained(kind);
      if (kind == Kind::Prompt) CHECK(now[3][1] == 0x1p20);
      if (kind == Kind::Prompt) CHECK(now[4][1] == 0x1p19);  // the overflow was there
      simt::Settings s = simt::settings;
      s.mode = simt::Mode::Deferred;
      for (const simt::Order order : {simt::Order::Forward, simt::Order::Random}) {
        s.order = order;
        const simt::With late(s);
        const auto later = trained(kind);
        for (size_t i = 0; i < now.size(); ++i) {
          CAPTURE(i);
          CHECK(later[i] == now[i]);
        }
      }
    }
  }
#endif

  TEST_CASE("a Graph refuses the step of an asynchronous optimizer") {
    nn::Linear model(8, 4);
    optim::AsyncOptimizer optimizer(
        std::make_unique<optim::SGD>(model->parameters(), optim::SGDOptions(0.1)));
    const Tensor x = rand({5, 8});
    const auto pass = [&] {
      for (const Tensor& p : model->parameters()) p.mutable_grad() = Tensor();
      model->forward(x).sum().backward();
    };
    CHECK(message([&] {
            const Graph g(kCUDA, [&] {
              pass();
              optimizer.step();
            });
          }).find("AsyncOptimizer::step: inside the step of a Graph") != std::string::npos);
  }
}
