// What an optimizer that takes parts of gradients refuses, and the order of calls.
#include <doctest/doctest.h>
#include <halftape/halftape.h>

#include "halftape/tests/distributed/data_parallel/partly_used_net.h"
#include "halftape/tests/support/thread_ranks.h"

using namespace halftape;
using namespace halftape::distributed;
using namespace halftape::testing;

TEST_CASE("gradients are true in this rank's part and zero elsewhere, until they are gathered") {
  for (const bool flat : {false, true})
    on_ranks(3, [&](const std::shared_ptr<ProcessGroup>& group) {
      nn::Linear net(7, 9);
      DistributedDataParallel ddp(*net, {}, group);
      Zero optimizer(net->parameters(), optim::AdamWOptions(1e-2), ddp);
      if (flat) optimizer.flatten();
      net->forward(full({1, 7}, group->rank() + 1.)).sum().backward();
      // The bucket: 64 elements for 63, then 32 for 9. So 32 of each rank.
      const Tensor w = net->weight.grad().flatten();
      for (int64_t i = 0; i < 63; ++i)
        CHECK(w[i].item<float>() == (i / 32 == group->rank() ? 2.f : 0.f));
      CHECK(net->bias.grad().equal(full({9}, group->rank() == 2 ? 1. : 0.)));
      ddp.gather_gradients();
      CHECK(net->weight.grad().equal(full({9, 7}, 2.)));
      CHECK(net->bias.grad().equal(full({9}, 1.)));
      ddp.gather_gradients();  // nothing is left to do
      CHECK(net->weight.grad().equal(full({9, 7}, 2.)));
      CHECK_FALSE(is_partial(net->weight.grad()));
      optimizer.step();
      ddp.check_weights();
    });
}

TEST_CASE("partial gradients are refused by all that would take them for whole ones") {
  on_ranks(2, [](const std::shared_ptr<ProcessGroup>& group) {
    PartlyUsedNet net;
    DistributedDataParallel ddp(*net, {}, group);
    Zero optimizer(net->parameters(), optim::AdamWOptions(1e-2), ddp);
    optim::SGD plain(net->parameters(), optim::SGDOptions(0.1));
    ZeroRedundancyOptimizer<optim::SGD> of_group(net->parameters(), optim::SGDOptions(0.1), group);
    optim::LBFGS lbfgs(net->parameters(), optim::LBFGSOptions(0.1));
    const auto remedy = doctest::Contains("call ddp.gather_gradients() first");
    const auto refuse = [&] {
      CHECK_THROWS_WITH_AS(nn::utils::clip_grad_norm_(net->parameters(), 1.0), remedy, Error);
      CHECK_THROWS_WITH_AS(nn::utils::clip_grad_value_(net->parameters(), 1.0), remedy, Error);
      CHECK_THROWS_WITH_AS(plain.step(), remedy, Error);
      CHECK_THROWS_WITH_AS(of_group.step(), remedy, Error);
      CHECK_THROWS_WITH_AS(lbfgs.step([&] { return ones({}); }), remedy, Error);
    };
    loss_of(net, *group, 0).backward();
    refuse();
    {
      const NoGradGuard no_grad;
      for (const Tensor& p : net->parameters())
        if (p.grad().defined()) p.mutable_grad().mul_(0.5);  // still parts
    }
    refuse();
    optimizer.step();
    ddp.check_weights();

    plain.flatten();
    plain.zero_grad();
    loss_of(net, *group, 1).backward();
    CHECK_THROWS_WITH_AS(plain.flat_regions()[0].gradients(), remedy, Error);
    ddp.gather_gradients();
    nn::utils::clip_grad_norm_(net->parameters(), 1.0);
    plain.step();
    ddp.check_weights();

    optim::AsyncOptimizer async(
        std::make_unique<optim::SGD>(net->parameters(), optim::SGDOptions(0.1)));
    net->zero_grad();
    loss_of(net, *group, 2).backward();
    CHECK_THROWS_WITH_AS(async.step(), remedy, Error);
    net->to(kFloat64);
    CHECK_THROWS_WITH_AS(plain.step(), remedy, Error);
  });
}

TEST_CASE("gathered gradients are still those of a scaled loss") {
  on_ranks(2, [](const std::shared_ptr<ProcessGroup>& group) {
    PartlyUsedNet net;
    DistributedDataParallel ddp(*net, {}, group);
    Zero optimizer(net->parameters(), optim::AdamWOptions(1e-2), ddp);
    amp::GradScaler scaler({.init_scale = 1024});
    scaler.scale(loss_of(net, *group, 0)).backward();
    ddp.gather_gradients();
    CHECK_THROWS_WITH_AS(nn::utils::clip_grad_norm_(net->parameters(), 1.0),
                         doctest::Contains("multiplied by the loss scale"), Error);
    scaler.unscale_(optimizer);
    nn::utils::clip_grad_norm_(net->parameters(), 1.0);
    CHECK(scaler.step(optimizer).applied());
    ddp.check_weights();
  });
}

TEST_CASE("a backward on top of partial gradients is refused, on zeroed ones it is not") {
  on_ranks(2, [](const std::shared_ptr<ProcessGroup>& group) {
    PartlyUsedNet net, alone;
    DistributedDataParallel ddp(*net, {}, group), other(*alone, {}, group);
    Zero optimizer(net->parameters(), optim::AdamWOptions(1e-2), ddp);
    AdamW plain(alone->parameters(), optim::AdamWOptions(1e-2));
    for (const bool by_module : {false, true}) {
      loss_of(net, *group, 0).backward();
      const auto remedy = doctest::Contains("call optimizer.zero_grad() between them");
      CHECK_THROWS_WITH_AS(loss_of(net, *group, 1).backward(), remedy, Error);
      {
        const auto local = ddp.no_sync();
        CHECK_THROWS_WITH_AS(loss_of(net, *group, 1).backward(), remedy, Error);
      }
      if (by_module)
        net->zero_grad(false);
      else
        optimizer.zero_grad(false);
      plain.zero_grad(false);
      loss_of(net, *group, 2).backward();
      loss_of(alone, *group, 2).backward();
      optimizer.step();
      plain.step();
      CHECK(numbers(net->parameters()) == numbers(alone->parameters()));
      optimizer.zero_grad();
    }
    optimizer.step();  // without gradients
    ddp.check_weights();
  });
}

TEST_CASE("an AsyncOptimizer does not take a ZeroRedundancyOptimizer, whose steps send messages") {
  const nn::Linear net(3, 2);
  auto inner = std::make_unique<Zero>(net->parameters(), optim::AdamWOptions(1e-2),
                                      new_process_group({.rank = 0, .world_size = 1}));
  CHECK_THROWS_WITH_AS(optim::AsyncOptimizer(std::move(inner)), doctest::Contains("sends messages"),
                       Error);
}

TEST_CASE("parameters that the DistributedDataParallel does not reduce") {
  on_ranks(2, [](const std::shared_ptr<ProcessGroup>& group) {
    PartlyUsedNet net;
    for (const Tensor& p : net->fc->parameters()) p.set_requires_grad(false);
    DistributedDataParallel ddp(*net, {}, group);
    const Tensor stranger = ones({3}).requires_grad_();
    const auto refused = doctest::Contains("shape [3] is not one that the DistributedDataParallel");
    CHECK_THROWS_WITH_AS(Zero(std::vector<Tensor>{stranger}, optim::AdamWOptions(1e-2), ddp),
                         refused, Error);
    loss_of(net, *group, 0).backward();
    CHECK_FALSE(is_partial(net->head->bias.grad()));  // that one has gone
    net->zero_grad();

    Zero optimizer(net->parameters(), optim::AdamWOptions(1e-2), ddp);  // frozen ones may be there
    loss_of(net, *group, 0).backward();
    (void)optimizer.state_dict();  // empty as yet
    optimizer.step();
    CHECK_THROWS_WITH_AS((void)optimizer.state_dict(), doctest::Contains("consolidate_state()"),
                         Error);
    optimizer.consolidate_state();
    optimizer.load_state_dict(optimizer.state_dict());
    ddp.check_weights();

    net->fc->bias.set_requires_grad(true);  // too late for ddp
    optimizer.zero_grad();
    CHECK_THROWS_WITH_AS(loss_of(net, *group, 1).backward(),
                         doctest::Contains("was frozen when this was made"), Error);
    net->fc->bias.mutable_grad() = ones({net->fc->bias.size(0)});
    CHECK_THROWS_WITH_AS(optimizer.step(), doctest::Contains("is not one that"), Error);
    net->fc->bias.set_requires_grad(false);  // and still with its gradient
    CHECK_THROWS_WITH_AS(optimizer.step(), doctest::Contains("is not one that"), Error);
    optimizer.zero_grad();

    optimizer.add_param_group(optim::OptimizerParamGroup(std::vector<Tensor>{stranger}));
    loss_of(net, *group, 1).backward();
    CHECK_THROWS_WITH_AS(optimizer.step(), refused, Error);
  });
}

TEST_CASE("a gradient that no optimizer would use is refused, until its group comes") {
  on_ranks(2, [](const std::shared_ptr<ProcessGroup>& group) {
    PartlyUsedNet net;
    DistributedDataParallel ddp(*net, {}, group);
    std::vector<Tensor> rest = net->parameters();
    const Tensor bias = rest.back();
    rest.pop_back();
    Zero optimizer(rest, optim::AdamWOptions(1e-2), ddp);
    loss_of(net, *group, 0).backward();
    CHECK_THROWS_WITH_AS(optimizer.step(), doctest::Contains("head.bias has a gradient and is in"),
                         Error);
    bias.set_requires_grad(false);
    optimizer.zero_grad();
    bias.mutable_grad() = Tensor();
    loss_of(net, *group, 0).backward();
    optimizer.step();
    bias.set_requires_grad(true);
    optimizer.add_param_group(optim::OptimizerParamGroup(std::vector<Tensor>{bias}));
    optimizer.zero_grad();
    const Numbers before = numbers({bias});
    loss_of(net, *group, 1).backward();
    optimizer.step();
    CHECK(numbers({bias}) != before);
    ddp.check_weights();
  });
}

TEST_CASE("two optimizers of one DistributedDataParallel, one after the other, and none") {
  on_ranks(2, [](const std::shared_ptr<ProcessGroup>& group) {
    PartlyUsedNet net, alone;
    DistributedDataParallel ddp(*net, {}, group), other(*alone, {}, group);
    const auto options = optim::AdamWOptions(1e-2);
    const auto halves = [](const PartlyUsedNet& of) {
      const std::vector<Tensor> all = of->parameters();
      return std::pair(std::vector<Tensor>(all.begin(), all.begin() + 3),
                       std::vector<Tensor>(all.begin() + 3, all.end()));
    };
    {
      Zero first(halves(net).first, options, ddp), second(halves(net).second, options, ddp);
      AdamW a(halves(alone).first, options), b(halves(alone).second, options);
      for (int64_t step = 0; step < 3; ++step) {
        net->zero_grad(), alone->zero_grad();
        loss_of(net, *group, step).backward();
        loss_of(alone, *group, step).backward();
        first.step(), second.step(), a.step(), b.step();
      }
      CHECK(numbers(net->parameters()) == numbers(alone->parameters()));
      ddp.check_weights();
    }
    // make_unique() makes the new one before the old one goes.
    auto optimizer = std::make_unique<Zero>(net->parameters(), options, ddp);
    optimizer = std::make_unique<Zero>(net->parameters(), options, ddp);
    net->zero_grad();
    loss_of(net, *group, 4).backward();
    CHECK(is_partial(net->head->bias.grad()));
    optimizer.reset();
    AdamW plain(net->parameters(), options);
    CHECK_THROWS_WITH_AS(plain.step(), doctest::Contains("ddp.gather_gradients()"), Error);
    ddp.gather_gradients();
    plain.step();
    plain.zero_grad();
    loss_of(net, *group, 5).backward();  // whole again
    nn::utils::clip_grad_norm_(net->parameters(), 1.0);
    plain.step();
    ddp.check_weights();
  });
}

TEST_CASE("an optimizer whose DistributedDataParallel is gone says so, and still gives its state") {
  on_ranks(2, [](const std::shared_ptr<ProcessGroup>& group) {
    PartlyUsedNet net;
    auto ddp = std::make_unique<DistributedDataParallel>(*net, DataParallelOptions{}, group);
    Zero optimizer(net->parameters(), optim::AdamWOptions(1e-2), *ddp);
    loss_of(net, *group, 0).backward();
    optimizer.step();
    optimizer.zero_grad();
    loss_of(net, *group, 0).backward();
    ddp.reset();
    CHECK_THROWS_WITH_AS(optimizer.step(), doctest::Contains("DistributedDataParallel is gone"),
                         Error);
    optimizer.consolidate_state();
    AdamW plain(net->parameters(), optim::AdamWOptions(1e-2));
    plain.load_state_dict(optimizer.state_dict());
    CHECK(state_numbers(plain) == state_numbers(optimizer));
  });
}

TEST_CASE("a Graph on the CPU, and a model whose buckets are smaller than the group") {
  on_ranks(4, [](const std::shared_ptr<ProcessGroup>& group) {
    nn::Linear net(3, 2), alone(3, 2);
    DistributedDataParallel ddp(*net, {.first_bucket_bytes = 1}, group);
    ddp.broadcast_weights();
    {
      const NoGradGuard no_grad;
      for (size_t i = 0; i < 2; ++i) alone->parameters()[i].copy_(net->parameters()[i]);
    }
    DistributedDataParallel other(*alone, {}, group);
    Zero optimizer(net->parameters(), optim::AdamWOptions(1e-2), ddp);
    AdamW plain(alone->parameters(), optim::AdamWOptions(1e-2));
    Graph graph(kCPU, [&] {
      optimizer.zero_grad();
      net->forward(full({2, 3}, group->rank() + 1.)).square().sum().backward();
      optimizer.step();
    });
    Graph of_plain(kCPU, [&] {
      plain.zero_grad();
      alone->forward(full({2, 3}, group->rank() + 1.)).square().sum().backward();
      plain.step();
    });
    for (int i = 0; i < 4; ++i) graph.replay(), of_plain.replay();
    ddp.check_weights();
    CHECK(numbers(net->parameters()) == numbers(alone->parameters()));
  });
}

TEST_CASE("a rank that updates nothing does not save a state without what the others have") {
  // All elements of the first parameter are rank 0's, and it has no gradient.
  for (const bool with_ddp : {false, true})
    on_ranks(2, [&](const std::shared_ptr<ProcessGroup>& group) {
      nn::ParameterList list(full({64}, 1.0).requires_grad_(), full({64}, 1.0).requires_grad_());
      std::unique_ptr<DistributedDataParallel> ddp;
      if (with_ddp)
        ddp = std::make_unique<DistributedDataParallel>(*list, DataParallelOptions{}, group);
      const optim::AdamWOptions options(1e-2);
      auto optimizer = with_ddp ? std::make_unique<Zero>(list->parameters(), options, *ddp)
                                : std::make_unique<Zero>(list->parameters(), options, group);
      optim::AdamW alone({full({64}, 1.0).requires_grad_()}, options);
      const auto step = [&] {
        for (optim::Optimizer* each : {static_cast<optim::Optimizer*>(&alone),
                                       static_cast<optim::Optimizer*>(optimizer.get())})
          each->zero_grad();
        (list->parameters()[1].square().sum()).backward();
        alone.param_groups()[0].params()[0].square().sum().backward();
        optimizer->step();
        alone.step();
      };
      const auto refused = doctest::Contains("consolidate_state()");
      for (int round = 0; round < 2; ++round) {  // the second time after a state that was whole
        step();
        CHECK_THROWS_WITH_AS((void)optimizer->state_dict(), refused, Error);
        optimizer->consolidate_state();
        CHECK(state_numbers(*optimizer) == state_numbers(alone));
      }
    });
}
