// DistributedDataParallel with the other ways of training: every rank ends with the same weights,
// those that one process with the mean gradient has.
#include <doctest/doctest.h>
#include <halftape/halftape.h>

#include <stdexcept>

#include "halftape/tests/support/thread_ranks.h"
#include "halftape/tests/support/waves.h"

using namespace halftape;
using namespace halftape::distributed;
using testing::fill_with_waves, testing::wave_rows;
using testing::on_ranks;
namespace F = nn::functional;

namespace {

Tensor inputs_of(int64_t step, int rank) {
  return wave_rows(8, static_cast<double>(step * 3 + rank));
}
Tensor labels(int64_t step) { return (arange(8) * 3 + step) % 4; }

nn::Sequential make_model() {
  nn::Sequential model{nn::Linear(6, 16), nn::ReLU(), nn::Linear(16, 4)};
  fill_with_waves(model->parameters());
  return model;
}

}  // namespace

TEST_CASE("an AsyncOptimizer and its scaler: reduced before the hand-over, one verdict") {
  for (const amp::ScaleDelivery delivery : {amp::ScaleDelivery::Prompt, amp::ScaleDelivery::Late})
    on_ranks(2, [&](const std::shared_ptr<ProcessGroup>& group) {
      nn::Sequential model = make_model();
      DistributedDataParallel ddp(*model, {}, group);
      amp::GradScalerOptions options;
      options.init_scale = 4096;
      amp::AsyncGradScaler scaler(options, delivery);
      {
        optim::AsyncOptimizer optimizer(
            std::make_unique<optim::AdamW>(model->parameters(), optim::AdamWOptions(1e-2)));
        for (int64_t step = 0; step < 8; ++step) {
          Tensor loss =
              F::cross_entropy(model->forward(inputs_of(step, group->rank())), labels(step));
          if (step == 3 && group->rank() == 1) loss = loss * NAN;
          scaler.scale(loss).backward();
          scaler.step(optimizer, {.max_norm = 1});
          scaler.update();
        }
        CHECK(scaler.stats().bad_losses == 1);
        CHECK(scaler.stats().skips == 1);
        CHECK(scaler.get_scale(true) == 4096);
        optimizer.synchronize();
      }
      ddp.check_weights();
    });
}

TEST_CASE("FusedMLP, whose gradients are computed in forward") {
  on_ranks(2, [&](const std::shared_ptr<ProcessGroup>& group) {
    nn::FusedMLP model(nn::FusedMLPOptions(6, 16, 2, 4));
    optim::AdamW optimizer(model->parameters(), optim::AdamWOptions(1e-2));
    optimizer.flatten();
    DistributedDataParallel ddp(*model, {}, group);
    amp::GradScaler scaler({.init_scale = 1024});
    for (int64_t step = 0; step < 5; ++step) {
      optimizer.zero_grad();
      Tensor loss;
      {
        const amp::autocast region(kCPU, kFloat16);
        loss = model->loss(inputs_of(step, group->rank()), labels(step), scaler.factor());
      }
      scaler.scale(loss).backward();
      CHECK(scaler.step(optimizer).applied());
      scaler.update();
    }
    ddp.check_weights();
  });
}

TEST_CASE("a Graph, which calls the step on the CPU") {
  on_ranks(2, [&](const std::shared_ptr<ProcessGroup>& group) {
    nn::Sequential model = make_model();
    optim::SGD optimizer(model->parameters(), optim::SGDOptions(1e-1));
    DistributedDataParallel ddp(*model, {}, group);
    int64_t step = 0;
    Graph graph(kCPU, [&] {
      optimizer.zero_grad();
      F::cross_entropy(model->forward(inputs_of(step, group->rank())), labels(step)).backward();
      optimizer.step();
      ++step;
    });
    while (step < 5) graph.replay();
    ddp.check_weights();
  });
}

TEST_CASE("weights of 16 bits with a master, Kahan's sum, and LBFGS with a closure") {
  for (const optim::Weights weights : {optim::Weights::Master, optim::Weights::Kahan})
    on_ranks(2, [&](const std::shared_ptr<ProcessGroup>& group) {
      nn::Sequential model = make_model();
      model->to(kBFloat16);
      optim::AdamW optimizer(model->parameters(), optim::AdamWOptions(1e-2).weights(weights));
      DistributedDataParallel ddp(*model, {}, group);
      for (int64_t step = 0; step < 5; ++step) {
        optimizer.zero_grad();
        F::cross_entropy(model->forward(inputs_of(step, group->rank()).to(kBFloat16)), labels(step))
            .backward();
        optimizer.step();
      }
      ddp.check_weights();
    });
  on_ranks(2, [&](const std::shared_ptr<ProcessGroup>& group) {
    nn::Sequential model = make_model();
    optim::LBFGS optimizer(model->parameters(), optim::LBFGSOptions(0.1).max_iter(4));
    DistributedDataParallel ddp(*model, {}, group);
    for (int64_t step = 0; step < 3; ++step)
      optimizer.step([&] {
        optimizer.zero_grad();
        const Tensor loss =
            F::cross_entropy(model->forward(inputs_of(0, group->rank())), labels(0));
        loss.backward();
        const Tensor mean = loss.detach().clone();
        group->all_reduce(mean, ReduceOp::Avg);
        return mean;
      });
    ddp.check_weights();
  });
}

TEST_CASE("two models of one group, as of a GAN, with two optimizers and one scaler") {
  on_ranks(2, [&](const std::shared_ptr<ProcessGroup>& group) {
    nn::Sequential a = make_model(), b = make_model();
    optim::Adam of_a(a->parameters(), optim::AdamOptions(1e-2)),
        of_b(b->parameters(), optim::AdamOptions(1e-2));
    DistributedDataParallel first(*a, {}, group), second(*b, {}, group);
    amp::GradScaler scaler({.init_scale = 1024});
    for (int64_t step = 0; step < 5; ++step) {
      of_a.zero_grad();
      of_b.zero_grad();
      const Tensor x = inputs_of(step, group->rank());
      Tensor loss = (a->forward(x) * b->forward(x)).sum();
      if (step == 2 && group->rank() == 0) loss = loss * NAN;
      scaler.scale(loss).backward();
      CHECK(scaler.step(of_a).applied() == (step != 2));
      CHECK(scaler.step(of_b).applied() == (step != 2));
      scaler.update();
    }
    CHECK(scaler.get_scale() == 1024);
    first.check_weights();
    second.check_weights();
  });
}

TEST_CASE("a model of which a part was frozen, and one whose parallel training has ended") {
  on_ranks(2, [&](const std::shared_ptr<ProcessGroup>& group) {
    nn::Sequential model = make_model();
    model->parameters()[0].set_requires_grad(false);
    if (group->rank() == 1) {
      const NoGradGuard no_grad;
      model->parameters()[0].fill_(7);  // taken from rank 0, too
    }
    {
      DistributedDataParallel ddp(*model, {}, group);
      model->forward(inputs_of(0, group->rank())).sum().backward();
      ddp.check_weights();
    }
    model->zero_grad();
    model->forward(inputs_of(0, group->rank())).sum().backward();  // this rank's alone
    const Tensor g = model->parameters()[1].grad().clone(), both = empty({2, 16});
    group->all_gather_into_tensor(both, g);
    CHECK_FALSE(both.select(0, 0).equal(both.select(0, 1)));
  });
}

TEST_CASE("scaled and unscaled losses that were added under no_sync are no gradient of a step") {
  on_ranks(2, [&](const std::shared_ptr<ProcessGroup>& group) {
    nn::Sequential model = make_model();
    optim::SGD optimizer(model->parameters(), optim::SGDOptions(1e-1));
    DistributedDataParallel ddp(*model, {}, group);
    amp::GradScaler scaler({.init_scale = 1024});
    const auto loss = [&] { return model->forward(inputs_of(0, group->rank())).sum(); };
    for (const bool first : {true, false}) {
      {
        const auto local = ddp.no_sync();
        (first ? scaler.scale(loss()) : loss()).backward();
        (first ? loss() : scaler.scale(loss())).backward();
      }
      scaler.scale(loss()).backward();
      CHECK_THROWS_WITH_AS(scaler.step(optimizer),
                           doctest::Contains("that was not scaled were added"), Error);
      optimizer.zero_grad();
    }
    scaler.scale(loss()).backward();
    CHECK(scaler.step(optimizer).applied());
    ddp.check_weights();
  });
}

TEST_CASE("a bucket has parameters of one dtype, and may have a large one of an odd size") {
  using Buckets = std::vector<std::vector<size_t>>;
  on_ranks(2, [&](const std::shared_ptr<ProcessGroup>& group) {
    nn::Sequential model{nn::Linear(3, 3), nn::Linear(3, 3), nn::Linear(3, 2)};
    model[1]->to(kFloat64);
    DistributedDataParallel ddp(*model, {}, group);
    CHECK(ddp.buckets() == Buckets{{4, 5}, {2, 3}, {0, 1}});
    Tensor loss = zeros({}, kFloat64);
    for (const Tensor& p : model->parameters()) loss = loss + p.sum().to(kFloat64);
    (loss * (group->rank() + 1.)).backward();
    for (const Tensor& p : model->parameters())
      CHECK(p.grad().equal(full(p.sizes(), 1.5, p.dtype())));
    nn::Linear odd(1025, 1025);
    DistributedDataParallel of_odd(*odd, {}, group);
    CHECK(of_odd.buckets() == Buckets{{0, 1}});
  });
}

TEST_CASE("gradients that a user has put in place, and such with a history") {
  on_ranks(2, [&](const std::shared_ptr<ProcessGroup>& group) {
    nn::Linear model(3, 3);
    const Tensor weight = model->weight, bias = model->bias;
    DistributedDataParallel ddp(*model, {}, group);
    // What backward() does not reach takes part as it is, and becomes a gradient like others.
    for (const Tensor& own : {ones({1}).expand({3}), ones({3}, kFloat64),
                              ones({6}).slice(0, 0, 6, 2), ones({3}).requires_grad_() * 1}) {
      model->zero_grad();
      bias.mutable_grad() = own * 1. * (group->rank() + 1);
      if (own.strides() == Dims{0}) bias.mutable_grad() = full({1}, group->rank() + 1.).expand({3});
      weight.sum().backward();
      CHECK(bias.grad().detach().equal(full({3}, 1.5)));
      CHECK(bias.grad().dtype() == kFloat32);
      CHECK_FALSE(bias.grad().requires_grad());
    }
    model->zero_grad();
    bias.mutable_grad() = ones({5});
    CHECK_THROWS_WITH_AS(
        weight.sum().backward(),
        doctest::Contains("a gradient of shape [5] on cpu for a parameter of shape [3]"), Error);
    // The reduced gradients would have no history, so only this rank's own may have one.
    const auto loss = [&] { return weight.square().sum() * (group->rank() + 1.); };
    model->zero_grad();
    CHECK_THROWS_WITH_AS(loss().backward({}, true, true),
                         doctest::Contains("backward(create_graph = true) would lose"), Error);
    CHECK_THROWS_WITH_AS(nn::utils::clip_grad_norm_(weight, 1.0),
                         doctest::Contains("or one that failed"), Error);
    model->zero_grad();
    {
      const auto local = ddp.no_sync();
      loss().backward({}, true, true);
      CHECK(weight.grad().requires_grad());
    }
    loss().backward();
    CHECK_FALSE(weight.grad().requires_grad());
    CHECK(weight.grad().equal(weight.detach() * 6));
    ddp.check_weights();
  });
}

TEST_CASE("what a DistributedDataParallel is not made of, and no rank to take weights from") {
  on_ranks(2, [&](const std::shared_ptr<ProcessGroup>& group) {
    nn::Sequential model = make_model();
    for (const DataParallelOptions& wrong :
         {DataParallelOptions{.bucket_bytes = 0}, DataParallelOptions{.first_bucket_bytes = -1}})
      CHECK_THROWS_WITH_AS(DistributedDataParallel(*model, wrong, group),
                           doctest::Contains("bytes; both must be positive"), Error);
    nn::Linear frozen(2, 2);
    for (const Tensor& p : frozen->parameters()) p.set_requires_grad(false);
    CHECK_THROWS_WITH_AS(DistributedDataParallel(*frozen, {}, group),
                         doctest::Contains("no parameter that requires grad"), Error);
    DistributedDataParallel ddp(*model, {}, group);
    for (const int rank : {-1, 2})
      CHECK_THROWS_WITH_AS(ddp.broadcast_weights(rank), doctest::Contains("in a group of 2"),
                           Error);
    CHECK_THROWS_WITH_AS(DistributedDataParallel(*model, {}), doctest::Contains("no default group"),
                         Error);
  });
}

TEST_CASE_TEMPLATE("broadcast_scaler takes the state of one rank", Scaler, amp::GradScaler,
                   amp::AsyncGradScaler) {
  on_ranks(3, [](const std::shared_ptr<ProcessGroup>& group) {
    nn::Sequential model = make_model();
    DistributedDataParallel ddp(*model, {}, group);
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
      CHECK_THROWS_WITH_AS(ddp.broadcast_scaler(mixed), doctest::Contains("rank 0 is enabled"),
                           Error);
    else
      ddp.broadcast_scaler(mixed);
  });
}

TEST_CASE("after a backward() that failed the gradients are this rank's alone") {
  on_ranks(2, [](const std::shared_ptr<ProcessGroup>& group) {
    nn::Sequential model = make_model();
    const std::vector<Tensor> parameters = model->parameters();
    optim::SGD optimizer(parameters, optim::SGDOptions(0.1));
    DistributedDataParallel ddp(*model, {}, group);
    int arrived = 0;
    for (const Tensor& p : parameters)
      p.register_post_accumulate_grad_hook([&arrived](const Tensor&) {
        if (++arrived == 3) throw std::runtime_error("a bad batch");
      });
    const auto loss = [&] {
      return F::cross_entropy(model->forward(inputs_of(0, group->rank())), labels(0));
    };
    const Tensor before = parameters[0].detach().clone();
    CHECK_THROWS_WITH(loss().backward(), "a bad batch");
    CHECK_THROWS_WITH_AS(optimizer.step(), doctest::Contains("or one that failed"), Error);
    CHECK_THROWS_WITH_AS(nn::utils::clip_grad_norm_(parameters, 1.0),
                         doctest::Contains("or one that failed"), Error);
    CHECK(parameters[0].equal(before));
    optimizer.zero_grad();
    loss().backward();
    optimizer.step();
    CHECK_FALSE(parameters[0].equal(before));
    ddp.check_weights();
  });
}
