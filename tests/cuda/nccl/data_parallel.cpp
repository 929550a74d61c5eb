// DistributedDataParallel over NCCL.
#include <doctest/doctest.h>
#include <halftape/halftape.h>

#include <barrier>

#include "halftape/tests/support/waves.h"
#include "rig_ranks.h"
#include "settings.h"

using namespace halftape;
using namespace halftape::distributed;
using namespace halftape::testing;
namespace F = nn::functional;

namespace {

struct NetImpl : nn::Module {
  NetImpl() {
    const auto linear = [&](const char* name, int64_t in, int64_t out) {
      nn::Linear made(in, out);
      fill_with_waves(made->parameters());
      return register_module(name, made);
    };
    fc1 = linear("fc1", 6, 12);
    head = linear("head", 12, 4);
  }
  Tensor forward(const Tensor& x) { return head(tanh(fc1(x))); }
  nn::Linear fc1{nullptr}, head{nullptr};
};
HALFTAPE_MODULE(Net);

Tensor inputs(int64_t step) { return wave_rows(16, static_cast<double>(step) * 1.7); }
Tensor labels(int64_t step) { return (arange(16) * 3 + step) % 4; }

using Numbers = std::vector<std::vector<float>>;
template <class F>
Numbers each_of(const nn::Module& m, const F& f) {
  Numbers all;
  for (const Tensor& p : m.parameters())
    all.push_back(f(p).detach().to(kCPU).template to_vector<float>());
  return all;
}
Numbers grads(const nn::Module& m) {
  return each_of(m, [](const Tensor& p) { return p.grad(); });
}
Numbers weights(const nn::Module& m) {
  return each_of(m, [](const Tensor& p) { return p; });
}

void check_close(const Numbers& a, const Numbers& b) {
  REQUIRE(a.size() == b.size());
  for (size_t i = 0; i < a.size(); ++i)
    for (size_t k = 0; k < a[i].size(); ++k)
      CHECK(a[i][k] == doctest::Approx(b[i][k]).epsilon(1e-5).scale(1));
}

}  // namespace

TEST_CASE("gradients over NCCL are those of one process on the CPU") {
  Net alone;
  F::cross_entropy(alone->forward(inputs(0)), labels(0)).backward();
  const Numbers wanted = grads(*alone);
  for (const auto how : {distributed::Summation::Tree, distributed::Summation::Engine})
    for (const int64_t bytes : {int64_t{1}, int64_t{1} << 20}) {
      const Fresh fresh;
      const simt::With late(deferred());
      CHECK(on_nccl(2,
                    [&](const auto& group, Device device) {
                      Net net;
                      net->to(device);
                      const Shard mine{group->rank(), group->size()};
                      DistributedDataParallel ddp(
                          *net, {.bucket_bytes = bytes, .first_bucket_bytes = bytes}, group);
                      F::cross_entropy(net->forward(mine.of(inputs(0)).to(device)),
                                       mine.of(labels(0)).to(device))
                          .backward();
                      check_close(grads(*net), wanted);
                      ddp.check_weights();
                    },
                    {.summation = how}) == none(2));
    }
}

TEST_CASE("no host waits inside backward() after the first one") {
  const Fresh fresh;
  const simt::With late(deferred());
  std::barrier both(2);
  CHECK(on_nccl(2, [&](const auto& group, Device device) {
          Net net;
          net->to(device);
          const Shard mine{group->rank(), group->size()};
          DistributedDataParallel ddp(*net, {.bucket_bytes = 64, .first_bucket_bytes = 64}, group);
          for (int64_t step = 0; step < 3; ++step) {
            const Tensor x = mine.of(inputs(step)).to(device), y = mine.of(labels(step)).to(device);
            net->zero_grad();
            const Tensor loss = F::cross_entropy(net->forward(x), y);
            both.arrive_and_wait();
            const int64_t before = simt::counters().synchronisations;
            both.arrive_and_wait();
            loss.backward();
            both.arrive_and_wait();
            if (step > 0) CHECK(simt::counters().synchronisations == before);
            both.arrive_and_wait();
          }
          group->barrier();
        }) == none(2));
}

TEST_CASE("a whole step of training is captured, and trains as the CPU does") {
  Net alone;
  optim::SGD reference(alone->parameters(), optim::SGDOptions(0.1));
  for (int64_t step = 0; step < 4; ++step) {
    reference.zero_grad();
    F::cross_entropy(alone->forward(inputs(step)), labels(step)).backward();
    reference.step();
  }
  for (const bool flat : {false, true}) {
    const Fresh fresh;
    const simt::With late(deferred());
    CHECK(on_nccl(2, [&](const auto& group, Device device) {
            Net net;
            net->to(device);
            const Shard mine{group->rank(), group->size()};
            optim::SGD optimizer(net->parameters(), optim::SGDOptions(0.1));
            if (flat) optimizer.flatten();
            DistributedDataParallel ddp(*net, {.bucket_bytes = 64, .first_bucket_bytes = 64},
                                        group);
            const Tensor x = mine.of(inputs(0)).to(device), y = mine.of(labels(0)).to(device);
            const auto step = [&] {
              optimizer.zero_grad();
              F::cross_entropy(net->forward(x), y).backward();
              optimizer.step();
            };
            step();  // the ranks tell each other which gradients there are, and the host waits
            Graph graph(device, step);
            for (int64_t i = 1; i < 4; ++i) {
              x.copy_(mine.of(inputs(i)));
              y.copy_(mine.of(labels(i)));
              graph.replay();
            }
            check_close(weights(*net), weights(*alone));
            ddp.check_weights();
          }) == none(2));
  }
}

TEST_CASE("a step of a sharded optimizer is captured, and follows its learning rate") {
  const auto rate = [](int64_t step) { return 0.1 / static_cast<double>(1 + step); };
  Net alone;
  optim::AdamW reference(alone->parameters(), optim::AdamWOptions(0.1));
  for (int64_t step = 0; step < 4; ++step) {
    reference.zero_grad();
    F::cross_entropy(alone->forward(inputs(step)), labels(step)).backward();
    reference.param_groups()[0].options().set_lr(rate(step));
    reference.step();
  }
  const Fresh fresh;
  const simt::With late(deferred());
  CHECK(on_nccl(2, [&](const auto& group, Device device) {
          Net net;
          net->to(device);
          const Shard mine{group->rank(), group->size()};
          DistributedDataParallel ddp(*net, {.bucket_bytes = 64, .first_bucket_bytes = 64}, group);
          ZeroRedundancyOptimizer<optim::AdamW> optimizer(net->parameters(),
                                                          optim::AdamWOptions(0.1), ddp);
          const Tensor x = mine.of(inputs(0)).to(device), y = mine.of(labels(0)).to(device);
          const auto step = [&] {
            optimizer.zero_grad();
            F::cross_entropy(net->forward(x), y).backward();
            optimizer.step();
          };
          step();
          Graph graph(device, step);
          for (int64_t i = 1; i < 4; ++i) {
            x.copy_(mine.of(inputs(i)));
            y.copy_(mine.of(labels(i)));
            optimizer.param_groups()[0].options().set_lr(rate(i));
            graph.replay();
          }
          check_close(weights(*net), weights(*alone));
          ddp.check_weights();
        }) == none(2));
}

TEST_CASE("mixed precision over NCCL: a loss that is NaN on one rank is skipped by all of them") {
  constexpr int64_t kSteps = 5, kBad = 2;
  const amp::GradScalerOptions options{.init_scale = 1024, .growth_interval = 2};
  Net alone;
  optim::SGD reference(alone->parameters(), optim::SGDOptions(0.1));
  amp::GradScaler of_alone(options);
  for (int64_t step = 0; step < kSteps; ++step) {
    reference.zero_grad();
    Tensor loss;
    {
      const amp::autocast region(kCPU, kFloat16);
      loss = F::cross_entropy(alone->forward(inputs(step)), labels(step));
    }
    of_alone.scale(step == kBad ? loss * NAN : loss).backward();
    CHECK(of_alone.step(reference).applied() == (step != kBad));
    of_alone.update();
  }
  for (const bool captured : {false, true}) {
    CAPTURE(captured);
    const Fresh fresh;
    const simt::With late(deferred());
    CHECK(
        on_nccl(2, [&](const auto& group, Device device) {
          Net net;
          net->to(device);
          const Shard mine{group->rank(), group->size()};
          optim::SGD optimizer(net->parameters(), optim::SGDOptions(0.1));
          DistributedDataParallel ddp(*net, {.bucket_bytes = 64, .first_bucket_bytes = 64}, group);
          amp::GradScaler scaler(options);
          const Tensor x = mine.of(inputs(0)).to(device), y = mine.of(labels(0)).to(device);
          const Tensor factor = ones({}, device);
          const auto step = [&] {
            optimizer.zero_grad();
            Tensor loss;
            {
              const amp::autocast region(kCUDA, kFloat16);
              loss = F::cross_entropy(net->forward(x), y);
            }
            scaler.scale(loss * factor).backward();
            scaler.step(optimizer);
            scaler.update();
          };
          std::unique_ptr<Graph> graph;
          for (int64_t i = 0; i < kSteps; ++i) {
            x.copy_(mine.of(inputs(i)));
            y.copy_(mine.of(labels(i)));
            factor.fill_(i == kBad && group->rank() == 1 ? NAN : 1);
            if (captured && i == 1) graph = std::make_unique<Graph>(device, step);
            graph ? graph->replay() : step();
          }
          CHECK(scaler.get_scale() == of_alone.get_scale());
          CHECK(scaler.stats().skips == 1);
          const Numbers got = weights(*net), wanted = weights(*alone);
          for (size_t p = 0; p < got.size(); ++p)
            for (size_t k = 0; k < got[p].size(); ++k)
              CHECK(got[p][k] == doctest::Approx(wanted[p][k]).epsilon(epsilon(kFloat16)).scale(1));
          ddp.check_weights();
        }) == none(2));
  }
}
