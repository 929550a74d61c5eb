// Scalers that differ between ranks.
#include "halftape/amp/agreement.h"

#include <doctest/doctest.h>
#include <halftape/halftape.h>

#include <cmath>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "halftape/tests/support/close.h"
#include "halftape/tests/support/thread_ranks.h"

using namespace halftape;
using namespace halftape::distributed;
using testing::differ;
using testing::on_ranks;

namespace {

/// Which of two ranks has a scaler that is disabled.
amp::GradScalerOptions disabled_on(int rank, const ProcessGroup& group) {
  amp::GradScalerOptions options;
  options.init_scale = 1024;
  options.enabled = group.rank() != rank;
  return options;
}

/// The error of this rank.
doctest::Contains says_who(int disabled, const ProcessGroup& group) {
  return group.rank() == disabled ? doctest::Contains("it is disabled, and enabled on another one")
                                  : doctest::Contains("it is enabled, and disabled on another one");
}

constexpr GroupOptions kImpatient{.timeout = milliseconds(2000)};

}  // namespace

TEST_CASE("scale 0, of a disabled scaler, beside another is an error that says who has it") {
  on_ranks(3, [](const std::shared_ptr<ProcessGroup>& group) {
    nn::Linear net(2, 2);
    const DistributedDataParallel ddp(*net, {}, group);
    const std::vector<Tensor> params = net->parameters();
    const auto agreement = amp::agreement_of(params);
    REQUIRE(agreement);
    const auto agree = [&](double scale) {
      const Array flags[] = {full({}, 0, kFloat32, kCPU), full({}, 0, kFloat32, kCPU)};
      agreement->agree(flags, {.scale = full({}, scale, kFloat32, kCPU)}, {});
      CHECK(read_double(flags[0]) == 0);
    };
    agree(0);  // disabled on all
    agree(1024);
    CHECK_THROWS_WITH_AS(agree(group->rank() == 1 ? 0 : 1024), says_who(1, *group), Error);
    agree(2048);  // the ranks are still in step
  });
}

TEST_CASE("a GradScaler that is disabled on one rank is an error on all, not a wait") {
  for (const int disabled : {0, 1})
    for (const bool unscales : {false, true})
      on_ranks(
          2,
          [&](const std::shared_ptr<ProcessGroup>& group) {
            nn::Linear net(2, 2);
            optim::SGD sgd(net->parameters(), optim::SGDOptions(0.1));
            DistributedDataParallel ddp(*net, {}, group);
            amp::GradScaler scaler(disabled_on(disabled, *group));
            scaler.scale(net->forward(ones({1, 2})).sum()).backward();
            CHECK_THROWS_WITH_AS(unscales ? scaler.unscale_(sgd) : (void)scaler.step(sgd),
                                 says_who(disabled, *group), Error);
          },
          kImpatient);
}

TEST_CASE("a new scaler where an earlier one lay, and a loaded state, are compared anew") {
  static std::vector<int64_t> seen;
  struct Recorder final : amp::Agreement {
    void agree(std::span<const Array>, const amp::ScaleCourse& course, const Array&) override {
      seen.push_back(course.state_number);
    }
  };
  nn::Linear net(2, 2);
  optim::SGD sgd(net->parameters(), optim::SGDOptions(0.1));
  amp::set_agreement_finder([](std::span<const Tensor>) -> std::shared_ptr<amp::Agreement> {
    return std::make_shared<Recorder>();
  });
  std::optional<amp::GradScaler> scaler;
  const auto step = [&] {
    sgd.zero_grad();
    scaler->scale(net->forward(ones({1, 2})).sum()).backward();
    scaler->step(sgd);
    scaler->update();
    return seen.back();
  };
  std::set<int64_t> different;
  for (int i = 0; i < 3; ++i) {
    scaler.emplace();
    const int64_t first = step();
    CHECK(step() == first);
    different.insert(first);
    scaler->load_state_dict(scaler->state_dict());
    different.insert(step());
  }
  amp::set_agreement_finder(nullptr);
  CHECK(different.size() == 6);
}

TEST_CASE("so is an AsyncGradScaler") {
  on_ranks(
      2,
      [](const std::shared_ptr<ProcessGroup>& group) {
        nn::Linear net(2, 2);
        DistributedDataParallel ddp(*net, {}, group);
        optim::AsyncOptimizer optimizer(
            std::make_unique<optim::SGD>(net->parameters(), optim::SGDOptions(0.1)));
        amp::AsyncGradScaler scaler(disabled_on(1, *group));
        scaler.scale(net->forward(ones({1, 2})).sum()).backward();
        CHECK_THROWS_WITH_AS(scaler.step(optimizer), says_who(1, *group), Error);
      },
      kImpatient);
}

TEST_CASE("scalers that are disabled on all ranks step, and say so once") {
  const auto sent = [](bool with_scaler) {
    return on_ranks(2, [&](const std::shared_ptr<ProcessGroup>& group) {
      nn::Linear net(2, 2);
      optim::SGD sgd(net->parameters(), optim::SGDOptions(0.1));
      DistributedDataParallel ddp(*net, {}, group);
      const Tensor weight = net->weight.detach().clone(), bias = net->bias.detach().clone();
      amp::GradScaler scaler({.enabled = false});
      for (int step = 0; step < 3; ++step) {
        sgd.zero_grad();
        const Tensor loss = net->forward(full({1, 2}, group->rank() + 1.)).sum();
        if (with_scaler) {
          scaler.scale(loss).backward();
          if (step > 0) scaler.unscale_(sgd);
          scaler.step(sgd);
          scaler.update();
        } else {
          loss.backward();
          sgd.step();
        }
      }
      ddp.check_weights();
      // The gradients are the mean of 1 and 2, and 1: three steps of 0.1 times that.
      CHECK(differ(net->weight.detach(), weight - 0.45, {.eps = 8, .scale = 1}) == "");
      CHECK(differ(net->bias.detach(), bias - 0.3, {.eps = 8, .scale = 1}) == "");
    });
  };
  // Both ranks send one message: two flags, a place, and four numbers of the course twice.
  CHECK(sent(true) == sent(false) + 2 * (2 + 1 + 2 * 4) * sizeof(float));
}

TEST_CASE_TEMPLATE("broadcast_scaler takes the state of one rank", Scaler, amp::GradScaler,
                   amp::AsyncGradScaler) {
  on_ranks(3, [](const std::shared_ptr<ProcessGroup>& group) {
    nn::Linear net(2, 2);
    DistributedDataParallel ddp(*net, {}, group);
    amp::GradScalerOptions options;
    options.init_scale = 1024 << group->rank();
    options.growth_interval = 10 + group->rank();
    Scaler scaler(options);
    auto expected = scaler.state_dict();
    expected["scale"] = 4096;
    expected["growth_interval"] = 12;
    expected["_growth_tracker"] = 3;
    if (group->rank() == 2) scaler.load_state_dict(expected);
    ddp.broadcast_scaler(scaler, 2);
    CHECK(scaler.get_scale() == 4096);
    CHECK(scaler.get_growth_interval() == 12);
    CHECK(scaler.get_growth_tracker() == 3);
    CHECK_THROWS_WITH_AS(ddp.broadcast_scaler(scaler, 3), doctest::Contains("from rank 3"), Error);
    options.enabled = false;
    Scaler off(options);
    ddp.broadcast_scaler(off);  // nothing to take
    Scaler mixed(group->rank() == 1 ? options : amp::GradScalerOptions());
    if (group->rank() == 1)
      CHECK_THROWS_WITH_AS(
          ddp.broadcast_scaler(mixed),
          doctest::Contains("the scaler of rank 0 is enabled, and that of rank 1 is not"), Error);
    else
      ddp.broadcast_scaler(mixed);
    // From one that is disabled there is nothing to take, either.
    const std::string me = std::to_string(group->rank());
    if (group->rank() == 1)
      ddp.broadcast_scaler(mixed, 1);
    else
      CHECK_THROWS_WITH_AS(
          ddp.broadcast_scaler(scaler, 1),
          doctest::Contains(
              ("the scaler of rank 1 is disabled, and that of rank " + me + " is not").c_str()),
          Error);
    CHECK(scaler.get_scale() == 4096);
  });
}

TEST_CASE("scalers whose scales would part later are an error at the first step") {
  const auto step = [](const std::shared_ptr<ProcessGroup>& group, auto change) {
    nn::Linear net(2, 2);
    optim::SGD sgd(net->parameters(), optim::SGDOptions(0.1));
    DistributedDataParallel ddp(*net, {}, group);
    amp::GradScalerOptions options;
    options.init_scale = 1024;
    change(options);
    amp::GradScaler scaler(options);
    if (options.growth_interval == 7) {
      auto state = scaler.state_dict();
      state["_growth_tracker"] = group->rank();
      scaler.load_state_dict(state);
    }
    scaler.scale(net->forward(ones({1, 2})).sum()).backward();
    scaler.step(sgd);
  };
  using Options = amp::GradScalerOptions;
  const auto refused = [&](const char* why, const std::function<void(Options&, int)>& change) {
    on_ranks(
        2,
        [&](const std::shared_ptr<ProcessGroup>& group) {
          CHECK_THROWS_WITH_AS(step(group, [&](Options& o) { change(o, group->rank()); }),
                               doctest::Contains(why), Error);
        },
        kImpatient);
  };
  const char* const law = "growth intervals, bounds or hysteresis of the ranks differ";
  refused(law, [](Options& o, int rank) { o.growth_interval = 100 + rank; });
  refused(law, [](Options& o, int rank) { o.growth_factor = 2 + rank; });
  refused(law, [](Options& o, int rank) { o.backoff_factor = 0.5 / (1 + rank); });
  refused(law, [](Options& o, int rank) { o.hysteresis = 1 + rank; });
  refused(law, [](Options& o, int rank) { o.max_scale = 65536 << rank; });
  refused("have counted 0 to 1 steps", [](Options& o, int) { o.growth_interval = 7; });
}

TEST_CASE("scalers of a ZeroRedundancyOptimizer without a DistributedDataParallel agree, too") {
  on_ranks(2, [](const std::shared_ptr<ProcessGroup>& group) {
    const Tensor w = ones({4}).requires_grad_();
    ZeroRedundancyOptimizer<optim::AdamW> optimizer(std::vector<Tensor>{w},
                                                    optim::AdamWOptions(0.1), group);
    amp::GradScaler scaler({.init_scale = 1024});
    const double factor = group->rank() == 0 ? NAN : 1;
    scaler.scale((w * factor).sum()).backward();
    group->all_reduce(w.grad(), ReduceOp::Avg);
    CHECK(scaler.step(optimizer).bad_loss());
    scaler.update();
    CHECK(scaler.get_scale() == 1024);
    CHECK(w.equal(ones({4})));
  });
}

TEST_CASE("Weights::Stochastic rounds alike on all ranks, whatever they draw themselves") {
  for (const bool async : {false, true})
    on_ranks(2, [&](const std::shared_ptr<ProcessGroup>& group) {
      RandomState own;
      own.seed = 1 + static_cast<uint64_t>(group->rank());
      const RandomScope draws(own);
      nn::Linear net(16, 16);
      net->to(kBFloat16);
      DistributedDataParallel ddp(*net, {}, group);
      auto inner = std::make_unique<optim::AdamW>(
          net->parameters(), optim::AdamWOptions(1e-3).weights(optim::Weights::Stochastic));
      optim::AdamW& optimizer = *inner;
      std::optional<optim::AsyncOptimizer> beside;
      if (async) beside.emplace(std::move(inner));
      const Tensor before = net->weight.detach().clone();
      for (int step = 0; step < 3; ++step) {
        net->zero_grad();
        net->forward(full({1, 16}, 1 + step, kBFloat16)).square().sum().backward();
        if (async)
          beside->step();
        else
          optimizer.step();
      }
      if (async) beside->synchronize();
      ddp.check_weights();
      CHECK_FALSE(net->weight.equal(before));
    });
}

TEST_CASE("scalers agree when another DistributedDataParallel of the model has ended") {
  on_ranks(2, [](const std::shared_ptr<ProcessGroup>& group) {
    nn::Linear net(3, 2);
    const DistributedDataParallel ddp(*net, {}, group);
    { const DistributedDataParallel other(*net, {}, group); }
    optim::SGD optimizer(net->parameters(), 0.1);
    amp::GradScaler scaler({.init_scale = 1024});
    const Tensor loss = net->forward(ones({1, 3})).sum();
    scaler.scale(group->rank() == 1 ? loss * NAN : loss).backward();
    scaler.step(optimizer);
    scaler.update();
    CHECK(scaler.get_scale() == 1024);
    CHECK(scaler.stats().bad_losses == 1);
    ddp.check_weights();
  });
}

TEST_CASE("scalers agree over all groups to which an optimizer's parameters belong") {
  const std::shared_ptr<testing::Hall> halls[] = {std::make_shared<testing::Hall>(),
                                                  std::make_shared<testing::Hall>()};
  for (const bool expert_first : {true, false})
    on_ranks(4, [&](const std::shared_ptr<ProcessGroup>& world) {
      const int rank = world->rank();
      const auto pair = std::make_shared<ProcessGroup>(
          std::make_unique<testing::ThreadEngine>(halls[rank / 2], rank % 2), rank % 2, 2);
      nn::Linear expert(3, 3), rest(3, 2);
      const DistributedDataParallel of_expert(*expert, {}, pair), of_rest(*rest, {}, world);
      TensorList parameters = (expert_first ? expert : rest)->parameters();
      for (const Tensor& p : (expert_first ? rest : expert)->parameters()) parameters.push_back(p);
      optim::SGD optimizer(parameters, 0.1);
      amp::GradScaler scaler({.init_scale = 1024});
      const Tensor loss = rest->forward(expert->forward(ones({1, 3}))).sum();
      scaler.scale(rank == 3 ? loss * NAN : loss).backward();
      scaler.step(optimizer);
      scaler.update();
      CHECK(scaler.get_scale() == 1024);
      CHECK(scaler.stats().bad_losses == 1);
      of_expert.check_weights();
      of_rest.check_weights();
    });
}
