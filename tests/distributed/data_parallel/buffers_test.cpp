// Buffers, such as running statistics: rank 0's at the start, and what becomes of them in
// backward().
#include <doctest/doctest.h>
#include <halftape/halftape.h>

#include "halftape/tests/support/thread_ranks.h"

using namespace halftape;
using namespace halftape::distributed;
using testing::on_ranks;

namespace {

/// Half of each new statistic, so that means of them are exact.
nn::BatchNorm1d halving_norm() { return nn::BatchNorm1d(nn::BatchNormOptions(3).momentum(0.5)); }

/// Two rows of three columns: their mean is `mean`, their unbiased variance 2·distance².
Tensor two_rows(double mean, double distance) {
  return cat({full({1, 3}, mean - distance), full({1, 3}, mean + distance)});
}

}  // namespace

TEST_CASE("buffers are rank 0's from the start, and one that changed on one rank is found") {
  on_ranks(3, [](const std::shared_ptr<ProcessGroup>& group) {
    const int me = group->rank();
    nn::BatchNorm1d norm(3);
    norm->running_mean.fill_(me);
    norm->running_var.fill_(me + 10);
    norm->num_batches_tracked.fill_(me + 5);
    DistributedDataParallel ddp(*norm, {}, group);
    CHECK(norm->running_mean.equal(zeros({3})));
    CHECK(norm->running_var.equal(full({3}, 10.)));
    CHECK(norm->num_batches_tracked.item<int64_t>() == 5);
    ddp.check_weights();
    if (me == 1) norm->running_mean.add_(1);
    CHECK_THROWS_WITH_AS(
        ddp.check_weights(),
        doctest::Contains("rank 1 has other numbers than rank 0 in running_mean: float32 [3], "
                          "a buffer"),
        Error);
    ddp.broadcast_weights(1);
    CHECK(norm->running_mean.equal(ones({3})));
    if (me == 2) norm->num_batches_tracked.add_(1);
    CHECK_THROWS_WITH_AS(ddp.check_weights(),
                         doctest::Contains("rank 2 has other numbers than rank 0 in "
                                           "num_batches_tracked"),
                         Error);
  });
}

TEST_CASE("running statistics become their mean, and counts rank 0's, unless that is turned off") {
  for (const bool average : {true, false})
    on_ranks(2, [&](const std::shared_ptr<ProcessGroup>& group) {
      const bool first = group->rank() == 0;
      nn::BatchNorm1d norm = halving_norm();
      DistributedDataParallel ddp(*norm, {.average_buffers = average}, group);
      norm->num_batches_tracked.fill_(first ? 5 : 9);
      norm->forward(first ? two_rows(10, 1) : two_rows(30, 4)).sum().backward();
      // From 0 and 1 half the way to 10 and 2 on rank 0, and to 30 and 32 on rank 1.
      CHECK(norm->running_mean.equal(full({3}, average ? 10. : first ? 5. : 15.)));
      CHECK(norm->running_var.equal(full({3}, average ? 9. : first ? 1.5 : 16.5)));
      CHECK(norm->num_batches_tracked.item<int64_t>() == (average || first ? 6 : 10));
      if (average) ddp.check_weights();
    });
}

TEST_CASE("under no_sync() running statistics stay this rank's, until the next backward()") {
  on_ranks(2, [](const std::shared_ptr<ProcessGroup>& group) {
    const bool first = group->rank() == 0;
    nn::BatchNorm1d norm = halving_norm();
    DistributedDataParallel ddp(*norm, {}, group);
    const auto step = [&] {
      norm->forward(first ? two_rows(10, 1) : two_rows(30, 4)).sum().backward();
    };
    {
      const auto local = ddp.no_sync();
      step();
    }
    CHECK(norm->running_mean.equal(full({3}, first ? 5. : 15.)));
    step();
    CHECK(norm->running_mean.equal(full({3}, 15.)));  // of 7.5 and 22.5
    CHECK(norm->num_batches_tracked.item<int64_t>() == 2);
    ddp.check_weights();
  });
}

TEST_CASE("after a loop over shards running statistics are their mean, and a step counts once") {
  for (const int size : {1, 2, 4})
    on_ranks(size, [&](const std::shared_ptr<ProcessGroup>& group) {
      nn::BatchNorm1d norm = halving_norm();
      DistributedDataParallel ddp(*norm, {.shards = 4}, group);
      norm->num_batches_tracked.fill_(group->rank() == 0 ? 5 : 9);
      for (const Shard shard : ddp.shards(0)) {
        const auto n = static_cast<double>(shard.index + 1);
        norm->forward(two_rows(10 * n, n)).sum().backward();
      }
      // Each shard begins with 0 and 1. The means are 10, 20, 30, 40; the variances 2, 8, 18, 32.
      CHECK(norm->running_mean.equal(full({3}, 12.5)));
      CHECK(norm->running_var.equal(full({3}, 8.)));
      CHECK(norm->num_batches_tracked.item<int64_t>() == 6);
      ddp.check_weights();
    });
}

TEST_CASE("float64 buffers that are equal on all ranks stay as they are") {
  struct TableImpl : nn::Module {
    TableImpl() {
      table = register_buffer("table", tensor({0.1, 0.7, -1e300, 0.0}, kFloat64));
      own = register_buffer("own", zeros({1}, kFloat64));
      w = register_parameter("w", ones({4}));
    }
    Tensor table, own, w;
  };
  for (const int64_t shards : {0, 6})
    on_ranks(3, [&](const std::shared_ptr<ProcessGroup>& group) {
      TableImpl model;
      DistributedDataParallel ddp(model, {.shards = shards}, group);
      const Tensor before = model.table.clone();
      const auto pass = [&] {
        model.own.fill_(group->rank());
        model.w.sum().backward();
      };
      if (shards == 0)
        pass();
      else
        for ([[maybe_unused]] const Shard& shard : ddp.shards(0)) pass();
      CHECK(model.table.equal(before));
      CHECK(model.own.item<double>() == 1);
      ddp.check_weights();
    });
}

TEST_CASE("a buffer without elements, and no other of its kind, is let alone") {
  struct Net : nn::Module {
    Tensor w = register_parameter("w", ones({4})), empty = register_buffer("empty", zeros({0}));
  };
  on_ranks(2, [](const std::shared_ptr<ProcessGroup>& group) {
    const Net net;
    const DistributedDataParallel ddp(net, {}, group);
    (net.w * (group->rank() + 1)).sum().backward();
    CHECK(net.w.grad().equal(full({4}, 1.5)));
  });
}
