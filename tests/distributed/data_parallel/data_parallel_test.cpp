#include <doctest/doctest.h>
#include <halftape/halftape.h>

#include "halftape/tests/distributed/data_parallel/partly_used_net.h"
#include "halftape/tests/support/close.h"
#include "halftape/tests/support/thread_ranks.h"
#include "halftape/tests/support/waves.h"

using namespace halftape;
using namespace halftape::distributed;
using testing::differ;
using testing::fill_with_waves, testing::wave_rows;
using testing::numbers, testing::Numbers;
using testing::on_ranks;
namespace F = nn::functional;

namespace {

struct UnusedLayerNetImpl : nn::Module {
  explicit UnusedLayerNetImpl(int seed = 0, int64_t width = 12) {
    auto linear = [&](const char* name, int64_t in, int64_t out) {
      nn::Linear made(in, out);
      fill_with_waves(made->parameters(), seed);
      return register_module(name, made);
    };
    fc1 = linear("fc1", 6, width);
    fc2 = linear("fc2", width, width);
    unused = linear("unused", 3, 3);
    head = linear("head", width, 4);
  }
  Tensor forward(const Tensor& x) { return head(tanh(fc2(relu(fc1(x))))); }
  nn::Linear fc1{nullptr}, fc2{nullptr}, unused{nullptr}, head{nullptr};
};
HALFTAPE_MODULE(UnusedLayerNet);

Tensor inputs(int64_t step, int64_t rows) {
  return wave_rows(rows, static_cast<double>(step) * 1.7);
}
Tensor labels(int64_t step, int64_t rows) { return (arange(rows) * 3 + step) % 4; }

/// What this rank's rows of a batch cost.
Tensor loss_of(UnusedLayerNet& net, const ProcessGroup& group, int64_t step, int64_t rows = 16) {
  const Shard mine{group.rank(), group.size()};
  return F::cross_entropy(net->forward(mine.of(inputs(step, rows))), mine.of(labels(step, rows)));
}

/// What all rows cost: its gradients are the mean over the ranks.
Tensor whole_loss(UnusedLayerNet& net, int64_t step) {
  return F::cross_entropy(net->forward(inputs(step, 16)), labels(step, 16));
}

/// One step of SGD at 0.1 has moved the net by the gradients that a copy of it has from one
/// process.
void check_moved(const UnusedLayerNet& net, const UnusedLayerNet& alone) {
  const std::vector<Tensor> got = net->parameters(), from = alone->parameters();
  for (size_t i = 0; i < got.size(); ++i) {
    const Tensor before = from[i].detach(), g = from[i].grad();
    if (g.defined()) CHECK_FALSE(got[i].equal(before));
    CHECK(differ(got[i].detach(), g.defined() ? before - g * 0.1 : before,
                 {.eps = 16, .scale = 1}) == "");
  }
}

}  // namespace

TEST_CASE("gradients are the mean over the ranks, with every bucket size") {
  std::vector<std::vector<float>> wanted;
  on_ranks(1, [&](const auto&) {
    UnusedLayerNet net;
    whole_loss(net, 0).backward();
    for (const Tensor& p : net->parameters())
      wanted.push_back(p.grad().defined() ? p.grad().to_vector<float>() : std::vector<float>());
  });
  for (const int size : {2, 4})
    for (const int64_t bytes : {int64_t{1}, int64_t{300}, int64_t{1} << 20})
      for (const bool flat : {false, true})
        for (const bool overlap : {false, true}) {
          std::vector<std::vector<std::vector<float>>> all(static_cast<size_t>(size));
          on_ranks(size, [&](const std::shared_ptr<ProcessGroup>& group) {
            UnusedLayerNet net(group->rank());  // rank 0's weights count
            optim::SGD optimizer(net->parameters(), optim::SGDOptions(0.1));
            if (flat) optimizer.flatten();
            DistributedDataParallel ddp(
                *net, {.bucket_bytes = bytes, .first_bucket_bytes = bytes, .overlap = overlap},
                group);
            loss_of(net, *group, 0).backward();
            auto& mine = all[static_cast<size_t>(group->rank())];
            for (const Tensor& p : net->parameters())
              mine.push_back(p.grad().defined() ? p.grad().template to_vector<float>()
                                                : std::vector<float>());
            ddp.check_weights();
          });
          for (const auto& mine : all) {
            CHECK(mine == all[0]);
            REQUIRE(mine.size() == wanted.size());
            for (size_t i = 0; i < mine.size(); ++i) {
              REQUIRE(mine[i].size() == wanted[i].size());
              for (size_t k = 0; k < mine[i].size(); ++k)
                CHECK(mine[i][k] == doctest::Approx(wanted[i][k]).epsilon(1e-5).scale(1));
            }
          }
        }
}

TEST_CASE("the bits do not depend on buckets, flat storage or overlap") {
  Numbers first;
  for (const int64_t bytes : {int64_t{1}, int64_t{500}, int64_t{1} << 20})
    for (const bool flat : {false, true})
      on_ranks(3, [&](const std::shared_ptr<ProcessGroup>& group) {
        UnusedLayerNet net;
        optim::AdamW optimizer(net->parameters(), optim::AdamWOptions(1e-2));
        if (flat) optimizer.flatten();
        DistributedDataParallel ddp(*net, {.bucket_bytes = bytes, .first_bucket_bytes = bytes},
                                    group);
        for (int64_t step = 0; step < 5; ++step) {
          optimizer.zero_grad(step % 2 == 0);
          loss_of(net, *group, step, 12).backward();
          nn::utils::clip_grad_norm_(net->parameters(), 1.0);
          optimizer.step();
        }
        ddp.check_weights();
        if (group->rank() != 0) return;
        if (first.empty()) first = numbers(net->parameters());
        CHECK(numbers(net->parameters()) == first);
      });
}

TEST_CASE("the first bucket is full with a large last layer, whose bias does not go alone") {
  on_ranks(2, [](const std::shared_ptr<ProcessGroup>& group) {
    nn::Sequential model{nn::Linear(8, 8), nn::Linear(8, 8), nn::Linear(8, 64)};
    const auto buckets = [&](int64_t bytes) {
      return DistributedDataParallel(*model, {.bucket_bytes = bytes, .first_bucket_bytes = 1024},
                                     group)
          .buckets();
    };
    using Buckets = std::vector<std::vector<size_t>>;
    CHECK(buckets(int64_t{1} << 20) == Buckets{{4, 5}, {0, 1, 2, 3}});
    CHECK(buckets(288) == Buckets{{4, 5}, {2, 3}, {0, 1}});
    CHECK(buckets(1) == Buckets{{4, 5}, {3}, {2}, {1}, {0}});
  });
}

TEST_CASE("a large gradient is reduced where it lies, in a bucket of its own") {
  on_ranks(2, [](const std::shared_ptr<ProcessGroup>& group) {
    nn::Sequential model{nn::Linear(1024, 1024), nn::Linear(1024, 2)};
    const std::vector<Tensor> params = model->parameters();
    const void* at = nullptr;  // what backward() made, before it is reduced
    params[0].register_post_accumulate_grad_hook(
        [&](const Tensor& p) { at = p.grad().data_ptr(); });
    DistributedDataParallel ddp(*model, {}, group);
    CHECK(ddp.buckets() == std::vector<std::vector<size_t>>{{0}, {1, 2, 3}});
    for (const bool held : {false, true}) {
      const Tensor other = held ? params[0].grad() : Tensor();
      if (held) params[0].mutable_grad().zero_();
      model->forward(full({3, 1024}, 2 * group->rank() + 1.0)).sum().backward();
      CHECK(params[0].grad().data_ptr() == at);
      const Tensor wanted = params[2].sum(0).unsqueeze(1) * ones({1, 1024}) * 6;  // 3 · (1 + 3)/2
      CHECK(allclose(params[0].grad(), wanted, 1e-4, 1e-4));
    }
  });
}

TEST_CASE("gradients move to their bucket, unless somebody else holds them") {
  on_ranks(2, [](const std::shared_ptr<ProcessGroup>& group) {
    nn::Sequential model{nn::Linear(3, 4), nn::Linear(4, 2)};
    DistributedDataParallel ddp(*model, {}, group);
    const std::vector<Tensor> params = model->parameters();
    const auto backward = [&] {
      model->forward(ones({5, 3}) * static_cast<double>(group->rank() + 1)).sum().backward();
    };
    backward();
    Buffer* const whole = params[0].grad().array().buffer()->whole();
    REQUIRE(whole);
    std::vector<uint64_t> versions;
    for (const Tensor& p : params) {
      CHECK(p.grad().array().buffer()->whole() == whole);
      versions.push_back(p.grad().version());
    }
    params[1].mutable_grad().mul_(2);
    for (const size_t i : {0, 2, 3}) CHECK(params[i].grad().version() == versions[i]);
    // Where they lie, the next ones are added, and nothing moves.
    for (const Tensor& p : params) p.mutable_grad().zero_();
    backward();
    for (const Tensor& p : params) CHECK(p.grad().array().buffer()->whole() == whole);
    const std::vector<float> wanted = params[0].grad().to_vector<float>();

    for (const Tensor& p : params) p.mutable_grad() = zeros(p.sizes());
    const Tensor held = params[0].grad();
    backward();
    CHECK(params[0].grad().is_same(held));
    CHECK(held.to_vector<float>() == wanted);
    CHECK_FALSE(held.array().buffer()->whole());
    CHECK(params[2].grad().array().buffer()->whole());
  });
}

TEST_CASE("parameters that no longer fit their bucket are refused") {
  on_ranks(2, [](const std::shared_ptr<ProcessGroup>& group) {
    nn::Sequential model{nn::Linear(3, 4), nn::Linear(4, 2)};
    {
      const DistributedDataParallel ddp(*model, {}, group);
      model[0]->to(kFloat64);  // of the four in one bucket, two
      CHECK_THROWS_WITH_AS(model[1]->as<nn::Linear>()->weight.sum().backward(),
                           doctest::Contains("became [2, 4] of float32"), Error);
    }
    model->to(kFloat32);
    model->zero_grad();
    const DistributedDataParallel ddp(*model, {}, group);
    const Tensor& w = model[0]->as<nn::Linear>()->weight;
    w.set_data(ones({64, 3}));
    CHECK_THROWS_WITH_AS(w.sum().backward(), doctest::Contains("room for 32 elements"), Error);
  });
}

TEST_CASE("flat storage in another order than the model's") {
  for (const std::vector<size_t>& order :
       {std::vector<size_t>{0, 1, 2, 3}, {0, 2, 1, 3}, {3, 2, 1, 0}, {1, 0, 3, 2}})
    on_ranks(2, [&](const std::shared_ptr<ProcessGroup>& group) {
      nn::Sequential model{nn::Linear(6, 12), nn::Linear(12, 4)};
      const std::vector<Tensor> params = model->parameters();
      std::vector<Tensor> flat;
      for (const size_t i : order) flat.push_back(params[i]);
      optim::SGD optimizer(flat, optim::SGDOptions(0.1));
      optimizer.flatten();
      std::vector<Tensor> wanted;
      {
        DistributedDataParallel ddp(*model, {}, group);
        ddp.broadcast_weights();
      }
      const auto loss = [&] { return model->forward(inputs(group->rank(), 4)).square().sum(); };
      wanted = autograd::grad({loss()}, params);
      DistributedDataParallel ddp(*model, {}, group);
      loss().backward();
      for (size_t i = 0; i < params.size(); ++i) {
        group->all_reduce(wanted[i], ReduceOp::Avg);
        CHECK(params[i].grad().equal(wanted[i]));
      }
    });
}

TEST_CASE("a gradient on some ranks counts as zero on the others; on none it stays undefined") {
  on_ranks(2, [](const std::shared_ptr<ProcessGroup>& group) {
    UnusedLayerNet net;
    DistributedDataParallel ddp(*net, {}, group);
    Tensor loss = net->forward(inputs(0, 4)).sum();
    if (group->rank() == 1) loss = loss + net->unused(ones({2, 3})).sum();
    loss.backward();
    CHECK(net->unused->weight.grad().equal(full({3, 3}, 1.)));  // (0 + 2) / 2
    net->zero_grad();
    net->forward(inputs(0, 4)).sum().backward();
    CHECK_FALSE(net->unused->weight.grad().defined());
  });
}

TEST_CASE("no_sync adds up, the next backward reduces all, and a step between them is refused") {
  on_ranks(2, [](const std::shared_ptr<ProcessGroup>& group) {
    UnusedLayerNet net;
    optim::SGD optimizer(net->parameters(), optim::SGDOptions(0.1));
    DistributedDataParallel ddp(*net, {}, group);
    loss_of(net, *group, 0).backward();
    loss_of(net, *group, 1).backward();  // the mean of the mean and a new gradient
    const Tensor wanted = net->fc1->weight.grad().clone();
    optimizer.zero_grad();
    {
      const auto local = ddp.no_sync();
      loss_of(net, *group, 0).backward();
    }
    CHECK_THROWS_WITH_AS(optimizer.step(), doctest::Contains("under no_sync()"), Error);
    CHECK_THROWS_WITH_AS(nn::utils::clip_grad_norm_(net->parameters(), 1.0),
                         doctest::Contains("under no_sync()"), Error);
    loss_of(net, *group, 1).backward();
    const Tensor difference = (net->fc1->weight.grad() - wanted).abs().max();
    CHECK(difference.item<float>() < 1e-6);
    optimizer.step();
    ddp.check_weights();
    UnusedLayerNet alone;
    (whole_loss(alone, 0) + whole_loss(alone, 1)).backward();
    check_moved(net, alone);
  });
}

TEST_CASE("no_sync with a scaler") {
  on_ranks(2, [](const std::shared_ptr<ProcessGroup>& group) {
    UnusedLayerNet net;
    optim::SGD optimizer(net->parameters(), optim::SGDOptions(0.1));
    DistributedDataParallel ddp(*net, {}, group);
    amp::GradScaler scaler({.init_scale = 1024});
    {
      const auto local = ddp.no_sync();
      scaler.scale(loss_of(net, *group, 0)).backward();
      CHECK_THROWS_WITH_AS(scaler.unscale_(optimizer), doctest::Contains("under no_sync()"), Error);
    }
    scaler.scale(loss_of(net, *group, 1)).backward();
    CHECK(scaler.step(optimizer).applied());
    scaler.update();
    ddp.check_weights();
    UnusedLayerNet alone;
    (whole_loss(alone, 0) + whole_loss(alone, 1)).backward();
    check_moved(net, alone);
  });
}

TEST_CASE("a zeroed gradient that this rank adds nothing to, under no_sync with a scaler") {
  on_ranks(2, [](const std::shared_ptr<ProcessGroup>& group) {
    UnusedLayerNet net;
    optim::SGD optimizer(net->parameters(), optim::SGDOptions(0.1));
    DistributedDataParallel ddp(*net, {}, group);
    amp::GradScaler scaler({.init_scale = 1024});
    const auto loss = [&] {
      const Tensor all = loss_of(net, *group, 0);
      return group->rank() == 0 ? all + net->unused(ones({2, 3})).sum() : all;
    };
    scaler.scale(loss()).backward();
    optimizer.zero_grad(false);
    {
      const auto local = ddp.no_sync();
      scaler.scale(loss()).backward();
    }
    scaler.scale(loss()).backward();
    CHECK(scaler.step(optimizer).applied());
    ddp.check_weights();
    UnusedLayerNet alone;  // twice the mean loss, of which rank 0 alone has the second part
    (whole_loss(alone, 0) * 2 + alone->unused(ones({2, 3})).sum()).backward();
    check_moved(net, alone);
  });
}

TEST_CASE("reduced gradients keep the mark of a scaled loss") {
  for (const bool flat : {false, true})
    on_ranks(2, [&](const std::shared_ptr<ProcessGroup>& group) {
      UnusedLayerNet net;
      optim::SGD optimizer(net->parameters(), optim::SGDOptions(0.1)),
          other(net->unused->parameters(), optim::SGDOptions(0.1));
      if (flat) optimizer.flatten();
      DistributedDataParallel ddp(*net, {}, group);
      amp::GradScaler scaler({.init_scale = 1024});
      Tensor loss = loss_of(net, *group, 0);
      if (group->rank() == 1) loss = loss + net->unused(ones({2, 3})).sum();
      scaler.scale(loss).backward();
      CHECK_THROWS_WITH_AS(optimizer.step(), doctest::Contains("multiplied by the loss scale"),
                           Error);
      CHECK_THROWS_WITH_AS(other.step(), doctest::Contains("multiplied by the loss scale"), Error);
      CHECK(scaler.step(optimizer).applied());
    });
}

TEST_CASE("one rank's inf or NaN loss is the verdict of all") {
  for (const int bad : {0, 1, 2})
    for (const int kind : {0, 1})
      on_ranks(3, [&](const std::shared_ptr<ProcessGroup>& group) {
        UnusedLayerNet net;
        optim::AdamW optimizer(net->parameters(), optim::AdamWOptions(1e-2));
        DistributedDataParallel ddp(*net, {}, group);
        amp::GradScaler scaler({.init_scale = 65536});
        for (int64_t step = 0; step < 3; ++step) {
          optimizer.zero_grad();
          Tensor loss = loss_of(net, *group, step, 12);
          if (step == 1 && group->rank() == bad && kind == 0)
            loss = loss + NAN;  // its gradients are finite
          if (step == 1 && group->rank() == bad && kind == 1)
            net->head->weight.register_hook([](const Tensor& g) { return g * INFINITY; });
          scaler.scale(loss).backward();
          if (step == 0) scaler.unscale_(optimizer);
          const amp::StepResult result = scaler.step(optimizer);
          CHECK(result.applied() == (step != 1 && !(kind == 1 && step == 2)));
          if (step == 1) CHECK(result.bad_loss() == (kind == 0));
          scaler.update();
        }
        // A bad loss leaves the scale as it is; overflows halve it.
        CHECK(scaler.get_scale() == (kind == 0 ? 65536 : 16384));
        CHECK(scaler.stats().bad_losses == (kind == 0 ? 1 : 0));
        ddp.check_weights();
      });
}

TEST_CASE("scalers with other scales are refused by name") {
  on_ranks(2, [](const std::shared_ptr<ProcessGroup>& group) {
    UnusedLayerNet net;
    optim::SGD optimizer(net->parameters(), optim::SGDOptions(0.1));
    DistributedDataParallel ddp(*net, {}, group);
    amp::GradScaler scaler({.init_scale = group->rank() == 0 ? 1024. : 2048.});
    scaler.scale(loss_of(net, *group, 0)).backward();
    CHECK_THROWS_WITH_AS(scaler.step(optimizer), doctest::Contains("the ranks by 1024 to 2048"),
                         Error);
  });
}

TEST_CASE("other models are refused on all ranks, with the first difference") {
  on_ranks(3, [](const std::shared_ptr<ProcessGroup>& group) {
    UnusedLayerNet net(0, group->rank() == 2 ? 13 : 12);
    CHECK_THROWS_WITH_AS(
        DistributedDataParallel(*net, {}, group),
        doctest::Contains("the models of ranks 0 and 2 differ: rank 0 has \"fc1.weight: float32 "
                          "[12, 6]\", rank 2 has \"fc1.weight: float32 [13, 6]\""),
        Error);
    UnusedLayerNet same;
    CHECK_THROWS_WITH_AS(
        DistributedDataParallel(*same, {.overlap = group->rank() != 1}, group),
        doctest::Contains(
            "overlap 1, average_buffers 1, shards 3, summation Tree\", rank 1 has \"options:"),
        Error);
  });
}

TEST_CASE("a weight that was changed on one rank is found") {
  on_ranks(2, [](const std::shared_ptr<ProcessGroup>& group) {
    UnusedLayerNet net;
    DistributedDataParallel ddp(*net, {}, group);
    {
      const NoGradGuard no_grad;
      if (group->rank() == 1) net->fc2->bias.add_(1e-7);
    }
    CHECK_THROWS_WITH_AS(ddp.check_weights(),
                         doctest::Contains("other numbers than rank 0 in "
                                           "fc2.bias"),
                         Error);
    ddp.broadcast_weights(1);
    ddp.check_weights();
  });
}

TEST_CASE(
    "a gradient that grows after its bucket was sent is an error, and works without overlap") {
  for (const bool overlap : {true, false})
    on_ranks(2, [&](const std::shared_ptr<ProcessGroup>& group) {
      UnusedLayerNet net;
      DistributedDataParallel ddp(*net, {.first_bucket_bytes = 1, .overlap = overlap}, group);
      const auto twice = [&] {
        const Tensor h = relu(net->fc1(inputs(0, 4)));
        h.register_hook([&](const Tensor&) {
          const AutoGradMode recording(true);
          net->head(ones({1, 12})).sum().backward();
        });
        net->head(h).sum().backward();
      };
      if (overlap)
        CHECK_THROWS_WITH_AS(twice(), doctest::Contains(".overlap = false"), Error);
      else
        twice();
    });
}
