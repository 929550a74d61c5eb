#include <doctest/doctest.h>
#include <halftape/halftape.h>

#include "halftape/tests/support/thread_ranks.h"

using namespace halftape;
using namespace halftape::distributed;
using halftape::testing::on_ranks;

namespace {
Tensor images(int64_t n) {
  return (arange(n * 3 * 4).to(kFloat64) * 0.7).sin().reshape({n, 3, 2, 2}) * 3 + 1;
}
}  // namespace

TEST_CASE("SyncBatchNorm on ranks is BatchNorm of the whole batch, with its gradients") {
  const int64_t rows[] = {1, 4, 2};  // of each rank
  nn::BatchNorm2d whole(nn::BatchNormOptions(3));
  whole->to(kFloat64);
  const Tensor all = images(7).requires_grad_();
  const Tensor weights = (arange(7 * 12).to(kFloat64) * 1.3).cos().reshape({7, 3, 2, 2});
  (whole->forward(all) * weights).sum().backward();
  whole->eval();
  const Tensor evaluated = whole->forward(images(2)).detach();
  on_ranks(3, [&](const std::shared_ptr<ProcessGroup>& group) {
    const int me = group->rank();
    const int64_t from = me == 0 ? 0 : me == 1 ? 1 : 5;
    SyncBatchNorm norm(nn::BatchNormOptions(3), group);
    norm->to(kFloat64);
    const Tensor x = images(7).slice(0, from, from + rows[me]).clone().requires_grad_();
    const Tensor y = norm->forward(x);
    (y * weights.slice(0, from, from + rows[me])).sum().backward();
    const auto near = [](const Tensor& a, const Tensor& b) {
      return (a - b).abs().max().item<double>() < 64 * 0x1p-52;
    };
    CHECK(near(x.grad(), all.grad().slice(0, from, from + rows[me])));
    CHECK(near(norm->running_mean, whole->running_mean));
    CHECK(near(norm->running_var, whole->running_var));
    CHECK(norm->num_batches_tracked.item<int64_t>() == 1);
    const Tensor of_weight = norm->weight.grad().clone();
    group->all_reduce(of_weight);
    CHECK(near(of_weight, whole->weight.grad()));
    norm->eval();
    CHECK(near(norm->forward(images(2)), evaluated));
    norm->train();
    // A batch with an inf on one rank leaves the running statistics of all as they are.
    const Tensor before = norm->running_mean.clone();
    norm->forward(me == 1 ? images(2) * INFINITY : images(2));
    CHECK(norm->running_mean.equal(before));
    CHECK(norm->num_batches_tracked.item<int64_t>() == 1);
    CHECK_THROWS_AS(norm->forward(ones({2, 4, 2, 2})), Error);
    CHECK_THROWS_AS(norm->forward(ones({3})), Error);
  });
}

TEST_CASE("sync_sum has derivatives of any order") {
  on_ranks(2, [](const std::shared_ptr<ProcessGroup>& group) {
    const Tensor x = full({2}, group->rank() + 1.).requires_grad_();
    const Tensor y = sync_sum(x * x, *group);  // 1 + 4
    CHECK(y.equal(full({2}, 5.)));
    const Tensor g = autograd::grad({(y * y).sum()}, {x}, {}, {}, true)[0];
    CHECK(g.detach().equal(full({2}, 40 * (group->rank() + 1.))));  // two ranks, 2 y · 2 x
    CHECK(autograd::grad({g.sum()}, {x})[0].sizes() == Shape{2});
  });
}
