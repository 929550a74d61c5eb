// The same bits for any number of ranks.
#include <doctest/doctest.h>
#include <halftape/halftape.h>

#include "halftape/tests/support/printed.h"
#include "halftape/tests/support/thread_ranks.h"
#include "halftape/tests/support/waves.h"

using namespace halftape;
using namespace halftape::distributed;
using testing::fill_with_waves, testing::wave_rows;
using testing::on_ranks;
using testing::printed;
namespace F = nn::functional;

namespace {

struct NormNetImpl : nn::Module {
  NormNetImpl() { fill_with_waves(parameters()); }
  Tensor forward(const Tensor& x) { return head(drop(relu(norm(fc(x))))); }
  nn::Linear fc = register_module("fc", nn::Linear(6, 10));
  nn::BatchNorm1d norm = register_module("norm", nn::BatchNorm1d(10));
  nn::Dropout drop = register_module("drop", nn::Dropout(0.5));
  nn::Linear head = register_module("head", nn::Linear(10, 4));
};
HALFTAPE_MODULE(NormNet);

struct EndOfShards {
  std::vector<std::vector<float>> weights;
  double scale = 0;
  std::string stats;
  bool operator==(const EndOfShards&) const = default;
};

/// 100 AMP steps with a gradient that overflows now and then, and a NaN loss in one shard.
EndOfShards train(int size, int64_t shards, Dtype low, bool flat) {
  EndOfShards end;
  on_ranks(size, [&](const std::shared_ptr<ProcessGroup>& group) {
    NormNet net;
    optim::AdamW optimizer(net->parameters(), optim::AdamWOptions(1e-2));
    if (flat) optimizer.flatten();
    DistributedDataParallel ddp(*net, {.shards = shards}, group);
    amp::GradScaler scaler({.init_scale = 65536.0 * 64, .growth_interval = 7});
    for (uint64_t step = 0; step < 100; ++step) {
      const Tensor x = wave_rows(48, static_cast<double>(step)),
                   y = (arange(48) * 3 + static_cast<int64_t>(step)) % 4;
      optimizer.zero_grad();
      for (const Shard shard : ddp.shards(step)) {
        Tensor loss;
        {
          const amp::autocast region(kCPU, low);
          loss = F::cross_entropy(net->forward(shard.of(x)), shard.of(y));
        }
        if (step == 40 && shard.index == shards - 1)
          loss = loss * std::numeric_limits<double>::quiet_NaN();
        scaler.scale(loss).backward();
      }
      scaler.unscale_(optimizer);
      nn::utils::clip_grad_norm_(net->parameters(), 1.0);
      scaler.step(optimizer);
      scaler.update();
    }
    ddp.check_weights();
    if (group->rank() != 0) return;
    for (const Tensor& t : net->parameters())
      end.weights.push_back(t.detach().template to_vector<float>());
    for (const Tensor& t : net->buffers())
      end.weights.push_back(t.to(kFloat32).template to_vector<float>());
    end.scale = scaler.get_scale();
    end.stats = printed(scaler.stats());
  });
  return end;
}

}  // namespace

TEST_CASE("100 AMP steps give the same bits on 1, 2, 4 and 8 ranks") {
  for (const Dtype low : {kFloat16, kBFloat16}) {
    const EndOfShards one = train(1, 8, low, false);
    INFO(one.stats);
    for (const int size : {2, 4, 8}) CHECK(train(size, 8, low, size == 4) == one);
    if (low == kFloat16) {
      CHECK(one.stats.find("1 by the loss") != std::string::npos);
      CHECK(one.stats.find(" 0 skipped") == std::string::npos);
    }
    CHECK_FALSE(train(2, 2, low, false) == one);  // other shards are other sums
  }
}

TEST_CASE("the gradient of shards is that of the mean loss") {
  // The loss is the mean of w · x over 8 rows, so its gradient is the mean of the rows.
  const Tensor x = arange(16).to(kFloat32).reshape({8, 2});
  for (const int size : {1, 2, 4})
    on_ranks(size, [&](const std::shared_ptr<ProcessGroup>& group) {
      nn::Linear model(2, 1);
      DistributedDataParallel ddp(*model, {.shards = 4}, group);
      for (const Shard shard : ddp.shards(0)) model->forward(shard.of(x)).mean().backward();
      CHECK(model->weight.grad().equal(tensor({7., 8.}).to(kFloat32).reshape({1, 2})));
      CHECK(model->bias.grad().equal(full({1}, 1.)));
    });
}

TEST_CASE("12 shards on 1, 3, 6 and 12 ranks") {
  const EndOfShards one = train(1, 12, kFloat16, false);
  for (const int size : {3, 6, 12}) CHECK(train(size, 12, kFloat16, false) == one);
}

TEST_CASE("shards that ranks cannot share evenly are refused") {
  for (const int64_t shards : {int64_t{-4}, int64_t{3}, int64_t{6}, int64_t{12}})
    on_ranks(2, [&](const std::shared_ptr<ProcessGroup>& group) {
      NormNet net;
      CHECK_THROWS_WITH_AS(DistributedDataParallel(*net, {.shards = shards}, group),
                           doctest::Contains("shards for 2 ranks"), Error);
    });
}

TEST_CASE("random numbers of a shard depend on seed, step and shard alone") {
  manual_seed(5);
  const Tensor next = rand({3});
  const auto draw = [&](int size, uint64_t step, uint64_t seed) {
    std::vector<std::vector<float>> by_shard(4);
    on_ranks(size, [&](const std::shared_ptr<ProcessGroup>& group) {
      NormNet net;
      DistributedDataParallel ddp(*net, {.shards = 4}, group);
      // Outside of the loop the ranks, which are threads, share the generators: one of them looks.
      const bool looks = group->rank() == 0;
      if (looks) manual_seed(5);
      for (const Shard shard : ddp.shards(step, seed)) {
        CHECK(shard.count == 4);
        std::vector<float>& drawn = by_shard[static_cast<size_t>(shard.index)];
        CHECK(drawn.empty());  // no two ranks have the same one
        drawn = rand({3}).to_vector<float>();
        net->forward(ones({3, 6})).sum().backward();
      }
      if (looks) CHECK(rand({3}).equal(next));  // as if the loop had not been
    });
    return by_shard;
  };
  const auto first = draw(1, 0, 0);
  for (size_t i = 0; i < 4; ++i) {
    CHECK(first[i].size() == 3);
    for (size_t k = 0; k < i; ++k) CHECK(first[i] != first[k]);
  }
  for (const int size : {1, 2, 4}) {
    CHECK(draw(size, 0, 0) == first);
    const auto later = draw(size, 1, 0), of_other_seed = draw(size, 0, 1);
    for (size_t i = 0; i < 4; ++i) {
      CHECK(later[i] != first[i]);
      CHECK(of_other_seed[i] != first[i]);
    }
  }
}

TEST_CASE("a loop over shards that is misused says so") {
  NormNet net;
  const auto group = std::make_shared<ProcessGroup>(nullptr, 0, 1);
  DistributedDataParallel ddp(*net, {.shards = 2}, group);
  const auto loss = [&] { return net->forward(ones({3, 6})).sum(); };
  loss().backward();
  CHECK_THROWS_WITH_AS(ddp.shards(0).begin(), doctest::Contains("call optimizer.zero_grad()"),
                       Error);
  net->zero_grad();
  {
    const auto local = ddp.no_sync();
    CHECK_THROWS_WITH_AS(ddp.shards(0).begin(), doctest::Contains("not under no_sync()"), Error);
  }
  CHECK_THROWS_WITH_AS((Shard{0, 2}.of(ones({3, 6}))), doctest::Contains("3 rows is not 2"), Error);
  CHECK_THROWS_WITH_AS((Shard{0, 2}.of(ones({}))), doctest::Contains("0 rows is not 2"), Error);
  for ([[maybe_unused]] const Shard shard : ddp.shards(0)) {
    CHECK_THROWS_WITH_AS(ddp.shards(0).begin(), doctest::Contains("runs already"), Error);
    loss().backward();
  }
  net->zero_grad();
  amp::GradScaler scaler({.init_scale = 1024});
  optim::SGD optimizer(net->parameters(), optim::SGDOptions(0.1));
  for (const bool first : {true, false}) {
    const Tensor before = net->head->weight.detach().clone();
    for (const Shard shard : ddp.shards(0))
      ((shard.index == 0) == first ? scaler.scale(loss()) : loss()).backward();
    CHECK_THROWS_WITH_AS(scaler.step(optimizer),
                         doctest::Contains("that was not scaled were added"), Error);
    CHECK(net->head->weight.detach().equal(before));
    net->zero_grad();
  }
  for ([[maybe_unused]] const Shard shard : ddp.shards(0)) break;
  CHECK_THROWS_WITH_AS(loss().backward(), doctest::Contains("was left before its end"), Error);
  CHECK_THROWS_WITH_AS(ddp.shards(1).begin(), doctest::Contains("was left before its end"), Error);
}
