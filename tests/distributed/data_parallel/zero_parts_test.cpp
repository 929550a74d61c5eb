// ZeroRedundancyOptimizer given the DistributedDataParallel: each rank gets its part of the
// gradients. Weights must have the bits that the plain optimizer gives them after plain reductions.
#include <doctest/doctest.h>
#include <halftape/halftape.h>

#include "halftape/tests/distributed/data_parallel/partly_used_net.h"
#include "halftape/tests/support/printed.h"
#include "halftape/tests/support/thread_ranks.h"

using namespace halftape;
using namespace halftape::distributed;
using namespace halftape::testing;
namespace F = nn::functional;

namespace {

using Groups = std::vector<optim::OptimizerParamGroup>;

/// One way to train.
struct Way {
  int size = 2;
  bool by_parts = true, flat = false, flat_first = false, clip = false, groups = false;
  bool overlap = true;
  Dtype dtype = kFloat32;
  optim::Weights weights = optim::Weights::Plain;
  int64_t bucket_bytes = 300;
};

struct EndOfParts {
  Numbers weights, state;
  double scale = 0;
  std::string stats;
  bool operator==(const EndOfParts&) const = default;
};

/// Makes the optimizer, with two groups of other options whose parameters share buckets.
std::unique_ptr<AdamW> make_optimizer(const Way& how, PartlyUsedNet& net,
                                      DistributedDataParallel& ddp) {
  const auto options = optim::AdamWOptions(1e-2).weight_decay(0.1).weights(how.weights);
  const std::vector<Tensor> all = net->parameters();
  std::vector<Tensor> even, odd;
  for (size_t i = 0; i < all.size(); ++i)
    (i % 2 == 0 || !how.groups ? even : odd).push_back(all[i]);
  Groups groups{even};
  if (how.groups)
    groups.emplace_back(
        odd, std::make_unique<optim::AdamWOptions>(optim::AdamWOptions(3e-2).weights(how.weights)));
  if (how.by_parts) return std::make_unique<Zero>(groups, options, ddp);
  return std::make_unique<AdamW>(groups, options);
}

/// Eight steps: accumulation under no_sync(), an overflow, a loss that is NaN on one rank.
void steps(const Way& how, PartlyUsedNet& net, DistributedDataParallel& ddp,
           optim::Optimizer& optimizer, amp::GradScaler& scaler) {
  const bool last = ddp.group().rank() == ddp.group().size() - 1;
  bool overflows = false;
  net->head->weight.register_hook(
      [&](const Tensor& g) { return overflows ? g * INFINITY : Tensor(); });
  for (int64_t step = 0; step < 8; ++step) {
    optimizer.zero_grad(step % 2 == 0);
    if (step == 3) {
      const auto local = ddp.no_sync();
      scaler.scale(loss_of(net, ddp.group(), 77, how.dtype)).backward();
    }
    Tensor loss = loss_of(net, ddp.group(), step, how.dtype);
    overflows = step == 4 && last;
    if (step == 6 && last) loss = loss * NAN;
    scaler.scale(loss).backward();
    if (step % 2 == 1 || how.clip) scaler.unscale_(optimizer);
    if (how.clip) {
      ddp.gather_gradients();
      nn::utils::clip_grad_norm_(net->parameters(), 0.1);
    }
    scaler.step(optimizer);
    scaler.update();
  }
}

EndOfParts train(const Way& how) {
  EndOfParts end;
  on_ranks(how.size, [&](const std::shared_ptr<ProcessGroup>& group) {
    PartlyUsedNet net(how.dtype);
    DistributedDataParallel ddp(
        *net, {.bucket_bytes = how.bucket_bytes, .first_bucket_bytes = 100, .overlap = how.overlap},
        group);
    const std::unique_ptr<AdamW> optimizer = make_optimizer(how, net, ddp);
    if (how.flat) optimizer->flatten();
    amp::GradScaler scaler({.init_scale = 1024, .allow_fp16_grads = true});
    steps(how, net, ddp, *optimizer, scaler);
    ddp.check_weights();
    if (auto* zero = dynamic_cast<Zero*>(optimizer.get())) zero->consolidate_state();
    if (group->rank() != group->size() - 1) return;  // rank 0 sees no inf of its own
    end = {numbers(net->parameters()), state_numbers(*optimizer), scaler.get_scale(),
           printed(scaler.stats())};
  });
  return end;
}

}  // namespace

TEST_CASE("the bits of plain reductions with the plain optimizer, for 1 to 8 ranks") {
  for (const int size : {1, 2, 3, 4, 8})
    for (const bool clip : {false, true}) {
      CAPTURE(size);
      CAPTURE(clip);
      const EndOfParts wanted = train({.size = size, .by_parts = false, .clip = clip});
      for (const bool flat : {false, true})
        for (const int64_t bytes : {int64_t{1}, int64_t{300}, int64_t{1} << 20})
          CHECK(train({.size = size, .flat = flat, .clip = clip, .bucket_bytes = bytes}) == wanted);
      CHECK(wanted.stats.find("1 by the loss") != std::string::npos);
    }
}

TEST_CASE("the same with groups that share buckets, without overlap, and for weights of any kind") {
  for (const int size : {2, 3}) {
    const Way groups{.size = size, .groups = true};
    for (const bool flat : {false, true}) {
      Way plain = groups, parts = groups;
      plain.by_parts = false, parts.flat = plain.flat = flat, parts.overlap = false;
      CHECK(train(parts) == train(plain));
    }
    for (const Dtype dtype : {kFloat16, kBFloat16, kFloat64})
      for (const optim::Weights weights :
           {optim::Weights::Plain, optim::Weights::Master, optim::Weights::Kahan}) {
        Way plain{.size = size, .by_parts = false, .dtype = dtype, .weights = weights};
        Way parts = plain;
        parts.by_parts = parts.flat = true;
        CHECK(train(parts) == train(plain));
      }
  }
}

TEST_CASE(
    "a loop over shards sends parts, too, and its bits do not depend on the number of ranks") {
  const auto run = [](int size, bool by_parts) {
    Numbers end;
    on_ranks(size, [&](const std::shared_ptr<ProcessGroup>& group) {
      PartlyUsedNet net;
      DistributedDataParallel ddp(*net, {.first_bucket_bytes = 100, .shards = 8}, group);
      const auto optimizer = make_optimizer({.by_parts = by_parts}, net, ddp);
      amp::GradScaler scaler({.init_scale = 1024});
      for (uint64_t step = 0; step < 5; ++step) {
        optimizer->zero_grad();
        const Tensor x = (arange(16 * 6).to(kFloat32) * 0.713 + static_cast<double>(step)).sin(),
                     y = (arange(16) * 3) % 4;
        for (const Shard shard : ddp.shards(step))
          scaler.scale(F::cross_entropy(net->forward(shard.of(x.reshape({16, 6}))), shard.of(y)))
              .backward();
        CHECK(is_partial(net->fc->weight.grad()) == by_parts);
        scaler.step(*optimizer);
        scaler.update();
      }
      ddp.check_weights();
      if (group->rank() == 0) end = numbers(net->parameters());
    });
    return end;
  };
  const Numbers wanted = run(1, false);
  for (const int size : {1, 2, 4, 8}) CHECK(run(size, true) == wanted);
}

TEST_CASE("a step sends 2 (W - 1) / W of the parameters' bytes, and 3 with a group") {
  const auto sent = [](int size, int steps, int way, bool flat) {
    return on_ranks(size, [&](const std::shared_ptr<ProcessGroup>& group) {
      nn::Sequential net{nn::Linear(64, 128), nn::Linear(128, 96)};
      DistributedDataParallel ddp(*net, {.bucket_bytes = 20000}, group);
      std::unique_ptr<AdamW> optimizer;
      if (way == 2) optimizer = std::make_unique<AdamW>(net->parameters(), optim::AdamWOptions());
      if (way == 1)
        optimizer = std::make_unique<Zero>(net->parameters(), optim::AdamWOptions(), ddp);
      if (way == 0)
        optimizer = std::make_unique<Zero>(net->parameters(), optim::AdamWOptions(), group);
      if (flat) optimizer->flatten();
      for (int step = 0; step < steps; ++step) {
        optimizer->zero_grad();
        net->forward(ones({4, 64})).square().sum().backward();
        optimizer->step();
      }
    });
  };
  const size_t bytes = 4 * (64 * 128 + 128 + 128 * 96 + 96);  // each parameter: a multiple of 32
  for (const int size : {2, 3, 4})
    for (const bool flat : {false, true}) {
      CAPTURE(size);
      const auto per_step = [&](int way) {
        return sent(size, 2, way, flat) - sent(size, 1, way, flat);
      };
      const auto others = static_cast<size_t>(size - 1);
      // Which gradients there are: 4 floats to every other rank.
      const size_t small = static_cast<size_t>(size) * others * 4 * sizeof(float);
      CHECK(per_step(1) == 2 * others * bytes + small);
      CHECK(per_step(2) == 2 * others * bytes + small);
      CHECK(per_step(0) == 3 * others * bytes + small);
    }
}

TEST_CASE("flatten, consolidate and load between backward and step, with another number of ranks") {
  optim::OptimizerState saved;
  Numbers weights;
  const auto run = [&](int size, bool by_parts, int64_t from, int64_t to) {
    on_ranks(size, [&](const std::shared_ptr<ProcessGroup>& group) {
      PartlyUsedNet net;
      DistributedDataParallel ddp(*net, {.first_bucket_bytes = 100, .shards = 4}, group);
      const auto optimizer = make_optimizer({.by_parts = by_parts}, net, ddp);
      auto* const zero = dynamic_cast<Zero*>(optimizer.get());
      if (from > 0) {
        const NoGradGuard no_grad;
        const std::vector<Tensor> all = net->parameters();
        for (size_t i = 0; i < all.size(); ++i)
          all[i].copy_(tensor(weights[i]).reshape(all[i].sizes()));
        optimizer->load_state_dict(saved);
      }
      for (int64_t step = from; step < to; ++step) {
        optimizer->zero_grad();
        for (const Shard shard : ddp.shards(static_cast<uint64_t>(step)))
          net->forward((arange(8 * 6).to(kFloat32) + static_cast<double>(step * 8 + shard.index))
                           .sin()
                           .reshape({8, 6}))
              .square()
              .sum()
              .backward();
        if (step == 1) optimizer->flatten();
        if (zero && step % 2 == 0) zero->consolidate_state();
        optimizer->step();
      }
      if (zero) zero->consolidate_state();
      ddp.check_weights();
      if (group->rank() != 0) return;
      saved = optimizer->state_dict();
      weights = numbers(net->parameters());
    });
  };
  run(1, false, 0, 6);
  const Numbers wanted = weights;
  run(2, true, 0, 3);
  run(4, true, 3, 5);
  run(1, true, 5, 6);
  CHECK(weights == wanted);
}
