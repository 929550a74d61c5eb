// DistributedDataParallel with the other ways of training: every rank ends with the same weights,
// those that one process with the mean gradient has.
#include <doctest/doctest.h>
#include <halftape/halftape.h>

#include <stdexcept>

#include "halftape/tests/support/close.h"
#include "halftape/tests/support/thread_ranks.h"
#include "halftape/tests/support/waves.h"

using namespace halftape;
using namespace halftape::distributed;
using testing::fill_with_waves, testing::wave_rows;
using testing::on_ranks;
using testing::relative_distance;
namespace F = nn::functional;

namespace {

Tensor inputs_of(int64_t step, int rank) {
  return wave_rows(8, static_cast<double>(step * 3 + rank));
}
Tensor labels_of(int64_t step) { return (arange(8) * 3 + step) % 4; }

nn::Sequential make_model() {
  nn::Sequential model{nn::Linear(6, 16), nn::ReLU(), nn::Linear(16, 4)};
  fill_with_waves(model->parameters());
  return model;
}

/// What both ranks have, for a copy of the model that trains alone: the gradients of the mean loss
/// over all of it are the mean over the ranks.
Tensor inputs_of_both(int64_t step) { return cat({inputs_of(step, 0), inputs_of(step, 1)}); }
Tensor labels_of_both(int64_t step) { return cat({labels_of(step), labels_of(step)}); }

std::vector<Tensor> values_of(const std::vector<Tensor>& tensors) {
  std::vector<Tensor> copies;
  for (const Tensor& t : tensors) copies.push_back(t.detach().clone());
  return copies;
}

/// From `first` on, `got` has gone the way of the copy that trained alone: it is off by at most
/// `eps` of the dtype's epsilons, relative to how far each parameter has gone.
void check_trained(const std::vector<Tensor>& got, const std::vector<Tensor>& alone,
                   const std::vector<Tensor>& first, double eps, Dtype dtype = kFloat32) {
  REQUIRE(got.size() == alone.size());
  for (size_t i = 0; i < got.size(); ++i) {
    const Tensor from = first[i].to(kFloat64), way = alone[i].detach().to(kFloat64) - from;
    CHECK(way.norm().item<double>() > 1e-3);
    CHECK(relative_distance(got[i].detach().to(kFloat64) - from, way) <= eps * epsilon(dtype));
  }
}

}  // namespace

TEST_CASE("an AsyncOptimizer and its scaler: reduced before the hand-over, one verdict") {
  const auto train = [](nn::Sequential& model, amp::AsyncGradScaler& scaler, const auto& loss_at) {
    optim::AsyncOptimizer optimizer(
        std::make_unique<optim::AdamW>(model->parameters(), optim::AdamWOptions(1e-2)));
    for (int64_t step = 0; step < 8; ++step) {
      scaler.scale(loss_at(step)).backward();
      scaler.step(optimizer, {.max_norm = 1});
      scaler.update();
    }
    CHECK(scaler.stats().bad_losses == 1);
    CHECK(scaler.stats().skips == 1);
    CHECK(scaler.get_scale(true) == 4096);
    optimizer.synchronize();
  };
  amp::GradScalerOptions options;
  options.init_scale = 4096;
  for (const amp::ScaleDelivery delivery : {amp::ScaleDelivery::Prompt, amp::ScaleDelivery::Late}) {
    nn::Sequential alone = make_model();
    const std::vector<Tensor> first = values_of(alone->parameters());
    amp::AsyncGradScaler of_alone(options, delivery);
    train(alone, of_alone, [&](int64_t step) {
      const Tensor loss =
          F::cross_entropy(alone->forward(inputs_of_both(step)), labels_of_both(step));
      return step == 3 ? loss * NAN : loss;
    });
    on_ranks(2, [&](const std::shared_ptr<ProcessGroup>& group) {
      nn::Sequential model = make_model();
      DistributedDataParallel ddp(*model, {}, group);
      amp::AsyncGradScaler scaler(options, delivery);
      train(model, scaler, [&](int64_t step) {
        const Tensor loss =
            F::cross_entropy(model->forward(inputs_of(step, group->rank())), labels_of(step));
        return step == 3 && group->rank() == 1 ? loss * NAN : loss;
      });
      ddp.check_weights();
      check_trained(model->parameters(), alone->parameters(), first, 1024);
    });
  }
}

TEST_CASE("FusedMLP, whose gradients are computed in forward") {
  const auto train = [](nn::FusedMLP& model, optim::Optimizer& optimizer, const auto& x,
                        const auto& y) {
    amp::GradScaler scaler({.init_scale = 1024});
    for (int64_t step = 0; step < 5; ++step) {
      optimizer.zero_grad();
      Tensor loss;
      {
        const amp::autocast region(kCPU, kFloat16);
        loss = model->loss(x(step), y(step), scaler.factor());
      }
      scaler.scale(loss).backward();
      CHECK(scaler.step(optimizer).applied());
      scaler.update();
    }
  };
  nn::FusedMLP alone(nn::FusedMLPOptions(6, 16, 2, 4));
  fill_with_waves(alone->parameters());
  const std::vector<Tensor> first = values_of(alone->parameters());
  optim::AdamW of_alone(alone->parameters(), optim::AdamWOptions(1e-2));
  train(alone, of_alone, inputs_of_both, labels_of_both);
  on_ranks(2, [&](const std::shared_ptr<ProcessGroup>& group) {
    nn::FusedMLP model(nn::FusedMLPOptions(6, 16, 2, 4));
    fill_with_waves(model->parameters());
    optim::AdamW optimizer(model->parameters(), optim::AdamWOptions(1e-2));
    optimizer.flatten();
    DistributedDataParallel ddp(*model, {}, group);
    train(
        model, optimizer, [&](int64_t step) { return inputs_of(step, group->rank()); }, labels_of);
    ddp.check_weights();
    check_trained(model->parameters(), alone->parameters(), first, 32, kFloat16);
  });
}

TEST_CASE("a Graph, which calls the step on the CPU") {
  nn::Sequential alone = make_model();
  const std::vector<Tensor> first = values_of(alone->parameters());
  optim::SGD of_alone(alone->parameters(), optim::SGDOptions(1e-1));
  for (int64_t step = 0; step < 5; ++step) {
    of_alone.zero_grad();
    F::cross_entropy(alone->forward(inputs_of_both(step)), labels_of_both(step)).backward();
    of_alone.step();
  }
  on_ranks(2, [&](const std::shared_ptr<ProcessGroup>& group) {
    nn::Sequential model = make_model();
    optim::SGD optimizer(model->parameters(), optim::SGDOptions(1e-1));
    DistributedDataParallel ddp(*model, {}, group);
    int64_t step = 0;
    Graph graph(kCPU, [&] {
      optimizer.zero_grad();
      F::cross_entropy(model->forward(inputs_of(step, group->rank())), labels_of(step)).backward();
      optimizer.step();
      ++step;
    });
    while (step < 5) graph.replay();
    ddp.check_weights();
    check_trained(model->parameters(), alone->parameters(), first, 1024);
  });
}

TEST_CASE("weights of 16 bits with a master, and Kahan's sum") {
  for (const optim::Weights weights : {optim::Weights::Master, optim::Weights::Kahan}) {
    const auto options = optim::AdamWOptions(1e-2).weights(weights);
    const auto train = [&](nn::Sequential& model, const auto& x, const auto& y) {
      optim::AdamW optimizer(model->parameters(), options);
      for (int64_t step = 0; step < 5; ++step) {
        optimizer.zero_grad();
        F::cross_entropy(model->forward(x(step).to(kBFloat16)), y(step)).backward();
        optimizer.step();
      }
    };
    nn::Sequential alone = make_model();
    alone->to(kBFloat16);
    const std::vector<Tensor> first = values_of(alone->parameters());
    train(alone, inputs_of_both, labels_of_both);
    on_ranks(2, [&](const std::shared_ptr<ProcessGroup>& group) {
      nn::Sequential model = make_model();
      model->to(kBFloat16);
      DistributedDataParallel ddp(*model, {}, group);
      train(
          model, [&](int64_t step) { return inputs_of(step, group->rank()); }, labels_of);
      ddp.check_weights();
      check_trained(model->parameters(), alone->parameters(), first, 32, kBFloat16);
    });
  }
}

TEST_CASE("LBFGS with a closure, whose loss is the mean over the ranks") {
  const auto train = [](nn::Sequential& model, const Tensor& x, const Tensor& y,
                        const auto& over_ranks) {
    optim::LBFGS optimizer(model->parameters(), optim::LBFGSOptions(0.1).max_iter(4));
    for (int64_t step = 0; step < 3; ++step)
      optimizer.step([&] {
        optimizer.zero_grad();
        const Tensor loss = F::cross_entropy(model->forward(x), y);
        loss.backward();
        const Tensor mean = loss.detach().clone();
        over_ranks(mean);
        return mean;
      });
  };
  nn::Sequential alone = make_model();
  const std::vector<Tensor> first = values_of(alone->parameters());
  train(alone, inputs_of_both(0), labels_of_both(0), [](const Tensor&) {});
  on_ranks(2, [&](const std::shared_ptr<ProcessGroup>& group) {
    nn::Sequential model = make_model();
    DistributedDataParallel ddp(*model, {}, group);
    train(model, inputs_of(0, group->rank()), labels_of(0),
          [&](const Tensor& loss) { group->all_reduce(loss, ReduceOp::Avg); });
    ddp.check_weights();
    // Its directions come from differences of gradients, which have fewer digits.
    check_trained(model->parameters(), alone->parameters(), first, 8192);
  });
}

TEST_CASE("two models of one group, as of a GAN, with two optimizers and one scaler") {
  struct Pair {
    nn::Sequential a = make_model(), b = make_model();
    Pair() { fill_with_waves(b->parameters(), 7); }  // other weights than a's
    std::vector<Tensor> parameters() const {
      std::vector<Tensor> both = a->parameters();
      for (const Tensor& p : b->parameters()) both.push_back(p);
      return both;
    }
    Tensor loss(const Tensor& x) { return (a->forward(x) * b->forward(x)).sum(); }
  };
  const auto train = [](Pair& pair, const auto& loss_at) {
    optim::Adam of_a(pair.a->parameters(), optim::AdamOptions(1e-2)),
        of_b(pair.b->parameters(), optim::AdamOptions(1e-2));
    amp::GradScaler scaler({.init_scale = 1024});
    for (int64_t step = 0; step < 5; ++step) {
      of_a.zero_grad();
      of_b.zero_grad();
      scaler.scale(loss_at(step)).backward();
      CHECK(scaler.step(of_a).applied() == (step != 2));
      CHECK(scaler.step(of_b).applied() == (step != 2));
      scaler.update();
    }
    CHECK(scaler.get_scale() == 1024);
  };
  Pair alone;
  const std::vector<Tensor> first = values_of(alone.parameters());
  train(alone, [&](int64_t step) {  // the mean over the ranks of their sums
    return alone.loss(inputs_of_both(step)) * (step == 2 ? NAN : 0.5);
  });
  on_ranks(2, [&](const std::shared_ptr<ProcessGroup>& group) {
    Pair pair;
    DistributedDataParallel ddp_of_a(*pair.a, {}, group), ddp_of_b(*pair.b, {}, group);
    train(pair, [&](int64_t step) {
      const Tensor loss = pair.loss(inputs_of(step, group->rank()));
      return step == 2 && group->rank() == 0 ? loss * NAN : loss;
    });
    ddp_of_a.check_weights();
    ddp_of_b.check_weights();
    check_trained(pair.parameters(), alone.parameters(), first, 1024);
  });
}

TEST_CASE("a model that changes its dtype under a DistributedDataParallel") {
  const auto two_steps = [](nn::Sequential& model, const Tensor& x, double share) {
    optim::SGD optimizer(model->parameters(), optim::SGDOptions(0.5));
    for (int64_t step = 0; step < 2; ++step) {
      optimizer.zero_grad();
      (model->forward(x).sum() * share).backward();
      optimizer.step();
    }
  };
  on_ranks(2, [&](const std::shared_ptr<ProcessGroup>& group) {
    nn::Sequential model{nn::Linear(3, 4), nn::Linear(4, 2)},
        alone{nn::Linear(3, 4), nn::Linear(4, 2)};
    fill_with_waves(model->parameters());
    fill_with_waves(alone->parameters());
    DistributedDataParallel ddp(*model, {}, group);
    for (const Dtype dtype : {kFloat64, kBFloat16}) {
      model->to(dtype);
      alone->to(dtype);
      const std::vector<Tensor> first = values_of(alone->parameters());
      const Tensor x = ones({5, 3}, dtype);
      two_steps(model, x * static_cast<double>(group->rank() + 1), 1);
      two_steps(alone, cat({x, x * 2.}), 0.5);
      ddp.check_weights();
      check_trained(model->parameters(), alone->parameters(), first, 32, dtype);
    }
  });
}

TEST_CASE("a model of which a part was frozen, and one whose parallel training has ended") {
  on_ranks(2, [&](const std::shared_ptr<ProcessGroup>& group) {
    nn::Sequential model = make_model();
    const Tensor frozen = model->parameters()[0], of_rank_0 = frozen.detach().clone();
    frozen.set_requires_grad(false);
    if (group->rank() == 1) frozen.fill_(7);  // taken from rank 0, too
    {
      DistributedDataParallel ddp(*model, {}, group);
      CHECK(frozen.equal(of_rank_0));
      model->forward(inputs_of(0, group->rank())).sum().backward();
      CHECK_FALSE(frozen.grad().defined());
      ddp.check_weights();
      if (group->rank() == 1) frozen.add_(1);
      CHECK_THROWS_WITH_AS(ddp.check_weights(),
                           doctest::Contains("rank 1 has other numbers than rank 0 in 0.weight: "
                                             "float32 [16, 6], frozen"),
                           Error);
      ddp.broadcast_weights();
      CHECK(frozen.equal(of_rank_0));
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
      return F::cross_entropy(model->forward(inputs_of(0, group->rank())), labels_of(0));
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
